"""devfix diff: what differs between two steps, or two runs."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from scripts.cli.options import Json


def diff(
    given: Annotated[
        list[str], typer.Argument(metavar="RUN STEP STEP | RUN[@STEP] RUN[@STEP]", help="Two steps, or two runs.")
    ],
    as_json: Json = False,
) -> None:
    """Compare two steps of a run, or two runs (each at its newest step, or at RUN@STEP): state and files."""
    asyncio.run(_diff(given, as_json))


async def _diff(given: list[str], as_json: bool) -> None:
    from scripts.application import application
    from scripts.cli.output import one_line, put, put_diff, put_json
    from scripts.comparing import difference, sides

    async with application() as opened:
        old, new = await sides(opened, given)
        found = await difference(opened, old, new)
    if as_json:
        put_json(found)
        return
    put(f"from {old}\nto   {new}")
    for name, change in found["state"].items():
        if "added" in change:
            put(f"{name}: {len(change['added'])} added, {len(change['removed'])} removed")
            for sign, records in (("-", change["removed"]), ("+", change["added"])):
                for record in records:
                    put(f"  {sign} {one_line(record)[:200]}")
        else:
            put(f"{name}: {one_line(change['from'])[:200]} → {one_line(change['to'])[:200]}")
    put_diff(found["files"])
