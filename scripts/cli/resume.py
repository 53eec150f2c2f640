"""devfix resume: go on with a run, here and now or in a worker."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated

import typer

from scripts.cli.options import BudgetTokens, BudgetUsd, Deadline, Json, Model, Run, StepLimit, Yes
from state.ids import short

if TYPE_CHECKING:
    from scripts.resuming import Raise


def resume(
    run: Run,
    yes: Yes = False,
    budget_usd: BudgetUsd = None,
    budget_tokens: BudgetTokens = None,
    step_limit: StepLimit = None,
    deadline_seconds: Deadline = None,
    model: Model = None,
    detach: Annotated[bool, typer.Option("--detach", help="Only queue the run; a worker goes on with it.")] = False,
    as_json: Json = False,
) -> int:
    """Go on with a run from its last saved step; one that waits puts its question first.

    It may be queued, put down, killed, cancelled, or have failed.
    The limits are the run's limits in all, what it has used included: a run that ended at one is refused (exit code 2)
    until it is raised. Other exit codes as of `devfix run`.
    """
    from scripts.resuming import Raise
    from scripts.starting import named_model

    changes = Raise(
        budget_usd=budget_usd,
        budget_tokens=budget_tokens,
        step_limit=step_limit,
        deadline_seconds=deadline_seconds,
        model=named_model(model) if model else None,
    )
    return asyncio.run(_resume(run, changes, yes=yes, detach=detach, as_json=as_json))


async def _resume(prefix: str, changes: Raise, *, yes: bool, detach: bool, as_json: bool) -> int:
    from scripts.application import application
    from scripts.cli.output import say
    from scripts.driving import Drive
    from scripts.facts import facts_of
    from scripts.reporting import put_run, report
    from scripts.resuming import LimitReached, leave_to_a_worker, make_ready

    async with application() as opened:
        run = await opened.services.runs.find(prefix)
        drive = Drive(opened, run.run_id, yes=yes, quiet=as_json)
        if run.status == "completed":
            say(f"run {short(run.run_id)} is completed ({run.reason}); there is nothing to go on with")
            return await report(drive, run, as_json=as_json)
        if changes.model:
            await opened.services.chain.check(changes.model)
        if run.status == "waiting" and not await drive.answered(run):
            return await report(drive, run, as_json=as_json)
        try:
            ended = await make_ready(opened, run, changes)
        except LimitReached as limit:
            put_run(await facts_of(opened, run), as_json=as_json)
            say(f"devfix: {limit}")
            return limit.exit_code
        if detach:
            await leave_to_a_worker(opened, run.run_id)
            put_run(await facts_of(opened, await opened.services.runs.get(run.run_id)), as_json=as_json)
            say(f"run {short(run.run_id)} is queued for a worker (`devfix worker`)")
            return 0
        return await report(drive, await drive.go_on(resume=ended), as_json=as_json)
