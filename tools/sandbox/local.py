"""Level 1: limits, a clean environment, and a tree that is ended whole. No wall: only with `--unsafe-local`.

The command reads what the user can read, writes where the user can write, and reaches the network. The view is
a copy at a path of its own, so a path that `path()` gave is rewritten in arguments and environment; imports
that lead to the original are redirected by the interpreter's hook, told by two environment variables.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import secrets
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from tools.sandbox.bubblewrap import PATH, resource_limits
from tools.sandbox.engine import Child, Engine, Order, Streams, finish, in_thread, read_pipe
from tools.sandbox.processes import descendants, holders
from tools.sandbox.view import View, copy, itself
from tools.workspace import DEPENDENCY_FOLDERS

if TYPE_CHECKING:
    from tools.workspace import Workspace

MARK = "DEVFIX_SANDBOX"
ORIGINAL = "DEVFIX_ORIGINAL"
WORKSPACE = "DEVFIX_WORKSPACE"
"""Where the original lies, and where the command's view of the workspace does; the hook reads them."""

_SUPERVISOR = Path(__file__).with_name("supervisor.py")
_POLITE_SECONDS = 0.5
_SWEEPS = 50


class Local(Engine):
    """The sandbox of level 1."""

    level = 1
    allow_network = True
    description = "resource limits only: no wall around files and network"

    def path(self, workspace: Workspace, relative: str = "") -> str:
        return os.fspath(workspace.root.resolve() / relative)

    async def view(self, order: Order) -> View:
        make = itself if order.keep else copy
        return await in_thread(lambda: make(order.workspace.root), undo=View.close)

    async def launch(self, order: Order, view: View, streams: Streams) -> Child:
        mark = secrets.token_hex(16)
        env = await asyncio.to_thread(_prepare, order, view, mark)
        status_here, status_there = os.pipe()
        limits = await asyncio.to_thread(_limits, order)
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                *("-I", "-S", _SUPERVISOR, str(status_there), str(os.getpid()), json.dumps(limits)),
                *(_moved(argument, order, view) for argument in order.command),
                stdin=streams.stdin,
                stdout=streams.stdout,
                stderr=streams.stderr,
                env=env,
                cwd=view.lower,
                pass_fds=(status_there,),
                start_new_session=True,
            )
        except BaseException:
            os.close(status_here)
            raise
        finally:
            os.close(status_there)
        status, transport = await read_pipe(status_here)
        child = _Tree(process, status, transport, mark)
        try:
            await child.introduced()
        except BaseException:
            await finish(child.end())
            child.close()
            raise
        return child


def _prepare(order: Order, view: View, mark: str) -> dict[str, str]:
    """The command's environment; dependency folders are linked in, as level 3 mounts them."""
    for name in DEPENDENCY_FOLDERS:
        original, place = order.workspace.repository / name, view.lower / name
        if original.is_dir() and not os.path.lexists(place):
            place.symlink_to(original)
    for name in ("home", "tmp"):
        (view.scratch / name).mkdir()
    asked = {name: _moved(value, order, view) for name, value in order.env.items()}
    return {
        "HOME": str(view.scratch / "home"),
        "TMPDIR": str(view.scratch / "tmp"),
        "LANG": "C.UTF-8",
        "PATH": PATH,
        **asked,
        ORIGINAL: str(order.workspace.repository.resolve()),
        WORKSPACE: str(view.lower.resolve()),
        MARK: mark,
    }


def _moved(text: str, order: Order, view: View) -> str:
    return text.replace(str(order.workspace.root.resolve()), str(view.lower.resolve()))


def _limits(order: Order) -> dict[int, int]:
    """RLIMIT_NPROC counts everything that this user runs, so what runs now is added."""
    found = dict(resource_limits(order.limits))
    if resource.RLIMIT_NPROC in found:
        hard = resource.getrlimit(resource.RLIMIT_NPROC)[1]
        wanted = order.limits.processes + _threads_of(os.getuid())
        found[resource.RLIMIT_NPROC] = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    return found


def _threads_of(user: int) -> int:
    total = 0
    for name in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):
            if os.stat(f"/proc/{name}").st_uid == user:
                total += len(os.listdir(f"/proc/{name}/task"))
    return total


class _Tree(Child):
    """A tree below a supervisor; found again by a mark in the environment if the supervisor was killed."""

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        status: asyncio.StreamReader,
        transport: asyncio.ReadTransport,
        mark: str,
    ) -> None:
        super().__init__(process, status, transport)
        self._mark = f"{MARK}={mark}"

    def members(self) -> list[int]:
        return [pid for pid in descendants(self.process.pid) if pid != self.process.pid]

    async def end(self) -> None:
        with suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGTERM)
        with suppress(TimeoutError):
            await asyncio.wait_for(self.process.wait(), _POLITE_SECONDS)
        with suppress(ProcessLookupError):
            self.process.kill()
        await self.process.wait()
        for _ in range(_SWEEPS):
            if not await asyncio.to_thread(_kill_marked, self._mark):
                return
            await asyncio.sleep(0.01)


def _kill_marked(mark: str) -> int:
    found = holders(mark)
    for pid in found:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    return len(found)
