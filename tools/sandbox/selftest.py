"""The self-test: hostile things are really tried inside a sandbox before it is trusted."""

from __future__ import annotations

import asyncio
import json
import secrets
import socket
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from state.errors import SandboxUnavailable
from tools.sandbox.bubblewrap import Bubblewrap
from tools.sandbox.model import Limits, ProcessEnded
from tools.sandbox.processes import holders
from tools.scratch import is_left, scratch_folder
from tools.workspace import Workspace

_SECONDS = 20.0
_PLANTED = ".devfix-selftest-"
_MARK = "DEVFIX_SELFTEST"

_SCRIPT = r"""
import json, os, socket, sys
plan = json.loads(sys.argv[1])
escaped = []
def attempt(name, deed):
    try:
        if deed() is not False and name:
            escaped.append(name)
    except OSError:
        pass
def connect(family, address):
    with socket.socket(family, socket.SOCK_STREAM) as link:
        link.settimeout(2)
        link.connect(address)
def write(path):
    with open(path, "w") as file:
        file.write("x")
for secret in plan["secrets"]:
    attempt("read a file of the user's", lambda: open(secret).read())
attempt("read the original repository", lambda: open(plan["original"]).read())
attempt("", lambda: write(plan["outside"]) and False)  # may work, in a private /tmp: judged from the host
attempt("write to /", lambda: write("/devfix-selftest"))
attempt("write to .git", lambda: write(".git/config"))
if plan["port"]:
    attempt("reach the host's network", lambda: connect(socket.AF_INET, ("127.0.0.1", plan["port"])))
    attempt("reach an abstract socket", lambda: connect(socket.AF_UNIX, "\0" + plan["socket"]))
attempt("see the host's processes", lambda: len([n for n in os.listdir("/proc") if n.isdigit()]) > 5)
attempt("read the host's environment", lambda: plan["variable"] in os.environ)
attempt("make a user namespace", lambda: os.system("unshare -U true 2>/dev/null") == 0)
write("left-behind")
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        import signal
        for each in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(each, signal.SIG_IGN)
        while True:
            signal.pause()
    os._exit(0)
print(json.dumps(escaped), flush=True)
sys.stdin.read()
"""
"""Prints what it could do and should not have been able to; leaves a daemon behind, and never ends by itself."""


@dataclass(frozen=True, kw_only=True)
class Probe:
    """What the self-test of one sandbox found."""

    escaped: tuple[str, ...] = ()
    """What could be done inside that must not be possible."""
    failure: str | None = None
    """Why the sandbox does not run at all."""
    overlay: bool = False
    """Whether throw-away views are overlays; else they are copies."""

    @property
    def passed(self) -> bool:
        return self.failure is None and not self.escaped

    @property
    def sentence(self) -> str:
        if self.failure is not None:
            return self.failure
        return f"inside it one can {', '.join(self.escaped)}" if self.escaped else "the self-test passed"


async def self_test(sandbox: Bubblewrap) -> Probe:
    """Run the probes. Takes a fraction of a second."""
    stage = await asyncio.to_thread(_Stage, network=not sandbox.allow_network)
    try:
        escaped = await _inside(sandbox, stage)
        escaped += await asyncio.to_thread(stage.left_behind)
        overlay = await sandbox.overlay_works(stage.workspace)
    except SandboxUnavailable as error:
        return Probe(failure=str(error))
    except (ProcessEnded, TimeoutError, OSError) as error:
        return Probe(failure=f"the self-test did not run: {error or 'no answer in time'}")
    finally:
        await asyncio.to_thread(stage.close)
    return Probe(escaped=tuple(escaped), overlay=overlay)


async def _inside(sandbox: Bubblewrap, stage: _Stage) -> list[str]:
    python, prefix = await asyncio.to_thread(_base_interpreter)
    mounts = {} if prefix.is_relative_to("/usr") else {prefix: prefix}
    command = [str(python), "-I", "-S", "-c", _SCRIPT, json.dumps(stage.plan)]
    child = sandbox.start(
        command,
        workspace=stage.workspace,
        limits=Limits(timeout=_SECONDS),
        env={_MARK: stage.mark},
        mounts=mounts,
    )
    async with child as process:
        try:
            answer: list[str] = json.loads(await process.read_line(_SECONDS))
        except ProcessEnded as error:
            raise SandboxUnavailable(f"{error}: {process.output.strip()[-300:]}") from error
    return answer


def _base_interpreter() -> tuple[Path, Path]:
    """Python without any environment, and where it lives."""
    return Path(sys._base_executable).resolve(), Path(sys.base_prefix).resolve()  # type: ignore[attr-defined]


class _Stage:
    """The planted secrets, the doors that must be shut, and the workspace of the self-test."""

    def __init__(self, *, network: bool) -> None:
        self.mark = secrets.token_hex(16)
        self._closing = ExitStack()
        scratch = scratch_folder(Path(tempfile.gettempdir()), "devfix-selftest-")
        self._closing.callback(scratch.close)
        self.folder = scratch.path.resolve()
        for name in ("workspace", "original/.git"):
            (self.folder / name).mkdir(parents=True)
        (self.folder / "original" / "source").write_text(self.mark)
        self.workspace = Workspace(self.folder / "workspace", self.folder / "original")
        self.plan: dict[str, Any] = {
            "secrets": [str(path) for path in self._planted()],
            "original": str(self.folder / "original" / "source"),
            "outside": str(self.folder / "outside"),
            "variable": "PATH_OF_THE_HOST",
            "port": self._closing.enter_context(_listening(socket.AF_INET, ("127.0.0.1", 0)))[1] if network else 0,
            "socket": self.mark,
        }
        if network:
            self._closing.enter_context(_listening(socket.AF_UNIX, "\0" + self.mark))

    def _planted(self) -> Iterator[Path]:
        for folder in (Path.home(), self.folder):
            _sweep(folder)
            secret = folder / f"{_PLANTED}{self.mark}"
            with suppress(OSError):
                secret.write_text("a secret")
                self._closing.callback(secret.unlink, missing_ok=True)
                yield secret

    def left_behind(self) -> list[str]:
        """What is seen on the host after the sandbox has ended."""
        found = []
        if holders(f"{_MARK}={self.mark}"):
            found.append("outlive the sandbox")
        if (self.folder / "outside").exists():
            found.append("write outside")
        if any((self.folder / "workspace").iterdir()) or any((self.folder / "original/.git").iterdir()):
            found.append("write through a throw-away view")
        return found

    def close(self) -> None:
        self._closing.close()


def _sweep(folder: Path) -> None:
    """Remove what self-tests have left that were killed."""
    for left in folder.glob(f"{_PLANTED}*"):
        with suppress(OSError):
            if is_left(left, stat.S_IFREG, age=10 * _SECONDS):
                left.unlink()


@contextmanager
def _listening(family: socket.AddressFamily, address: Any) -> Iterator[Any]:
    with socket.socket(family, socket.SOCK_STREAM) as door:
        door.bind(address)
        door.listen(1)
        yield door.getsockname()
