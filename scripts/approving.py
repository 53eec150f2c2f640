"""A person's answers to what a run waits for: which questions are meant, and what may be said to them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from scripts.bootstrap import Application
from scripts.facts import newest, open_questions
from state.approvals import Approval, Decision
from state.errors import AlreadyDecided, CallNotFound, Refused
from state.ids import short
from state.runs import Run
from state.status import TERMINAL
from tools.execution import validated


def decision_of(*, edit: str | None, reject: str | None, respond: str | None, again: bool = False) -> Decision:
    """The decision that the options name; approve without any. Raises Refused."""
    if sum(each is not None for each in (edit, reject, respond)) > 1:
        raise Refused("give one of --edit, --reject and --respond; nothing was decided")
    if respond is not None and not respond.strip():
        raise Refused("--respond takes the words of your answer; nothing was decided")
    if again and (reject is not None or respond is not None):
        raise Refused("--again goes with an approval; nothing was decided")
    if edit is not None:
        return Decision(type="edit", arguments=_object(edit), again=again)
    if reject is not None:
        return Decision(type="reject", message=reject)
    return Decision(type="approve", again=again) if respond is None else Decision(type="respond", message=respond)


def _object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise Refused(f"--edit takes the call's arguments as a JSON object: {error}; nothing was decided") from None
    if not isinstance(value, dict):
        raise Refused("--edit takes the call's arguments as a JSON object; nothing was decided")
    return value


async def record(
    application: Application, run: Run, call: str | None, decision: Decision, *, by: str, wake: bool = False
) -> list[Approval]:
    """Write the decision into the rows that are meant: the one call, or all that are open.

    `wake`: when nothing is open any more, a worker goes on.

    Raises CallNotFound, AlreadyDecided (who, what, when; expired; a run that does not wait), Refused.
    """
    approvals = application.services.approvals
    if not wake:
        application.services.job(run.job or application.settings.job)  # who goes on with it here needs it
    rows = await _meant(application, run, call)
    if decision.type == "edit":
        _check_edit(application, run, rows, decision)
    try:
        return [await approvals.decide(run.run_id, row.question.call_id, decision, by=by, wake=wake) for row in rows]
    except AlreadyDecided as told:
        if run.status == "waiting" and await approvals.answered(run.run_id):
            raise AlreadyDecided(f"{told}: {answered(run)}") from None
        raise


async def _meant(application: Application, run: Run, call: str | None) -> Sequence[Approval]:
    known = await application.services.approvals.of(run.run_id)
    matching = [row for row in known if call is None or row.question.call_id.startswith(call)]
    exact = [row for row in matching if row.question.call_id == call]
    if call is not None and not matching:
        raise CallNotFound(
            f"run {short(run.run_id)} has no pending approval {call!r}; `devfix show {short(run.run_id)}`"
        )
    if run.status in TERMINAL:
        raise _does_not_wait(run)
    still_open = await open_questions(application, run, await newest(application, run))
    ids = {row.question.call_id for row in still_open}
    chosen = exact or [row for row in matching if row.question.call_id in ids] or matching[-1:]
    if not chosen:
        raise _does_not_wait(run)
    if call is not None and len(chosen) > 1:
        raise Refused(f"{call!r} is the beginning of several calls' ids; give more of it")
    return chosen


def answered(run: Run) -> str:
    """How a run goes on that waits for nothing any more."""
    return (
        f"all that run {short(run.run_id)} asked is answered or has expired; a worker goes on with it "
        f"(`devfix worker`), or `devfix resume {short(run.run_id)}` does here"
    )


def _does_not_wait(run: Run) -> AlreadyDecided:
    return AlreadyDecided(f"run {short(run.run_id)} does not wait for an answer ({run.standing}); nothing was changed")


def _check_edit(application: Application, run: Run, rows: Sequence[Approval], decision: Decision) -> None:
    """An edit is for one call, with arguments that its tool takes."""
    if len(rows) > 1:
        raise Refused("several calls are open; name the one whose arguments these are")
    job = application.services.job(run.job or application.settings.job)
    tool = job.toolbox.get(rows[0].question.tool)
    try:
        if tool is not None:
            validated(tool, decision.arguments or {})
    except ValueError as error:
        raise Refused(f"{error}; nothing was decided") from None
