"""Signals that ask a process to put its run down: Ctrl-C, SIGTERM, and a terminal that closes."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

ASKING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Signals:
    """The first signal stops what runs, so that the attempt settles; a second one ends the process as it is."""

    def __init__(self) -> None:
        self.received: signal.Signals | None = None

    @property
    def exit_code(self) -> int:
        """As shells write it: 130 for Ctrl-C, 143 for SIGTERM, 129 for a terminal that closed."""
        return 128 + (self.received or signal.SIGINT)

    @contextmanager
    def stopping(self, task: asyncio.Task[Any]) -> Iterator[None]:
        """While the body runs. A signal that the process was started to ignore (`nohup`, `&`) stays ignored."""
        loop = asyncio.get_running_loop()
        taken = [each for each in ASKING if signal.getsignal(each) is not signal.SIG_IGN]
        for each in taken:
            loop.add_signal_handler(each, self._take, each, task)
        try:
            yield
        finally:
            for each in taken:
                loop.remove_signal_handler(each)

    def _take(self, received: signal.Signals, task: asyncio.Task[Any]) -> None:
        if self.received is not None:
            os._exit(self.exit_code)
        self.received = received
        task.cancel()


@contextmanager
def interruptible() -> Iterator[None]:
    """Ctrl-C raises KeyboardInterrupt in the body, which blocks: an event loop's own handler would only take note."""
    former = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, former)
