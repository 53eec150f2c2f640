"""recorded: a model that gives another run's recorded answers, in their order; offline and free."""

from __future__ import annotations

from langchain_core.messages import AIMessage

from graph.models.scripted import ScriptedModel
from state.errors import Refused
from state.ids import short
from state.messages import revive
from state.runs import Run, Runs
from state.trace import Call, Trace


async def recorded(run: Run, *, runs: Runs, trace: Trace) -> ScriptedModel:
    """The answers that the run's models gave, unusable ones too, a branch's after those of its parent.

    Raises Refused for a run without any.
    """
    answers: list[Call] = []
    for call in await _calls(run, runs, trace, until=None):
        while answers and _place(answers[-1]) >= _place(call):
            answers.pop()
        answers.append(call)
    if not answers:
        raise Refused(f"run {short(run.run_id)} has no recorded model answers")
    return ScriptedModel(answers=[_message(call) for call in answers])


def _place(call: Call) -> int:
    """How long the history was. A later call at the same place or before it took the run another way: an attempt died
    between record and save and the model was asked again, or somebody went back to an old step."""
    count = call.request.get("messages")
    return count if isinstance(count, int) else 0


async def _calls(run: Run, runs: Runs, trace: Trace, *, until: int | None) -> list[Call]:
    """The answered calls that led to this step, oldest first."""
    inherited: list[Call] = []
    if run.parent is not None:
        inherited = await _calls(await runs.get(run.parent), runs, trace, until=run.branched_at)
    calls = [call for call in await trace.of(run.run_id) if call.kind == "model" and call.result is not None]
    return inherited + [call for call in calls if until is None or call.step <= until]


def _message(call: Call) -> AIMessage:
    message = revive(call.result or {})
    if not isinstance(message, AIMessage):
        raise Refused("the record holds something that is no model's answer")
    return message
