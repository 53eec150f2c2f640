"""A launched child: how its set-up is awaited, its limits are set, and its whole tree is ended."""

from __future__ import annotations

import asyncio
import json
import os
from abc import ABC, abstractmethod
from collections.abc import Coroutine, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from state.errors import SandboxUnavailable
from tools.sandbox import bounds
from tools.sandbox.pipes import End, read_pipe
from tools.sandbox.waiting import finish

if TYPE_CHECKING:
    from tools.sandbox.model import Limits
    from tools.workspace import Workspace

GRACE = 2.0
"""Seconds that the last words of a launcher or a command may take after the tree is dead."""
_SETUP_SECONDS = 30.0


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
    """What the child reads from and writes to."""

    stdin: End
    stdout: End
    stderr: End

    def close(self) -> None:
        for end in (self.stdin, self.stdout, self.stderr):
            end.close()


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
            rest = await asyncio.wait_for(self._status.read(), GRACE)
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
