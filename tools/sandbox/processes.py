"""Looking at and ending processes through /proc; used by both levels."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress

_PAGE = os.sysconf("SC_PAGE_SIZE")


def descendants(pid: int) -> Iterator[int]:
    """The process and everything below it, as far as it can be seen just now."""
    yield pid
    for child in _children(pid):
        yield from descendants(child)


def _children(pid: int) -> list[int]:
    found: list[int] = []
    with suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children") as file:
                found.extend(map(int, file.read().split()))
    return found


def own_memory(pid: int) -> int:
    """Bytes that the process holds for itself: resident, without what it shares as files. 0 when it is gone."""
    with suppress(OSError, IndexError), open(f"/proc/{pid}/statm") as file:
        fields = file.read().split()
        return (int(fields[1]) - int(fields[2])) * _PAGE
    return 0


def holders(mark: str) -> list[int]:
    """The processes whose environment holds `mark`, wherever they have gone in the tree."""
    wanted, found = mark.encode(), []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError), open(f"/proc/{name}/environ", "rb") as file:
            if wanted in file.read():
                found.append(int(name))
    return found


def forsaken(launcher: str) -> list[int]:
    """First processes of process namespaces that were launched by this program, and whose launcher is gone."""
    own = len(_numbers("self"))
    return [
        int(name)
        for name in filter(str.isdigit, os.listdir("/proc"))
        if _program(name) == launcher
        and len(numbers := _numbers(name)) > own
        and numbers[-1] == 1
        and _program(_status(name).get("PPid", "")) != launcher
    ]


def _program(pid: str) -> str:
    with suppress(OSError), open(f"/proc/{pid}/cmdline", "rb") as file:
        return os.fsdecode(file.read().partition(b"\0")[0])
    return ""


def _numbers(pid: str) -> list[int]:
    """The process's numbers in the namespaces from ours inwards."""
    return [int(each) for each in _status(pid).get("NSpid", "").split()]


def _status(pid: str) -> dict[str, str]:
    with suppress(OSError), open(f"/proc/{pid}/status") as file:
        return {name: value.strip() for name, _, value in (line.partition(":") for line in file)}
    return {}


def exterminate(mark: str, *, seconds: float = 5.0) -> None:
    """Kill the processes whose environment holds `mark`. All are frozen first, so that none forks away."""
    deadline = time.monotonic() + seconds
    frozen: set[int] = set()
    while time.monotonic() < deadline:
        found = set(holders(mark))
        if not found:
            return
        moving = found - frozen
        for pid in moving or found:
            with suppress(OSError):
                os.kill(pid, signal.SIGSTOP if moving else signal.SIGKILL)
        frozen = found if moving else set()


async def gone(pidfd: int) -> None:
    """Wait until the process of this pidfd has ended."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()
    loop.add_reader(pidfd, _tell, ended)
    try:
        await ended
    finally:
        loop.remove_reader(pidfd)


def _tell(ended: asyncio.Future[None]) -> None:
    if not ended.done():
        ended.set_result(None)
