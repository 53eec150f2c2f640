"""`devfix worker` as a process of its own, each on a wire of its own to the database."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack, suppress
from pathlib import Path

from scripts.bench.commands import PROGRAM
from scripts.bench.crash.wire import DatabaseWire, Watch

_PASSING = ("procrastinate_", "update runs.heartbeat_at")
"""What a worker writes by the clock, whatever its runs do."""

_READY = "goes on with runs"


def passing(place: str) -> bool:
    """Whether a commit is none of a run's."""
    return all(any(word in each for word in _PASSING) for each in place.split(", "))


class Worker:
    """One process, from its start to its death."""

    def __init__(
        self, process: subprocess.Popen[bytes], log: Path, database: DatabaseWire, wire: AsyncExitStack
    ) -> None:
        self.process = process
        self.frozen = False
        self._log = log
        self._database = database
        self._wire = wire

    @classmethod
    async def start(cls, folder: Path, environment: Mapping[str, str], url: str, watch: Watch) -> Worker:
        """What it says goes to a file of its own in the folder."""
        stack = AsyncExitStack()
        wire = DatabaseWire(url, watch, ignored=passing)
        await stack.enter_async_context(wire.open())
        said = folder / f"worker-{wire.port}-{time.monotonic_ns()}.log"
        with said.open("wb") as log:
            process = subprocess.Popen(  # noqa: ASYNC220 - it only starts
                [*PROGRAM, "worker", "--concurrency", "1"],
                cwd=folder,
                env={**environment, "DEVFIX_DATABASE_URL": wire.url},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        wire.who = process.pid
        return cls(process, said, wire, stack)

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    @property
    def ready(self) -> bool:
        """Whether it goes on with runs."""
        return self.alive and not self.frozen and _READY in self.said

    @property
    def said(self) -> str:
        return self._log.read_text(errors="replace")

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def freeze(self) -> None:
        self.frozen = True
        self.process.send_signal(signal.SIGSTOP)

    async def cut(self) -> None:
        """All its connections to the database."""
        await self._database.cut()

    def thaw(self) -> None:
        """One that was ended while it was frozen stays as it is."""
        self.frozen = False
        self.process.send_signal(signal.SIGCONT)

    async def close(self) -> None:
        self.kill()
        await self._wire.aclose()


def has_socket(pid: int, port: int) -> bool:
    """Whether the process has a connection that goes out from this port of loopback. Linux only."""
    wanted = _inode(port)
    with suppress(OSError):
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                if wanted and os.readlink(descriptor) == f"socket:[{wanted}]":
                    return True
    return False


def _inode(port: int) -> str | None:
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if int(fields[1].rpartition(":")[2], 16) == port and fields[9] != "0":
            return fields[9]
    return None
