"""Runs the user's test command inside the sandbox and says what happened; the first process there.

    python -I devfix_relay.py '{"command": …, "mode": "report" | "serve", …}'

report: runs the command once and prints one JSON line (plain: without the plugin). serve: starts the command with
a plugin that lets its pytest wait (see devfix_server), then passes JSON lines between the standard streams and that
pytest. Where the command starts no pytest, candidates are written to this throw-away view and judged by the exit
code.

Runs under the user's interpreter: Python 3.8 or newer, standard library only.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from typing import Any

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

from devfix_results import Summary  # noqa: E402 - isolated mode leaves this folder out of the path

_LINGER = 0.3
"""Seconds that output may still come after the command has ended; a background process may hold the pipe for ever."""


class Output:
    """Head and tail of an endless text."""

    def __init__(self, limit: int) -> None:
        self._limit = limit // 2
        self._head = b""
        self._tail = b""
        self._cut = 0

    def add(self, data: bytes) -> None:
        room = self._limit - len(self._head)
        self._head += data[:room]
        self._tail += data[room:] if room < len(data) else b""
        if len(self._tail) > 2 * self._limit:
            self._cut += len(self._tail) - self._limit
            self._tail = self._tail[-self._limit :]

    def text(self) -> str:
        cut = self._cut + max(0, len(self._tail) - self._limit)
        middle = b"\n[... %d bytes left out ...]\n" % cut if cut else b""
        return (self._head + middle + self._tail[-self._limit :]).decode("utf-8", "replace")


class Relay:
    def __init__(self, setup: dict[str, Any]) -> None:
        self.setup = setup
        self.folder = tempfile.mkdtemp(prefix="devfix-")
        self.output = Output(setup["output_bytes"])
        # A socket's address holds 107 bytes, which the folder's own path may exceed.
        self.channel = f"/proc/{os.getpid()}/fd/{os.open(self.folder, os.O_RDONLY)}/channel"
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.listener.bind(self.channel)
        self.listener.listen(8)

    # -- report ----------------------------------------------------------------------------------------------

    def report(self) -> dict[str, Any]:
        began = time.monotonic()
        summary = Summary()
        process = self.start("off" if self.setup["mode"] == "plain" else "report")
        timed_out = self.follow(process, summary, began + self.setup["timeout"])
        stop(process)
        return {"e": "report", "exit_code": process.returncode, "timed_out": timed_out, "output": self.output.text(),
                "duration": time.monotonic() - began, **summary.as_json()}  # fmt: skip

    def follow(self, process: subprocess.Popen[bytes], summary: Summary, deadline: float) -> bool:
        """Take in output and events until the command has ended. True when the time was over first."""
        with selectors.DefaultSelector() as selector:
            selector.register(self.listener, selectors.EVENT_READ, self.accept)
            selector.register(output_of(process), selectors.EVENT_READ, self.take_output)
            ended: float | None = None
            while time.monotonic() < deadline:
                if ended is None and process.poll() is not None:
                    ended = time.monotonic()
                if ended is not None and time.monotonic() > ended + _LINGER:
                    return False
                ready = selector.select(0.05)
                for key, _ in ready:
                    key.data(selector, key.fileobj, summary)
                if ended is not None and not ready:
                    return False
        return True

    def accept(self, selector: selectors.BaseSelector, listener: socket.socket, summary: Summary) -> None:
        connection, _ = listener.accept()
        lines = Lines()

        def take(selector: selectors.BaseSelector, connection: socket.socket, summary: Summary) -> None:
            data = receive(connection)
            for line in lines.add(data):
                summary.add(json.loads(line))
            if not data:
                selector.unregister(connection)
                connection.close()

        selector.register(connection, selectors.EVENT_READ, take)

    def take_output(self, selector: selectors.BaseSelector, pipe: Any, summary: Summary) -> None:
        data = os.read(pipe.fileno(), 1 << 16)
        self.output.add(data)
        if not data:
            selector.unregister(pipe)

    # -- serve -----------------------------------------------------------------------------------------------

    def serve(self) -> None:
        began = time.monotonic()
        deadline = began + self.setup["timeout"]
        process = self.start("serve")
        connection = self.first_connection(process, deadline)
        timed_out = connection is None and process.poll() is None
        if connection is not None:
            timed_out = self.pass_on(process, connection, deadline)
        stop(process)
        emit({**Summary().as_json(), "e": "gone", "exit_code": process.returncode, "output": self.output.text(),
              "timed_out": timed_out, "duration": time.monotonic() - began,
              "collecting": connection is not None})  # fmt: skip
        for line in sys.stdin:
            self.answer_cold(json.loads(line))

    def first_connection(self, process: subprocess.Popen[bytes], deadline: float) -> socket.socket | None:
        """That of a pytest which has loaded the plugin. None when the command or the time has ended before."""
        output = output_of(process)
        with selectors.DefaultSelector() as selector:
            selector.register(self.listener, selectors.EVENT_READ)
            selector.register(output, selectors.EVENT_READ)
            while time.monotonic() < deadline:
                for key, _ in selector.select(0.1):
                    if key.fileobj is self.listener:
                        return self.listener.accept()[0]
                    self.take_output(selector, output, Summary())
                if process.poll() is not None and not selector.select(0):
                    return None
        return None

    def pass_on(self, process: subprocess.Popen[bytes], connection: socket.socket, deadline: float) -> bool:
        """Lines go both ways until either side ends. True when the first did not come in time."""
        answers = Lines()
        heard = False
        with selectors.DefaultSelector() as selector:
            selector.register(connection, selectors.EVENT_READ)
            selector.register(sys.stdin.fileno(), selectors.EVENT_READ)
            output = output_of(process)
            selector.register(output, selectors.EVENT_READ)
            while heard or time.monotonic() < deadline:
                for key, _ in selector.select(None if heard else 0.1):
                    if key.fileobj is output:
                        self.take_output(selector, output, Summary())
                    elif key.fileobj is connection:
                        data = receive(connection)
                        for line in answers.add(data):
                            heard = True
                            sys.stdout.buffer.write(line + b"\n")
                        sys.stdout.buffer.flush()
                        if not data:
                            return False
                    else:
                        data = os.read(sys.stdin.fileno(), 1 << 16)
                        if not data:
                            os._exit(0)
                        connection.sendall(data)
        return True

    # -- commands without pytest -----------------------------------------------------------------------------

    def answer_cold(self, request: dict[str, Any]) -> None:
        if request["op"] == "survey":
            self.output = Output(self.setup["output_bytes"])
            emit({**self.report(), "e": "surveyed_cold"})
            return
        began = time.monotonic()
        emit({"e": "baseline", "failing": 1, "tests": 1, "limit": request["limit"]})
        for index, edits in enumerate(request["candidates"]):
            if time.monotonic() > began + request["seconds"]:
                break
            limit = min(self.setup["timeout"], request["limit"] * request["patience"])
            verdict = self.try_cold(edits, limit)
            emit({"e": "candidate", "i": index, "verdict": verdict, "passed": int(verdict == "plausible"), "of": 1,
                  "broke": False, "failed": []})  # fmt: skip
        emit({"e": "done"})

    def try_cold(self, edits: list[list[Any]], limit: float) -> str:
        kept: dict[str, bytes] = {}
        try:
            for path, start, end, text in sorted(edits, key=lambda each: -each[1]):
                absolute = os.path.join(self.setup["root"], path)
                with open(absolute, "rb") as file:
                    old = file.read()
                kept.setdefault(absolute, old)
                replace(absolute, old[:start] + text.encode("utf-8", "surrogateescape") + old[end:])
            process = self.start("off")
            timed_out = self.follow(process, Summary(), time.monotonic() + limit)
            stop(process)
        finally:
            for absolute, old in kept.items():
                replace(absolute, old)
        if timed_out:
            return "timeout"
        return "fails" if process.returncode else "plausible"

    # -- the command -----------------------------------------------------------------------------------------

    def start(self, mode: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(  # noqa: S602 - the user's own command line, in the sandbox
            self.setup["command"],
            shell=True,
            cwd=self.setup["root"],
            env=self.environment(mode),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def environment(self, mode: str) -> dict[str, str]:
        env = dict(os.environ)
        if mode == "off":
            env["PYTHONDONTWRITEBYTECODE"] = "1"  # a candidate may have the size and the second of the one before
            return env
        options, path = env.get("PYTEST_ADDOPTS"), env.get("PYTHONPATH")
        cached = env.get("PYTHONDONTWRITEBYTECODE")
        if mode == "serve":  # each fork reads the tests' bytecode again
            env.pop("PYTHONDONTWRITEBYTECODE", None)
            env["PYTHONPYCACHEPREFIX"] = os.path.join(self.folder, "bytecode")
        env["PYTEST_ADDOPTS"] = ((options or "") + " -p devfix_pytest").strip()
        env["PYTHONPATH"] = HERE + (os.pathsep + path if path else "")
        env["DEVFIX_RUNNER"] = json.dumps({
            "root": self.setup["root"],
            "socket": self.channel,
            "mode": mode,
            "jobs": self.setup["jobs"],
            "timeout": self.setup["timeout"],
            "restore": {"PYTEST_ADDOPTS": options, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": cached,
                        "PYTHONPYCACHEPREFIX": os.environ.get("PYTHONPYCACHEPREFIX")},
        })  # fmt: skip
        return env


class Lines:
    """Whole lines out of a stream of pieces."""

    def __init__(self) -> None:
        self._rest: list[bytes] = []

    def add(self, data: bytes) -> list[bytes]:
        if b"\n" not in data:
            self._rest.append(data)
            return []
        *lines, rest = (b"".join(self._rest) + data).split(b"\n")
        self._rest = [rest]
        return lines


def output_of(process: subprocess.Popen[bytes]) -> Any:
    """The pipe that `start` opened."""
    return process.stdout


def receive(connection: socket.socket) -> bytes:
    try:
        return connection.recv(1 << 16)
    except ConnectionError:
        return b""


def replace(path: str, data: bytes) -> None:
    with open(path, "wb") as file:
        file.write(data)


def stop(process: subprocess.Popen[bytes]) -> None:
    """Ends the command and its group; the sandbox ends whatever has left the group."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def emit(event: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(event) + "\n")
    sys.stdout.flush()


def main() -> None:
    relay = Relay(json.loads(sys.argv[1]))
    try:
        if relay.setup["mode"] in ("report", "plain"):
            emit(relay.report())
        else:
            relay.serve()
    finally:
        shutil.rmtree(relay.folder, ignore_errors=True)


if __name__ == "__main__":
    main()
