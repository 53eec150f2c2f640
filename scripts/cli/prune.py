"""devfix prune: let go of what nobody asks of a run that ended long ago."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from scripts.cli.options import Json


def prune(
    runs: Annotated[
        list[str] | None, typer.Argument(metavar="[RUN]...", help="These runs, however new; all old ones without.")
    ] = None,
    older_than: Annotated[
        float, typer.Option("--older-than", metavar="DAYS", min=0, help="Runs that ended so long ago.")
    ] = 30.0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say which runs.")] = False,
    as_json: Json = False,
) -> None:
    """Delete the states and files of runs that have ended; status, report, steps, approvals, effects and costs stay.

    A pruned run can't be resumed or branched from any more.
    """
    asyncio.run(_prune(runs or [], older_than, dry_run, as_json))


async def _prune(runs: list[str], older_than: float, dry_run: bool, as_json: bool) -> None:
    from scripts.cli.output import put_facts, put_json
    from scripts.pruning import prune_runs
    from scripts.registers import open_registers

    async with open_registers() as registers:
        facts = await prune_runs(registers, runs, older_than_days=older_than, dry_run=dry_run)
    put_json(facts) if as_json else put_facts(facts.model_dump(exclude_none=True))
