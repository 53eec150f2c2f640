"""The command line as people use it: real processes, real signals, a real terminal where one is needed."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout, suppress
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any

from scripts.cli.main import guarded

PROGRAM = [sys.executable, "-c", "from scripts.cli import main; main()"]
SECONDS = 60.0
"""Generous: a limit against hanging, not a measurement."""

CALC = "def add(a, b):\n    return a - b\n"
TEST = "from calc import add\n\n\ndef test_add():\n    assert add(1, 2) == 3\n"
SLOW = """
import time

from calc import add


def test_slow():
    if add(1, 2) != 3:
        time.sleep({seconds})
"""
FIX = [
    {
        "content": "The sign is wrong.",
        "tool_calls": [{"name": "edit_file", "args": {"path": "calc.py", "old": "a - b", "new": "a + b"}}],
    },
    {
        "content": "Now it is right.",
        "tool_calls": [
            {"name": "list_files", "args": {}},
            {"name": "apply_patch_to_repository", "args": {"summary": "add adds"}},
        ],
    },
]


class Cli:
    """`devfix` on one home and one database."""

    def __init__(self, folder: Path, database_url: str) -> None:
        self.folder = folder
        self.home = folder / "home"
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("DEVFIX_", "OPENAI_"))},
            "DEVFIX_HOME": str(self.home),
            "DEVFIX_DATABASE_URL": database_url,
            "DEVFIX_HEARTBEAT_SECONDS": "0.5",
            "DEVFIX_LEASE_SECONDS": "30",  # no test waits for it that does not set a shorter one
            "DEVFIX_TOOL_RETRIES": "0",
            "PYTHONPATH": str(Path(__file__).parents[2]),
        }

    def repository(self, name: str = "calc", *, seconds: float = 0.0) -> Path:
        """A new folder with a defect; its tests take so many seconds as long as the defect is there."""
        path = self.folder / f"{name}-{time.monotonic_ns()}"
        path.mkdir()
        (path / "calc.py").write_text(CALC)
        (path / "test_calc.py").write_text(TEST)
        if seconds:
            (path / "test_slow.py").write_text(SLOW.format(seconds=seconds))
        return path

    def script(self, turns: Sequence[Any]) -> str:
        """The name of a model that says these turns."""
        path = self.folder / f"script-{time.monotonic_ns()}.json"
        path.write_text(json.dumps(list(turns)))
        return f"scripted:{path}"

    def __call__(self, *arguments: object, **environment: str) -> Ended:
        """Run a command to its end, without a terminal."""
        done = subprocess.run(
            [*PROGRAM, *map(str, arguments)],
            cwd=self.folder,
            env={**self.environment, **environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=SECONDS,
            check=False,
        )
        return Ended(done.returncode, done.stdout.decode(), done.stderr.decode())

    def here(self, *arguments: object) -> Ended:
        """Run a command in this process: for what needs none of its own, at a tenth of the price."""
        out, err = _captured(), _captured()
        with _environment(self.environment), chdir(self.folder), redirect_stdout(out), redirect_stderr(err):
            code = guarded([str(each) for each in arguments])
        return Ended(code, _text(out), _text(err))

    @contextmanager
    def running(self, *arguments: object) -> Iterator[Running]:
        """A command under way; killed at the end if it still runs."""
        process = subprocess.Popen(
            [*PROGRAM, *map(str, arguments)],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        try:
            yield Running(process)
        finally:
            process.kill()
            process.communicate()

    @contextmanager
    def terminal(self, *arguments: object, **environment: str) -> Iterator[Terminal]:
        """A command on a terminal of its own."""
        pid, descriptor = pty.fork()
        if pid == 0:
            try:
                os.chdir(self.folder)
                os.execve(  # noqa: S606 - a program and its arguments, no shell's line
                    PROGRAM[0], [*PROGRAM, *map(str, arguments)], {**self.environment, **environment}
                )
            finally:
                os._exit(127)
        terminal = Terminal(pid, descriptor)
        try:
            yield terminal
        finally:
            terminal.close()


class Ended:
    """A command that has ended."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code = code
        self.out = out
        self.err = err

    @property
    def facts(self) -> Any:
        """The one JSON value on stdout."""
        return json.loads(self.out)

    def __repr__(self) -> str:
        return f"exit {self.code}\n--- stdout\n{self.out}\n--- stderr\n{self.err}"


class Running:
    """A command under way."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self._seen = b""

    def until(self, text: str) -> str:
        """Wait for this on stderr; what was written until then."""
        assert self.process.stderr is not None
        os.set_blocking(self.process.stderr.fileno(), False)
        deadline = time.monotonic() + SECONDS
        while text.encode() not in self._seen:
            assert time.monotonic() < deadline, f"{text!r} did not come:\n{self._seen.decode()}"
            select.select([self.process.stderr], [], [], 1.0)
            data = self.process.stderr.read()
            assert data != b"", f"ended without {text!r}:\n{self._seen.decode()}"
            self._seen += data or b""
        return self._seen.decode()

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def end(self) -> Ended:
        """Wait for the end."""
        assert self.process.stderr is not None
        os.set_blocking(self.process.stderr.fileno(), True)
        out, err = self.process.communicate(timeout=SECONDS)
        return Ended(self.process.returncode, out.decode(), (self._seen + err).decode())


class Terminal:
    """A command on a terminal: what it shows, and what a person types."""

    def __init__(self, pid: int, descriptor: int) -> None:
        self._pid: int | None = pid
        self._descriptor = descriptor
        self.shown = ""
        termios.tcsetwinsize(descriptor, (40, 120))

    def until(self, text: str) -> None:
        """Wait until this is shown, from here on."""
        deadline = time.monotonic() + SECONDS
        start = len(self.shown)
        while text not in _bare(self.shown[start:]):
            assert time.monotonic() < deadline, f"{text!r} did not come:\n{self.shown}"
            assert self._read(), f"ended without {text!r}:\n{self.shown}"

    def type(self, text: str) -> None:
        os.write(self._descriptor, text.encode())

    def end(self) -> int:
        """Wait for the end; the exit code."""
        deadline = time.monotonic() + SECONDS
        while self._read():
            assert time.monotonic() < deadline, f"it goes on:\n{self.shown}"
        return self._wait()

    def close(self) -> None:
        if self._pid is not None:
            with suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)
            self._wait()
        os.close(self._descriptor)

    def _wait(self) -> int:
        assert self._pid is not None
        _, status = os.waitpid(self._pid, 0)
        self._pid = None
        return os.waitstatus_to_exitcode(status)

    def _read(self) -> bool:
        """Take in what has come; False at the end."""
        if not select.select([self._descriptor], [], [], 1.0)[0]:
            return True
        try:
            data = os.read(self._descriptor, 65536)
        except OSError:
            return False
        self.shown += data.decode(errors="replace")
        return bool(data)


@contextmanager
def _environment(environment: Mapping[str, str]) -> Iterator[None]:
    former = dict(os.environ)
    os.environ.clear()
    os.environ.update(environment)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(former)


def _captured() -> TextIOWrapper:
    return TextIOWrapper(BytesIO(), encoding="utf-8", errors="backslashreplace", write_through=True)


def _text(stream: TextIOWrapper) -> str:
    assert isinstance(stream.buffer, BytesIO)
    return stream.buffer.getvalue().decode()


def _bare(text: str) -> str:
    """Without colours and cursor movements."""
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text)


FIELDS = {
    *("run_id", "status", "reason", "goal", "step", "plan", "attempts", "cost_usd", "tokens", "epoch", "parent"),
    *("branched_at", "sandbox_level", "workspace", "report", "created_at", "updated_at"),
}
"""What every command that shows a run prints at least."""


def standing(facts: Mapping[str, Any]) -> str:
    return f"{facts['status']}: {facts['reason']}"
