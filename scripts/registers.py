"""The registers alone, for commands that only look: no graph, no model, no tools, so they answer at once."""

from __future__ import annotations

import getpass
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from state.database import Database
from state.queue import Queue
from state.runs import PostgresRuns
from state.settings import Settings, read_settings
from state.steps import Steps


@dataclass(frozen=True, kw_only=True)
class Registers:
    """Which runs there are, and their steps."""

    settings: Settings
    database: Database
    runs: PostgresRuns
    steps: Steps


@asynccontextmanager
async def open_registers() -> AsyncIterator[Registers]:
    """The registers, closed at the end. Raises DatabaseUnavailable, and Refused for settings that do not fit."""
    settings = read_settings()
    database = Database(settings)
    queue = Queue(database=database, lease_seconds=settings.lease_seconds)
    runs = PostgresRuns(database=database, queue=queue, lease_seconds=settings.lease_seconds)
    try:
        yield Registers(settings=settings, database=database, runs=runs, steps=Steps(database=database))
    finally:
        await database.close()


def person() -> str:
    """Who sits at this terminal, as the records name them."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return "somebody"
