"""Whoever begins runs, asks how they stand and answers them: a process beside the worker that nobody kills."""

from __future__ import annotations

import json
import sys
from collections.abc import Awaitable, Callable
from typing import Any, Protocol


class Desk(Protocol):
    """One system's client."""

    async def begin(self, order: int) -> None: ...

    async def standing(self, order: int) -> str:
        """running, waiting, completed, or the system's own word for another end."""

    async def approve(self, order: int) -> None: ...


async def serve(desk: Desk) -> None:
    """One line of JSON in, one out, until there are no more."""
    say("ready")
    for line in sys.stdin:
        asked = json.loads(line)
        say(json.dumps(await _answer(getattr(desk, asked["do"]), asked["order"])))


async def _answer(do: Callable[[int], Awaitable[Any]], order: int) -> dict[str, Any]:
    try:
        return {"answer": await do(order)}
    except Exception as error:  # noqa: BLE001 - told to whoever asked
        return {"error": f"{type(error).__name__}: {error}"}


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
