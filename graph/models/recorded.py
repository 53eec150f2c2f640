"""recorded: a model that gives another run's recorded answers, in their order; offline and free."""

from __future__ import annotations

from langchain_core.messages import AIMessage
from pydantic import JsonValue

from graph.models.scripted import ScriptedModel
from state.errors import Refused
from state.messages import revive
from state.runs import Run, Runs
from state.trace import Trace


async def recorded(run: Run, *, runs: Runs, trace: Trace) -> ScriptedModel:
    """The answers that the run's models gave, unusable ones too, a branch's after those of its parent.

    Raises Refused for a run without any.
    """
    answers = await _answers(run, runs, trace, until=None)
    if not answers:
        raise Refused(f"run {run.run_id[:8]} has no recorded model answers")
    return ScriptedModel(answers=[_message(answer) for answer in answers.values()])


async def _answers(run: Run, runs: Runs, trace: Trace, *, until: int | None) -> dict[str, dict[str, JsonValue]]:
    """By the id of the message that each became. An attempt that died between record and save was asked again, under
    the same id: the later answer is the one that the run went on with."""
    inherited: dict[str, dict[str, JsonValue]] = {}
    if run.parent is not None:
        inherited = await _answers(await runs.get(run.parent), runs, trace, until=run.branched_at)
    own = {
        call.call_id: call.result
        for call in await trace.of(run.run_id)
        if call.kind == "model" and call.result is not None and (until is None or call.step <= until)
    }
    return {**inherited, **own}


def _message(answer: dict[str, JsonValue]) -> AIMessage:
    message = revive(answer)
    if not isinstance(message, AIMessage):
        raise Refused("the record holds something that is no model's answer")
    return message
