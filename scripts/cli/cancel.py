"""devfix cancel: end a run at a person's word."""

from __future__ import annotations

import asyncio

from scripts.cli.options import By, Json, Run
from state.ids import short


def cancel(run: Run, by: By = None, as_json: Json = False) -> None:
    """Cancel a run: one that a process holds stops at its next heartbeat. What was saved is kept for `resume`."""
    asyncio.run(_cancel(run, by, as_json))


async def _cancel(prefix: str, by: str | None, as_json: bool) -> None:
    from scripts.application import application
    from scripts.cancelling import cancel_run
    from scripts.cli.output import say
    from scripts.facts import facts_of
    from scripts.registers import person
    from scripts.reporting import put_run, tell_people

    async with application() as opened:
        run = await opened.services.runs.find(prefix)
        run = await cancel_run(opened, run, by=by or person())
        put_run(await facts_of(opened, run), as_json=as_json)
        if run.status != "cancelled":
            say(f"run {short(run.run_id)} is asked to stop; {run.holder} has not done so yet: look again")
        await tell_people(opened, run)
