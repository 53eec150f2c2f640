"""devfix diff: what differs between two steps, or two runs."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from typing import Annotated, Any, Final

import typer

from scripts.cli.options import Json

_WIDTH: Final = 200
_BEFORE: Final = 40
"""How much of what long sides have in common is shown before they differ."""


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
            for line in changed(name, change["from"], change["to"]):
                put(line)
    put_diff(found["files"])


def changed(name: str, old: Any, new: Any) -> Iterator[str]:
    """A line for each value that differs; of long ones, the part in which they do."""
    from scripts.cli.output import one_line

    if isinstance(old, dict) and isinstance(new, dict):
        for key in dict.fromkeys([*old, *new]):
            if old.get(key) != new.get(key):
                yield from changed(f"{name}.{key}", old.get(key), new.get(key))
        return
    sides = [one_line(old), one_line(new)]
    alike = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(*sides, strict=False)))
    begin = max(0, alike - _BEFORE) if max(map(len, sides)) > _WIDTH else 0
    shown = [f"{'…' if begin else ''}{side[begin : begin + _WIDTH]}" for side in sides]
    yield f"{name}: {shown[0]} → {shown[1]}"
