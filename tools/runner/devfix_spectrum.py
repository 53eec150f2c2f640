"""Which of the project's lines a test runs.

Runs inside the sandbox under the user's interpreter: Python 3.8 or newer, standard library only.
"""

from __future__ import annotations

import sys
import threading
import time
from types import CodeType, FrameType
from typing import Any

from devfix_results import Root

TRACED_SECONDS = 0.3
"""A line that matters is run early or again and again; a loop that never ends must not be traced for ever."""

_CHECK_EVERY = 512


class Spectrum:
    """Records lines between `start` and `stop`."""

    def __init__(self, root: Root) -> None:
        self._root = root
        self._sources: dict[CodeType, str | None] = {}
        self._lines: set[tuple[str, int]] = set()
        self._until = 0.0
        self._events = 0

    def start(self) -> None:
        self._lines = set()
        self._events = 0
        self._until = time.monotonic() + TRACED_SECONDS
        threading.settrace(self._enter)
        sys.settrace(self._enter)

    def stop(self) -> dict[str, list[int]]:
        sys.settrace(None)
        threading.settrace(None)
        found: dict[str, list[int]] = {}
        for path, number in sorted(self._lines):
            found.setdefault(path, []).append(number)
        return found

    def _enter(self, frame: FrameType, event: str, arg: Any) -> Any:
        code = frame.f_code
        try:
            source = self._sources[code]
        except KeyError:
            source = self._sources[code] = self._root.source(code.co_filename)
        return self._line if source is not None and self._until else None

    def _line(self, frame: FrameType, event: str, arg: Any) -> Any:
        if event == "line":
            source = self._sources.get(frame.f_code)
            if source is not None:
                self._lines.add((source, frame.f_lineno))
            self._events += 1
            if self._events % _CHECK_EVERY == 0 and time.monotonic() > self._until:
                self._until = 0.0
                sys.settrace(None)
                return None
        return self._line if self._until else None
