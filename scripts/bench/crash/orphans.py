"""What killed processes leave behind: processes that nobody waits for."""

from __future__ import annotations

import ctypes
import os
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

LEFT_AFTER_SECONDS = 2.0
_SUBREAPER = 36
_SERVER = "postgres"
"""Outlives whoever starts it, on purpose."""


def adopt_orphans() -> None:
    """What a killed process leaves behind becomes a child of this one, so that none is overlooked. Linux only."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)


def children() -> set[int]:
    """Processes of which this one is the parent."""
    return set(_children(os.getpid()))


def left_processes(known: set[int] | frozenset[int] = frozenset()) -> list[str]:
    """Other children of this process that live two seconds after all that it started has ended, by their commands."""
    deadline = time.monotonic() + LEFT_AFTER_SECONDS
    while (found := [pid for pid in children() - known if not _reaped(pid)]) and time.monotonic() < deadline:
        time.sleep(0.1)
    return [_command(pid) for pid in found]


def _reaped(pid: int) -> bool:
    with suppress(ChildProcessError):
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    return False


def _command(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()[:200]
    return str(pid)


def _children(parent: int) -> Iterator[int]:
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            head, _, fields = entry.read_text().rpartition(")")
            if int(fields.split()[1]) == parent and not head.endswith(f"({_SERVER}"):
                yield int(entry.parent.name)
