"""The whole application for one command, closed at its end."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from scripts.bootstrap import Application, build
from scripts.cli.output import say
from state.settings import Settings, unknown_variables


@asynccontextmanager
async def application(settings: Settings | None = None, *, label: str = "command line") -> AsyncIterator[Application]:
    """Opens nothing by itself, and tells of variables that look like settings. Raises Refused for settings that do not
    fit."""
    # What the pool logs of a database that went away, the command tells in a sentence.
    logging.getLogger("psycopg.pool").setLevel(logging.CRITICAL)
    made = build(settings, label=label)
    for name in unknown_variables(made.settings):
        say(f"devfix: {name} is no setting of DevFix; nothing was done with it")
    try:
        yield made
    finally:
        await made.services.close()
