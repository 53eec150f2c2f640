"""devfix approve: answer what a run waits for."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated

import typer

from scripts.cli.options import By, Json, Run
from state.ids import short

if TYPE_CHECKING:
    from state.approvals import Decision


def approve(
    run: Run,
    call: Annotated[
        str | None, typer.Argument(metavar="CALL", help="The call, or the beginning of its id; without it, all.")
    ] = None,
    edit: Annotated[str | None, typer.Option(metavar="JSON", help="Approve with these arguments instead.")] = None,
    reject: Annotated[str | None, typer.Option(metavar="WHY", help="Refuse; the model is told why.")] = None,
    respond: Annotated[str | None, typer.Option(metavar="TEXT", help="Answer in place of the tool.")] = None,
    again: Annotated[
        bool, typer.Option("--again", help="Do it once more, although the same effect has happened before.")
    ] = False,
    by: By = None,
    detach: Annotated[bool, typer.Option("--detach", help="Only record the answer; a worker goes on.")] = False,
    as_json: Json = False,
) -> int:
    """Approve what a run waits for (or edit, reject, respond), then go on with it when nothing is open.

    The first answer to a call wins. For an escalation: respond goes on with your advice, approving tries again,
    rejecting cancels the run.
    """
    from scripts.approving import decision_of

    decision = decision_of(edit=edit, reject=reject, respond=respond, again=again)
    return asyncio.run(_approve(run, call, decision, by=by, detach=detach, as_json=as_json))


async def _approve(
    prefix: str, call: str | None, decision: Decision, *, by: str | None, detach: bool, as_json: bool
) -> int:
    from scripts.application import application
    from scripts.approving import record
    from scripts.cli.output import say
    from scripts.driving import Drive
    from scripts.facts import facts_of
    from scripts.registers import person
    from scripts.reporting import put_run, report

    async with application() as opened:
        runs = opened.services.runs
        run = await runs.find(prefix)
        for row in await record(opened, run, call, decision, by=by or person(), wake=detach):
            say(f"{decision.type}: {row.question.tool} ({row.question.call_id}), by {row.decided_by}")
        drive = Drive(opened, run.run_id, quiet=as_json)
        if detach or not await drive.answered(run):
            run = await runs.get(run.run_id)
            put_run(await facts_of(opened, run), as_json=as_json)
            if detach:
                say(
                    f"recorded; a worker goes on with it (`devfix worker`), or `devfix resume {short(run.run_id)}` here"
                )
            return 0 if detach else drive.exit_code(run)
        return await report(drive, await drive.go_on(), as_json=as_json)
