"""A branch: a new run from an old step, with one full checkpoint of its own. The parent is not touched.

Its steps are numbered on from the parent's, so that messages and calls named after a step stay unique in its history.
What the parent's people answered does not count here: each gated call is asked again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.types import StateSnapshot

from graph.durable import new_run_id
from graph.jobs import Job
from graph.prompts import open_calls
from scripts.bootstrap import Application
from scripts.facts import at_step, records
from scripts.resuming import INPUT, saved_input, written_by
from scripts.starting import NEW, put_down
from state.messages import APPEND, flatten
from state.runs import Run
from state.status import TERMINAL, standing_of
from state.steps import Step

_NOT_MADE = "This call was not made: a person went back to this point and said something else instead."


class Start(NamedTuple):
    """What a branch is begun with: the state's fields, and the node that is taken to have written them."""

    values: dict[str, Any]
    as_node: str


async def branch(application: Application, parent: Run, step: Step, *, message: str | None) -> Run:
    """The new run, held by nobody. `message` is put before the model as a person's word."""
    services, run_id = application.services, new_run_id()
    snapshot = await at_step(application, parent, step)
    start = await _start(application, parent, step, snapshot, run_id, message)
    await services.runs.register(
        run_id,
        goal=snapshot.values.get("goal") or parent.goal,
        job=parent.job,
        model=parent.model,
        parent=parent.run_id,
        branched_at=step.number,
        step=step.number - 1,
    )
    await application.agent().aupdate_state(
        {"configurable": {"thread_id": run_id}}, start.values, as_node=start.as_node
    )
    standing = standing_of(start.values.get("status"), start.values.get("reason"))
    await put_down(application, run_id, standing if standing.status in TERMINAL else NEW)
    return await services.runs.get(run_id)


async def _start(
    application: Application, parent: Run, step: Step, snapshot: StateSnapshot, run_id: str, message: str | None
) -> Start:
    if snapshot.next == ("__start__",):
        where: RunnableConfig = {"configurable": {"thread_id": parent.run_id, "checkpoint_id": step.checkpoint_id}}
        given = await saved_input(application, where)
        goal = "\n\n".join(filter(None, [given.get("goal"), message]))
        return Start({**given, "goal": goal} if message else given, INPUT)
    job = application.services.job(snapshot.values.get("job") or parent.job or application.settings.job)
    values = {**snapshot.values, "run_id": run_id, "step": step.number}
    values["pending_actions"] = [_asked_again(call, job) for call in records(values, "pending_actions")]
    start = Start(values, written_by(snapshot.next, values))
    start = start if message is None else _told(start, snapshot.next, message, job)
    return Start(_writable(start.values), start.as_node)


def _asked_again(call: Mapping[str, Any], job: Job) -> dict[str, Any]:
    """The call as the model made it: what a person granted the parent is not granted to its branch."""
    tool = job.toolbox.get(str(call.get("name")))
    gated = tool is not None and tool.gated and call.get("origin", "model") == "model"
    return {**call, "gated": gated, "bound": {} if gated else call.get("bound") or {}}


def _told(start: Start, following: tuple[str, ...], message: str, job: Job) -> Start:
    """The person's word at the end of the history. Where the run had stopped or was about to ask, the model is next."""
    values = start.values
    records = list(values.get("messages") or ())
    said = flatten(HumanMessage(message, id=f"branch-{values['run_id']}"))
    if following[:1] not in {(), ("approval",)}:
        return Start({**values, "messages": [*records, said]}, start.as_node)
    closed = [
        flatten(ToolMessage(_NOT_MADE, tool_call_id=each, status="error", id=f"result-{each}"))
        for each in open_calls(records)
    ]
    go_on: dict[str, Any] = {
        "status": "running",
        "reason": None,
        "report": None,
        "decision": "continue",
        "pending_actions": [],
    }
    work = job.rules.again(values["work"]) if following == () else values["work"]
    return Start({**values, **go_on, "idle_turns": 0, "work": work, "messages": [*records, *closed, said]}, "review")


def _writable(values: Mapping[str, Any]) -> dict[str, Any]:
    """Records go in the one form that LangGraph leaves as it is; fields that the state does not have stay behind."""
    records = {name: {APPEND: list(values.get(name) or ())} for name in ("messages", "attempts")}
    return {**values, **records}
