"""What the command line says of a run: the same fields whoever asks, whatever became of the run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from langgraph.types import StateSnapshot

from graph.report import report_on_state
from scripts.bootstrap import Application
from state.approvals import Approval
from state.errors import ArtifactMissing
from state.ids import short
from state.runs import Run
from state.status import TERMINAL
from state.steps import Step


async def facts_of(application: Application, run: Run, snapshot: StateSnapshot | None = None) -> dict[str, Any]:
    """The contract's fields, from the registry and the newest saved state. `pending` is there while a run waits."""
    snapshot = snapshot or await newest(application, run)
    facts = await _fields(application, run, snapshot.values)
    questions = await open_questions(application, run, snapshot)
    pending = [await _pending(application, each, snapshot) for each in questions]
    if run.status == "waiting" and not questions and await application.services.approvals.answered(run.run_id):
        facts["report"] = _answered(run, facts["report"])
    return {**facts, "patch": await _patch(application, run), "pending": pending}


def _answered(run: Run, report: Mapping[str, Any]) -> dict[str, Any]:
    """The report of a run that was asked for an answer and has it, until somebody goes on."""
    name = short(run.run_id)
    summary = "All that it asked is answered or has expired, and nobody has gone on with it yet."
    return {**report, "summary": summary, "next": [f"devfix resume {name}", "devfix worker", f"devfix show {name}"]}


async def facts_at(application: Application, run: Run, step: Step, snapshot: StateSnapshot) -> dict[str, Any]:
    """The same fields as they were at one step, with the state whole."""
    values = snapshot.values
    then = run.model_copy(
        update={
            "status": values.get("status") or step.status or "queued",
            "reason": values.get("reason"),
            "report": values.get("report"),
            "step": step.number,
            "epoch": step.epoch,
            "cost_usd": values.get("cost_usd") or 0.0,
            "tokens": values.get("tokens") or 0,
            "updated_at": step.at,
        }
    )
    facts = await _fields(application, then, values)
    about = {"nodes": step.nodes, "checkpoint_id": step.checkpoint_id, "snapshot": step.snapshot, "at": step.at}
    return {**facts, "report": values.get("report"), **about, "next": list(snapshot.next), "state": dict(values)}


async def newest(application: Application, run: Run) -> StateSnapshot:
    """The run's newest saved state, with what a half-done step has written."""
    return await application.agent().aget_state({"configurable": {"thread_id": run.run_id}})


async def at_step(application: Application, run: Run, step: Step) -> StateSnapshot:
    """The state just as it was saved at this step."""
    where = {"thread_id": run.run_id, "checkpoint_id": step.checkpoint_id, "checkpoint_ns": ""}
    return await application.agent().aget_state({"configurable": where})


def items(values: Mapping[str, Any], name: str) -> list[Any]:
    """A field that should be a list; a state with a bad value from outside must be readable all the same."""
    value = values.get(name)
    return list(value) if isinstance(value, (list, tuple)) else []


def records(values: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    return [each for each in items(values, name) if isinstance(each, Mapping)]


def part(values: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = values.get(name)
    return value if isinstance(value, Mapping) else {}


async def _fields(application: Application, run: Run, values: Mapping[str, Any]) -> dict[str, Any]:
    lists = {name: items(values, name) for name in ("plan", "completed", "attempts")}
    work = part(values, "work")
    report = run.report or report_on_state(run.run_id, run.standing, {**values, **lists}).model_dump()
    workspace = application.services.workspaces.folder(run.run_id, run.epoch)
    return {
        "run_id": run.run_id,
        "status": run.status,
        "reason": run.reason,
        "goal": values.get("goal") or run.goal,
        "step": run.step,
        **lists,
        "cost_usd": run.cost_usd,
        "tokens": run.tokens,
        "epoch": run.epoch,
        "parent": run.parent,
        "branched_at": run.branched_at,
        "job": values.get("job") or run.job,
        "model": values.get("model") or run.model,
        "answered_by": values.get("answered_by"),
        "repository": work.get("repository") or values.get("repository"),
        "sandbox_level": sandbox_level(values),
        "workspace": str(workspace),
        "report": report,
        "created_at": run.created_at,
        "updated_at": run.updated_at,
        "pruned_at": run.pruned_at,
    }


def sandbox_level(values: Mapping[str, Any]) -> int | None:
    """The level at which the tests of this run ran last, wherever that was; None while none have run."""
    work = part(values, "work")
    level = part(work, "evidence").get("sandbox_level") or part(work, "opening").get("sandbox_level")
    return level if isinstance(level, int) else None


async def open_questions(application: Application, run: Run, snapshot: StateSnapshot) -> list[Approval]:
    """What the run waits for a person to answer, in order: nothing that was decided, nor what has expired."""
    if run.status in TERMINAL:
        return []
    asked = set(_asked(snapshot))
    now = application.services.now()
    rows = await application.services.approvals.of(run.run_id)
    return [row for row in rows if row.question.call_id in asked and not row.decision and not row.expired(now)]


def _asked(snapshot: StateSnapshot) -> Iterator[str]:
    """The ids of the present turn's questions; an older turn's, left open by a fork, are nobody's concern."""
    for request in _requests(snapshot):
        yield str(request.get("call_id"))
    for call in records(snapshot.values, "pending_actions"):
        if call.get("gated"):
            yield str(call.get("id"))
    if snapshot.values.get("decision") == "escalate":
        yield f"escalation-{snapshot.values.get('step')}"


def _requests(snapshot: StateSnapshot) -> Sequence[Mapping[str, Any]]:
    return [
        request
        for each in snapshot.interrupts
        if isinstance(each.value, Mapping)
        for request in each.value.get("action_requests") or ()
    ]


async def _pending(application: Application, row: Approval, snapshot: StateSnapshot) -> dict[str, Any]:
    question = row.question
    told = {request.get("call_id"): request.get("description") for request in _requests(snapshot)}
    return {
        "call_id": question.call_id,
        "kind": question.kind,
        "tool": question.tool,
        "arguments": question.arguments,
        "description": told.get(question.call_id),
        "allowed": question.allowed,
        "diff": await diff_of(application, row),
        "paths": question.bound.get("paths"),
        "mode": question.bound.get("mode"),
        "asked_at": row.asked_at,
        "expires_at": row.expires_at,
    }


async def _patch(application: Application, run: Run) -> str | None:
    """The patch that a person was last shown, whatever became of it."""
    for row in reversed(await application.services.approvals.of(run.run_id)):
        if (diff := await diff_of(application, row)) is not None:
            return diff
    return None


async def diff_of(application: Application, row: Approval) -> str | None:
    """The patch that the question is about, as it was bound; None where it is about something else."""
    bound = row.question.bound
    if digest := bound.get("diff_artifact"):
        try:
            return (await application.services.artifacts.get(str(digest))).decode("utf-8", "backslashreplace")
        except ArtifactMissing as missing:
            return str(missing)
    diff = bound.get("diff")
    return None if diff is None else str(diff)
