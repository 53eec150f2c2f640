"""recorded: a model that gives another run's recorded answers, in their order; offline and free."""

from __future__ import annotations

from langchain_core.messages import AIMessage

from graph.models.scripted import ScriptedModel, Turn
from state.errors import Refused
from state.messages import revive
from state.trace import Trace


async def recorded(run_id: str, trace: Trace) -> ScriptedModel:
    """The answers that the run's models gave. Raises Refused for a run without any."""
    answers = [call.result for call in await trace.of(run_id) if call.kind == "model" and call.result is not None]
    if not answers:
        raise Refused(f"run {run_id[:8]} has no recorded model answers")
    return ScriptedModel(turns=[_turn(revive(answer)) for answer in answers])


def _turn(message: object) -> Turn:
    if not isinstance(message, AIMessage):
        raise Refused("the record holds something that is no model's answer")
    return Turn(
        content=message.text,
        tool_calls=[{"name": call["name"], "args": call["args"], "id": call["id"]} for call in message.tool_calls],
        invalid_tool_calls=[dict(call) for call in message.invalid_tool_calls],
        usage_metadata=dict(message.usage_metadata) if message.usage_metadata else None,
        response_metadata=message.response_metadata,
    )
