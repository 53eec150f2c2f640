"""Signals that ask a process to put its run down: Ctrl-C, SIGTERM, and a terminal that closes."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

ASKING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


_AT_ONCE = b"devfix: ended at once by a second signal; all saved steps are kept: `devfix runs`, `devfix resume RUN`\n"


class Signals:
    """The first signal stops what runs, so that the attempt settles; a second one ends the process as it is."""

    def __init__(self) -> None:
        self.received: signal.Signals | None = None

    @property
    def exit_code(self) -> int:
        """As shells write it: 130 for Ctrl-C, 143 for SIGTERM, 129 for a terminal that closed."""
        return 128 + (self.received or signal.SIGINT)

    def stopping(self, task: asyncio.Task[Any]) -> AbstractContextManager[None]:
        """While the body runs, the first signal stops the task."""
        return self.calling(task.cancel)

    @contextmanager
    def calling(self, *reactions: Callable[[], object]) -> Iterator[None]:
        """While the body runs, each signal calls the next of these; one more ends the process as it is.

        A signal that the process was started to ignore (`nohup`, `&`) stays ignored.
        """
        loop = asyncio.get_running_loop()
        left = iter(reactions)
        taken = [each for each in ASKING if signal.getsignal(each) is not signal.SIG_IGN]
        for each in taken:
            loop.add_signal_handler(each, self._take, each, left)
        try:
            yield
        finally:
            for each in taken:
                loop.remove_signal_handler(each)

    def _take(self, received: signal.Signals, left: Iterator[Callable[[], object]]) -> None:
        reaction = next(left, None)
        if reaction is None:
            os.write(2, _AT_ONCE)
            os._exit(self.exit_code)
        self.received = self.received or received
        reaction()


@contextmanager
def interruptible() -> Iterator[None]:
    """Ctrl-C raises KeyboardInterrupt in the body, which blocks: an event loop's own handler would only take note."""
    former = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, former)
