"""Looking for an effect on the other side, which may still be at it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from state.errors import DevfixError
from tools.registry import Found

_PAUSE_SECONDS = 0.2
_LONGEST_SECONDS = 2.0


async def found_within(seconds: float, look: Callable[[], Awaitable[Found]]) -> Found:
    """What `look` finds, looking again until then; None where it is not there even at the end.

    Raises the DevfixError of the last look.
    """
    until = time.monotonic() + seconds
    pause = _PAUSE_SECONDS
    while True:
        last = time.monotonic() >= until
        try:
            if (found := await look()) is not None or last:
                return found
        except DevfixError:
            if last:
                raise
        await asyncio.sleep(min(pause, max(until - time.monotonic(), 0)))
        pause = min(pause * 2, _LONGEST_SECONDS)
