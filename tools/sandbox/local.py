"""Level 1: limits, a clean environment, and a tree that is ended whole. No wall: only with `--unsafe-local`.

The command reads what the user can read, writes where the user can write, and reaches the network. The view is
a copy at a path of its own, so a path that `path()` gave is rewritten in arguments and environment; imports
that lead to the original are redirected by the interpreter's hook, told by two environment variables.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from tools.sandbox import bounds
from tools.sandbox.bubblewrap import PATH
from tools.sandbox.child import Child, Order, Streams, launched
from tools.sandbox.engine import Engine
from tools.sandbox.processes import descendants, exterminate
from tools.sandbox.view import View, copy, itself
from tools.sandbox.waiting import in_thread
from tools.workspace import DEPENDENCY_FOLDERS

if TYPE_CHECKING:
    from tools.workspace import Workspace

MARK = "DEVFIX_SANDBOX"
ORIGINAL = "DEVFIX_ORIGINAL"
WORKSPACE = "DEVFIX_WORKSPACE"
"""Where the original lies, and where the command's view of the workspace does; the hook reads them."""

_SUPERVISOR = Path(__file__).with_name("supervisor.py")
_POLITE_SECONDS = 0.8


class Local(Engine):
    """The sandbox of level 1."""

    level = 1
    allow_network = True
    description = "resource limits only: no wall around files and network"

    def path(self, workspace: Workspace, relative: str = "") -> str:
        return os.fspath(workspace.root / relative)

    async def view(self, order: Order) -> View:
        make = itself if order.keep else copy
        return await in_thread(lambda: make(order.workspace.root), undo=View.close)

    def translated(self, text: bytes, order: Order, view: View) -> bytes:
        for seen in {view.lower, view.real}:
            text = text.replace(os.fsencode(seen), os.fsencode(order.workspace.root))
        return text

    async def launch(self, order: Order, view: View, streams: Streams) -> Child:
        env = await asyncio.to_thread(_prepare, order, view)

        async def spawn(*, status: int, go: int) -> asyncio.subprocess.Process:
            return await asyncio.create_subprocess_exec(
                sys.executable,
                *("-I", "-S", _SUPERVISOR, str(status), str(go), str(os.getpid())),
                *(_moved(argument, order, view) for argument in order.command),
                stdin=streams.stdin.descriptor,
                stdout=streams.stdout.descriptor,
                stderr=streams.stderr.descriptor,
                env=env,
                cwd=view.lower,
                pass_fds=(status, go),
                start_new_session=True,
            )

        child = await launched(spawn, _Tree, order.limits)
        child.mark = f"{MARK}={env[MARK]}"
        return child


def _prepare(order: Order, view: View) -> dict[str, str]:
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
        WORKSPACE: str(view.real),
        MARK: secrets.token_hex(16),
    }


def _moved(text: str, order: Order, view: View) -> str:
    return text.replace(str(order.workspace.root), str(view.lower))


class _Tree(Child):
    """A tree below a supervisor; what a killed supervisor left is found by a mark in the environment."""

    mark: str | None = None

    def running(self) -> int:
        return bounds.running_threads(os.getuid())

    def members(self) -> Iterator[int]:
        yield from (pid for pid in descendants(self.process.pid) if pid != self.process.pid)

    async def _end(self) -> None:
        with suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGTERM)
            self.process.send_signal(signal.SIGCONT)  # the command may have stopped it
        with suppress(TimeoutError):
            await asyncio.wait_for(self.process.wait(), _POLITE_SECONDS)
        with suppress(ProcessLookupError):
            self.process.kill()
        await self.process.wait()
        if self.mark is not None:
            await asyncio.to_thread(exterminate, self.mark)
