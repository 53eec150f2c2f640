"""The whole application for one command, closed at its end."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from scripts.bootstrap import Application, build
from scripts.registers import read_settings


@asynccontextmanager
async def application(label: str = "command line") -> AsyncIterator[Application]:
    """Opens nothing by itself. Raises Refused for settings that do not fit."""
    made = build(read_settings(), label=label)
    try:
        yield made
    finally:
        await made.services.close()
