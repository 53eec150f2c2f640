"""A system's worker, which is struck, and its desk, which is not."""

from __future__ import annotations

import asyncio
import json
import subprocess
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from scripts.bench.crash.wire import DatabaseWire
from state.errors import DevfixError

ANSWER_SECONDS = 60.0


class PeerWorker:
    """One process, from its start to its death."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path, ready: str, wire: AsyncExitStack) -> None:
        self._process = process
        self._log = log
        self._ready = ready
        self._was_ready = False
        self._wire = wire

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    @property
    def ready(self) -> bool:
        self._was_ready = self._was_ready or self._ready in self.said
        return self.alive and self._was_ready

    @property
    def said(self) -> str:
        return self._log.read_text(errors="replace")

    def tell(self, fact: Mapping[str, Any]) -> None:
        """A line on its stdin; one that is dead hears nothing."""
        assert self._process.stdin is not None  # noqa: S101 - it is a pipe
        with suppress(OSError):
            self._process.stdin.write(json.dumps(fact).encode() + b"\n")
            self._process.stdin.flush()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    async def close(self) -> None:
        self.kill()
        with suppress(OSError):
            self._process.stdin.close()  # type: ignore[union-attr]  # it is a pipe
        await self._wire.aclose()


async def start_worker(
    folder: Path,
    command: Sequence[str],
    environment: Mapping[str, str],
    *,
    wire: DatabaseWire | None = None,
    variable: str = "DATABASE_URL",
    ready: str = "ready\n",
) -> PeerWorker:
    """`wire`: of its own, to the database that it finds in `variable`. `ready`: what it says once it can work."""
    stack = AsyncExitStack()
    if wire is not None:
        await stack.enter_async_context(wire.open())
        environment = {**environment, variable: wire.url}
    said = folder / f"worker-{time.monotonic_ns()}.log"
    with said.open("wb") as log:
        process = subprocess.Popen(  # noqa: ASYNC220 - it only starts
            command, cwd=folder, env=environment, stdin=subprocess.PIPE, stdout=log, stderr=log
        )
    if wire is not None:
        wire.who = process.pid
    return PeerWorker(process, said, ready, stack)


class Desk:
    """Asks a system's own client, in a process that lives as long as the comparison."""

    def __init__(self, process: asyncio.subprocess.Process, log: Path) -> None:
        self._process = process
        self._log = log

    async def ask(self, do: str, order: int) -> Any:
        """Raises DevfixError where there is no answer."""
        assert self._process.stdin is not None  # noqa: S101 - it is a pipe
        self._process.stdin.write(json.dumps({"do": do, "order": order}).encode() + b"\n")
        await self._process.stdin.drain()
        answer = json.loads(await self.line())
        if "error" in answer:
            raise DevfixError(f"{do} {order}: {answer['error']}")
        return answer["answer"]

    async def line(self) -> bytes:
        assert self._process.stdout is not None  # noqa: S101 - it is a pipe
        try:
            line = await asyncio.wait_for(self._process.stdout.readline(), ANSWER_SECONDS)
        except TimeoutError:
            line = b""
        if not line:
            raise DevfixError(f"no answer: {self._log.read_text(errors='replace').strip()[-500:]}")
        return line


@asynccontextmanager
async def open_desk(folder: Path, command: Sequence[str], environment: Mapping[str, str]) -> AsyncIterator[Desk]:
    """Raises DevfixError where it does not start."""
    said = folder / "desk.log"
    with said.open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *command,
            cwd=folder,
            env=environment,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
        )
    desk = Desk(process, said)
    try:
        await desk.line()  # that it is ready
        yield desk
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
