"""devfix worker: go on with queued runs in the background."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer


def worker(
    concurrency: Annotated[int, typer.Option(metavar="N", min=1, help="Runs that are advanced side by side.")] = 2,
) -> int:
    """Go on with queued and answered runs, and take over those whose process is gone, until a signal ends it.

    Ctrl-C or SIGTERM puts the runs down at their next saved step, a second one at once; another worker goes on with
    them. As many workers as you like share one database, on one machine or on several.
    """
    return asyncio.run(_work(concurrency))


async def _work(concurrency: int) -> int:
    import logging

    from scripts.application import application
    from scripts.cli.output import say
    from scripts.signals import Signals
    from scripts.worker import Worker

    # What procrastinate logs of a database that went away, with traces, the worker tells in a line.
    logging.getLogger("procrastinate").setLevel(logging.CRITICAL)
    async with application(label="worker") as opened:
        serving = Worker(opened, concurrency=concurrency, tell=say)
        with Signals().calling(serving.stop, serving.stop_at_once):
            await serving.run()
    return 0
