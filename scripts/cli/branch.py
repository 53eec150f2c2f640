"""devfix branch: a new run from an old step."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from scripts.cli.options import Json, Run
from state.ids import short


def branch(
    run: Run,
    at: Annotated[int, typer.Option("--at", metavar="STEP", min=1, help="The step to begin from.")],
    message: Annotated[str | None, typer.Option(metavar="TEXT", help="A word to the model at this point.")] = None,
    as_json: Json = False,
) -> None:
    """Make a new run from a step of another: state and files as they were. The other run is not touched.

    Nothing runs yet: `devfix resume` goes on with it. Calls that need an approval are asked again.
    """
    asyncio.run(_branch(run, at, message, as_json))


async def _branch(prefix: str, at: int, message: str | None, as_json: bool) -> None:
    from scripts.application import application
    from scripts.branching import branch
    from scripts.cli.output import put, put_json, say

    async with application() as opened:
        parent = await opened.services.runs.find(prefix)
        made = await branch(opened, parent, await opened.steps.get(parent.run_id, at), message=message)
    if as_json:
        put_json(made.model_dump(include={"run_id", "parent", "branched_at", "status", "reason", "step", "goal"}))
    else:
        put(made.run_id)
    name = short(made.run_id)
    say(
        f"run {name} is a branch of {short(parent.run_id)} at step {at}; no worker takes it by itself: "
        f"`devfix resume {name}` goes on here, with --detach in a worker"
    )
