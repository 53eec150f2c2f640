"""The whole application for one command, closed at its end."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from scripts.bootstrap import Application, build
from state.settings import Settings


@asynccontextmanager
async def application(settings: Settings | None = None, *, label: str = "command line") -> AsyncIterator[Application]:
    """Opens nothing by itself. Raises Refused for settings that do not fit."""
    made = build(settings, label=label)
    try:
        yield made
    finally:
        await made.services.close()
