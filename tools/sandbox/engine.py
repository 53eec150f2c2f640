"""Running a child within its limits: what both sandbox levels share.

A level only knows how to launch a child and how to end its whole tree. Here is the rest: the view, the output,
the clock, the watch, and the order in which things end, also when the caller is cancelled.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from state.errors import SandboxUnavailable
from tools.sandbox import bounds
from tools.sandbox.capture import Capture
from tools.sandbox.model import (
    NO_MOUNTS,
    NOTHING,
    Completed,
    Limits,
    ProcessEnded,
    Sandbox,
    SandboxProcess,
)
from tools.sandbox.watch import exceeded

if TYPE_CHECKING:
    from tools.sandbox.view import View
    from tools.workspace import Workspace

T = TypeVar("T")

_LINE_LIMIT = 64 * 1024 * 1024
"""Bytes; one line of a long-lived child's answer."""
_SETUP_SECONDS = 30.0
_GRACE = 2.0
"""Seconds that the last output may take after the tree is dead."""


@dataclass(frozen=True, kw_only=True)
class Order:
    """One command, as it was asked for."""

    command: tuple[str, ...]
    workspace: Workspace
    limits: Limits
    env: Mapping[str, str]
    mounts: Mapping[Path, Path]
    keep: bool = False


@dataclass(frozen=True, kw_only=True)
class Streams:
    """The child's three file descriptors; the launcher does not close them."""

    stdin: int
    stdout: int
    stderr: int


class Child(ABC):
    """A launched child and the pipe on which its launcher tells the first process and the exit code."""

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        status: asyncio.StreamReader,
        transport: asyncio.ReadTransport,
    ) -> None:
        self.process = process
        self._status = status
        self._transport = transport
        self._group: Path | None = None
        self._ending: asyncio.Future[None] | None = None
        self.leader: int | None = None
        """The first process of the tree, as the host sees it."""
        self.exit_code: int | None = None
        """None until it has ended by itself after a set-up that worked."""

    async def introduced(self) -> None:
        """Wait for the first process's number. Without one, the set-up failed."""
        try:
            line = await asyncio.wait_for(self._status.readline(), _SETUP_SECONDS)
        except TimeoutError as error:
            sentence = f"the sandbox did not start within {_SETUP_SECONDS:g} s, so nothing was run"
            raise SandboxUnavailable(sentence) from error
        if line:
            self.leader = json.loads(line)["child-pid"]

    async def ended(self) -> None:
        """Wait until the launcher has ended."""
        await self.process.wait()

    async def report(self) -> None:
        """Read the exit code that the launcher left, when there is one."""
        with suppress(TimeoutError):
            rest = await asyncio.wait_for(self._status.read(), _GRACE)
            said = {key: value for line in rest.splitlines() for key, value in json.loads(line).items()}
            self.exit_code = None if "not-started" in said else said.get("exit-code")

    def bind(self, limits: Limits) -> None:
        """Set what the kernel holds by itself, while the first process waits."""
        if self.leader is not None:
            self._group = bounds.bind(self.leader, limits, running=self.running())

    def running(self) -> int:
        """What this user runs besides, where that counts."""
        return 0

    async def end(self) -> None:
        """Kill the whole tree and return when it is gone; nothing happens when it already is."""
        if self._ending is None:
            self._ending = asyncio.ensure_future(self._end())
        await asyncio.shield(self._ending)

    async def dismiss(self) -> None:
        """End the tree and give back what was held for it."""
        await self.end()
        self._transport.close()
        await asyncio.to_thread(bounds.release, self._group)

    @abstractmethod
    async def _end(self) -> None: ...

    @abstractmethod
    def members(self) -> Iterator[int]:
        """The processes of the tree, as far as they are looked for."""


C = TypeVar("C", bound=Child)


class Spawn(Protocol):
    """Starts a launcher that tells its first process on `status`, then waits for a byte on `go`."""

    def __call__(self, *, status: int, go: int) -> Coroutine[Any, Any, asyncio.subprocess.Process]: ...


async def launched(spawn: Spawn, kind: type[C], limits: Limits) -> C:
    """Spawn, wait for the first process, set its limits, let it go. Raises what `spawn` raises."""
    (status_here, status_there), (go_there, go_here) = os.pipe(), os.pipe()
    try:
        process = await spawn(status=status_there, go=go_there)
    except BaseException:
        os.close(status_here)
        os.close(go_here)
        raise
    finally:
        os.close(status_there)
        os.close(go_there)
    child = kind(process, *await read_pipe(status_here))
    try:
        await child.introduced()
        await asyncio.to_thread(_let_go, child, limits, go_here)
    except BaseException:
        await finish(child.dismiss())
        raise
    finally:
        os.close(go_here)
    return child


def _let_go(child: Child, limits: Limits, go: int) -> None:
    child.bind(limits)
    with suppress(BrokenPipeError):
        os.write(go, b"\n")


async def finish(work: Coroutine[Any, Any, T]) -> T:
    """Await `work` to its end even when the caller is cancelled meanwhile; the cancellation follows then."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as error:
            if task.cancelled():
                raise
            cancelled = error
    if cancelled is not None:
        task.exception()
        raise cancelled
    return task.result()


async def made(work: Coroutine[Any, Any, T], *, undo: Callable[[T], Coroutine[Any, Any, None]]) -> T:
    """Make a thing that has to be given back; when the caller is cancelled meanwhile, it is made and undone."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await finish(_undone(task, undo))
        raise


async def _undone(task: asyncio.Future[T], undo: Callable[[T], Coroutine[Any, Any, None]]) -> None:
    await asyncio.wait({task})
    if not task.cancelled() and task.exception() is None:
        await undo(task.result())


async def in_thread(make: Callable[[], T], *, undo: Callable[[T], None]) -> T:
    """`made`, for what blocks."""
    return await made(asyncio.to_thread(make), undo=lambda thing: asyncio.to_thread(undo, thing))


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
        async with self._viewed(order) as view, _input(stdin) as given, _reading() as (reader, output):
            async with self._guarded(order, view, Streams(stdin=given, stdout=output, stderr=output)) as guard:
                capture = Capture(limits.output_bytes)
                drain = asyncio.ensure_future(_drain(reader, capture))
                try:
                    await guard.hold()
                    await asyncio.wait({drain}, timeout=_GRACE)
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
            _writing() as (given, writer),
            _reading() as (answers, stdout),
            _reading() as (complaints, stderr),
            self._guarded(order, view, Streams(stdin=given, stdout=stdout, stderr=stderr)) as guard,
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
            for stream in {streams.stdin, streams.stdout, streams.stderr}:
                os.close(stream)
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


def not_started(complaint: str, code: int | None) -> tuple[int | None, str]:
    """Why the launcher ended without an exit code: the command is not there, or the set-up failed.

    Raises:
        SandboxUnavailable: it was the set-up.
    """
    last = complaint.strip().rpartition("\n")[2]
    if last.startswith("bwrap: execvp "):
        return 127, f"the command can't be started: {last.removeprefix('bwrap: execvp ')}"
    if code == 127:
        return 127, f"the command can't be started: {last}"
    if last.startswith("bwrap: "):
        raise SandboxUnavailable(f"the sandbox could not be set up, so nothing was run: {last}{hint(last)}")
    return None, f"the sandbox was ended from outside (exit code {code})"


def hint(complaint: str) -> str:
    """What to do about the ways in which a system usually refuses a sandbox."""
    if "uid map" in complaint or "RTM_NEWADDR" in complaint:
        return (
            " (Ubuntu's AppArmor denies user namespaces to unknown programs: install the package"
            " bubblewrap together with an AppArmor profile that allows it `userns`)"
        )
    if "namespace" in complaint:
        return " (user namespaces are switched off here, or this is a container that denies them)"
    return ""


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
            raise ProcessEnded(f"the child wrote a line of more than {_LINE_LIMIT:,} bytes") from error
        if not line.endswith(b"\n"):
            raise await self._ended()
        return self.channel.translate(line[:-1])

    async def _ended(self) -> ProcessEnded:
        await asyncio.wait({self.hold}, timeout=_GRACE)
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
    await asyncio.wait({hold, drain}, timeout=_GRACE)
    drain.cancel()
    for result in await asyncio.gather(hold, drain, return_exceptions=True):
        if isinstance(result, Exception):
            raise result


@asynccontextmanager
async def _reading() -> AsyncIterator[tuple[asyncio.StreamReader, int]]:
    """A reader here, and the end that the child writes to."""
    here, there = os.pipe()
    reader, transport = await read_pipe(here)
    try:
        yield reader, there
    finally:
        transport.close()


async def read_pipe(descriptor: int) -> tuple[asyncio.StreamReader, asyncio.ReadTransport]:
    """Read a pipe without blocking; the transport owns the descriptor."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=_LINE_LIMIT)
    protocol = asyncio.StreamReaderProtocol(reader)
    transport, _ = await loop.connect_read_pipe(lambda: protocol, os.fdopen(descriptor, "rb", 0))
    return reader, transport


@asynccontextmanager
async def _writing() -> AsyncIterator[tuple[int, asyncio.StreamWriter]]:
    """The end that the child reads from, and a writer here."""
    there, here = os.pipe()
    loop = asyncio.get_running_loop()
    protocol = asyncio.StreamReaderProtocol(asyncio.StreamReader())
    transport, _ = await loop.connect_write_pipe(lambda: protocol, os.fdopen(here, "wb", 0))
    try:
        yield there, asyncio.StreamWriter(transport, protocol, None, loop)
    finally:
        if not transport.is_closing():
            transport.abort()


@asynccontextmanager
async def _input(data: bytes) -> AsyncIterator[int]:
    """The child's stdin as a file, so that it may read it or not."""
    yield await asyncio.to_thread(memory_file, data)


def memory_file(data: bytes) -> int:
    """A descriptor that reads `data` from its beginning."""
    descriptor = os.memfd_create("devfix", os.MFD_CLOEXEC)
    with os.fdopen(os.dup(descriptor), "wb") as file:
        file.write(data)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor
