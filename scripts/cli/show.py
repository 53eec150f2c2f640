"""devfix show: a run, or one of its steps, whole."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from scripts.cli.options import Json, Run


def show(
    run: Run,
    step: Annotated[
        int | None, typer.Option(metavar="STEP", min=1, help="The state as it was saved at this step.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Show how a run stands, what it waits for, and its report; or one of its steps."""
    asyncio.run(_show(run, step, as_json))


async def _show(prefix: str, number: int | None, as_json: bool) -> None:
    from scripts.application import application
    from scripts.cli.output import put, put_facts
    from scripts.facts import at_step, facts_at, facts_of
    from scripts.reporting import put_run

    async with application() as opened:
        run = await opened.services.runs.find(prefix)
        if number is None:
            put_run(await facts_of(opened, run), as_json=as_json)
            return
        step = await opened.steps.get(run.run_id, number)
        facts = await facts_at(opened, run, step, await at_step(opened, run, step))
    put_run(facts, as_json=as_json)
    if not as_json:
        put("\nstate:")
        put_facts(facts["state"])
