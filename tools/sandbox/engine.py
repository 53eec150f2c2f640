"""Running a child within its limits: what both sandbox levels share.

A level only knows how to launch a child and how to end its whole tree. Here is the rest: the view, the output,
the clock, the watch, and the order in which things end, also when the caller is cancelled.
"""

from __future__ import annotations

import asyncio
import time
from abc import abstractmethod
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from state.errors import SandboxUnavailable
from tools.sandbox.capture import Capture
from tools.sandbox.child import GRACE, Child, Order, Streams, not_started
from tools.sandbox.model import (
    NO_MOUNTS,
    NOTHING,
    Completed,
    Limits,
    ProcessEnded,
    Sandbox,
    SandboxProcess,
)
from tools.sandbox.pipes import LINE_LIMIT, given, reading, writing
from tools.sandbox.waiting import finish, made
from tools.sandbox.watch import exceeded

if TYPE_CHECKING:
    from tools.sandbox.view import View
    from tools.workspace import Workspace


@dataclass
class _Guard:
    """Holds a child to its limits, and sees to it that its tree is dead when the guard ends."""

    child: Child
    view: View
    limits: Limits
    reason: str | None = None
    timed_out: bool = False
    started: float = field(default_factory=time.monotonic)

    async def hold(self) -> None:
        ended = asyncio.ensure_future(self.child.ended())
        watch = asyncio.ensure_future(exceeded(self.child, self.view, self.limits))
        try:
            done, _ = await asyncio.wait(
                {ended, watch}, timeout=self.limits.timeout, return_when=asyncio.FIRST_COMPLETED
            )
            if ended not in done:
                self.timed_out = watch not in done
                self.reason = watch.result() if watch in done else self._late()
        finally:
            watch.cancel()
            ended.cancel()
            await finish(self.child.end())
        if self.reason is None:
            await self.child.report()

    def _late(self) -> str:
        return f"it ran longer than {self.limits.timeout:g} s and was stopped"


class Engine(Sandbox):
    """A sandbox, given a way to see the workspace and a way to launch a child."""

    @abstractmethod
    async def view(self, order: Order) -> View:
        """Prepare what the command sees."""

    @abstractmethod
    async def launch(self, order: Order, view: View, streams: Streams) -> Child:
        """Start the child; what was started is ended when this raises. Never cancelled half-way."""

    def translated(self, text: bytes, order: Order, view: View) -> bytes:
        """What the child wrote, with the paths in it as `path` gives them."""
        return text

    async def run(
        self,
        command: Sequence[str],
        *,
        workspace: Workspace,
        limits: Limits,
        env: Mapping[str, str] = NOTHING,
        stdin: bytes = b"",
        keep: bool = False,
        mounts: Mapping[Path, Path] = NO_MOUNTS,
    ) -> Completed:
        order = _order(command, workspace=workspace, limits=limits, env=env, mounts=mounts, keep=keep)
        async with (
            self._viewed(order) as view,
            given(stdin) as source,
            reading() as (reader, output),
            self._guarded(order, view, Streams(stdin=source, stdout=output, stderr=output)) as guard,
        ):
            capture = Capture(limits.output_bytes)
            drain = asyncio.ensure_future(_drain(reader, capture))
            try:
                await guard.hold()
                await asyncio.wait({drain}, timeout=GRACE)
            finally:
                drain.cancel()
            return _completed(guard, self.translated(capture.data, order, view), truncated=capture.truncated)

    @asynccontextmanager
    async def start(
        self,
        command: Sequence[str],
        *,
        workspace: Workspace,
        limits: Limits,
        env: Mapping[str, str] = NOTHING,
        mounts: Mapping[Path, Path] = NO_MOUNTS,
    ) -> AsyncIterator[SandboxProcess]:
        order = _order(command, workspace=workspace, limits=limits, env=env, mounts=mounts)
        async with (
            self._viewed(order) as view,
            writing() as (questions, writer),
            reading() as (answers, stdout),
            reading() as (complaints, stderr),
            self._guarded(order, view, Streams(stdin=questions, stdout=stdout, stderr=stderr)) as guard,
        ):
            capture = Capture(limits.output_bytes)
            drain = asyncio.ensure_future(_drain(complaints, capture))
            hold = asyncio.ensure_future(guard.hold())
            channel = _Channel(answers, writer, capture, lambda text: self.translated(text, order, view))
            try:
                yield _LongLived(guard=guard, hold=hold, channel=channel)
            finally:
                hold.cancel()
                await finish(_settled(guard.child, hold, drain))

    @asynccontextmanager
    async def _viewed(self, order: Order) -> AsyncIterator[View]:
        try:
            view = await self.view(order)
        except OSError as error:
            raise SandboxUnavailable(f"no view of the workspace could be made, so nothing was run: {error}") from error
        try:
            yield view
        finally:
            await finish(asyncio.to_thread(view.close))

    @asynccontextmanager
    async def _guarded(self, order: Order, view: View, streams: Streams) -> AsyncIterator[_Guard]:
        """Launch; afterwards this process holds no end of the child's streams."""
        try:
            child = await made(self.launch(order, view, streams), undo=Child.dismiss)
        except OSError as error:
            raise SandboxUnavailable(f"the sandbox could not be started, so nothing was run: {error}") from error
        finally:
            streams.close()
        try:
            yield _Guard(child, view, order.limits)
        finally:
            await finish(child.dismiss())


def _order(command: Sequence[str], **rest: Any) -> Order:
    if not command or any("\0" in each for each in command):
        raise SandboxUnavailable("the command is empty or holds a NUL character; nothing was run")
    return Order(command=tuple(command), **rest)


def _completed(guard: _Guard, output: bytes, *, truncated: bool) -> Completed:
    text, code, reason = output.decode(errors="replace"), guard.child.exit_code, guard.reason
    if reason is None and code is None:
        code, reason = not_started(text, guard.child.process.returncode)
    return Completed(
        exit_code=code,
        output=text,
        timed_out=guard.timed_out,
        truncated=truncated,
        duration=time.monotonic() - guard.started,
        reason=reason,
    )


class _Channel(NamedTuple):
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    complaints: Capture
    translate: Callable[[bytes], bytes]


@dataclass(kw_only=True)
class _LongLived(SandboxProcess):
    guard: _Guard
    hold: asyncio.Future[None]
    channel: _Channel

    async def write_line(self, line: bytes) -> None:
        try:
            self.channel.writer.write(line + b"\n")
            await self.channel.writer.drain()
        except OSError as error:
            raise await self._ended() from error

    async def read_line(self, timeout: float) -> bytes:
        try:
            line = await asyncio.wait_for(self.channel.reader.readline(), timeout)
        except ValueError as error:
            raise ProcessEnded(f"the child wrote a line of more than {LINE_LIMIT:,} bytes") from error
        if not line.endswith(b"\n"):
            raise await self._ended()
        return self.channel.translate(line[:-1])

    async def _ended(self) -> ProcessEnded:
        await asyncio.wait({self.hold}, timeout=GRACE)
        code = self.guard.child.exit_code
        if self.guard.reason is not None:
            return ProcessEnded(self.guard.reason)
        if code is None and self.hold.done():
            code, reason = not_started(self.output, self.guard.child.process.returncode)
            return ProcessEnded(reason)
        return ProcessEnded(f"the child closed its side (exit code {code})")

    @property
    def output(self) -> str:
        return self.channel.translate(self.channel.complaints.data).decode(errors="replace")

    @property
    def reason(self) -> str | None:
        return self.guard.reason


async def _drain(reader: asyncio.StreamReader, capture: Capture) -> None:
    while data := await reader.read(1 << 16):
        capture.feed(data)


async def _settled(child: Child, hold: asyncio.Future[None], drain: asyncio.Future[None]) -> None:
    """Wait until nothing is left of a child whose guard was called off, and raise what its tasks met with."""
    await child.end()
    await asyncio.wait({hold, drain}, timeout=GRACE)
    drain.cancel()
    for result in await asyncio.gather(hold, drain, return_exceptions=True):
        if isinstance(result, Exception):
            raise result
