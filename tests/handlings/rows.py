"""Rows of the fault campaign on the sources in the current folder: `python -m tests.handlings.rows ROW...`.

First a run in which nothing goes wrong, for what is taken out must not break everything. Each outcome is a line of
JSON.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import Sequence
from dataclasses import replace

from scripts.bench.crash.campaign import own_server
from scripts.bench.faults import campaign
from scripts.bench.faults.blows import Blows
from scripts.bench.faults.campaign import Trial, World
from scripts.bench.faults.figures import Outcome
from scripts.bench.faults.table import DONE, POST, TABLE, Row
from scripts.bootstrap import build
from state.settings import Settings

END_SECONDS = 20.0
STEP_LIMIT = 100
"""A run without its handling may go on for ever."""
SEED = 1
MOST_TOLD = 200
CONTROL = Row(name="nothing goes wrong", group="model", says=[POST], ends=DONE, asks=1)


def bounded(row: Row) -> Row:
    """The row, of which no run goes on for ever."""
    return replace(row, limits={"step_limit": STEP_LIMIT, **row.limits})


async def run(names: Sequence[str]) -> None:
    """Print how a run of each of these rows ends, the control before them. SIGTERM ends it, and its server."""
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    campaign._quiet()
    rows = [row for row in TABLE if row.name in names]
    async with own_server() as server:
        world = World(folder=server.folder, url=server.url, blows=Blows(server.url, server.home))
        application = build(Settings(database_url=server.url, home=server.folder / "home"), label="bench")
        await application.services.open()
        try:
            _say(await Trial(world=world, row=CONTROL, seed=SEED, end_seconds=END_SECONDS).outcome())
            trials = [Trial(world=world, row=bounded(row), seed=SEED, end_seconds=END_SECONDS) for row in rows]
            for outcome in await campaign.all_of(trials, tell=lambda _: None):
                _say(outcome)
        finally:
            await application.services.close()


def _say(outcome: Outcome) -> None:
    told = "" if outcome.right else str(outcome).partition(f"(seed {SEED}): ")[2].replace("\n", " ")[:MOST_TOLD]
    print(json.dumps({"row": outcome.row, "wrong": told}), flush=True)


if __name__ == "__main__":
    asyncio.run(run(sys.argv[1:]))
