"""Servers on loopback for what DevFix does outside. None of them refuses anything twice: they count."""

from __future__ import annotations

import asyncio
import base64
import json
import mailbox
import os
import re
import stat
import subprocess
import sys
import urllib.request
import warnings
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from scripts.bench.crash.wire import Moment, Watch
from state.status import TERMINAL

TRACKER_USER = "admin"
TRACKER_PASSWORD = "right-word"  # noqa: S105 - of a tracker that lives as long as the campaign


class Receiver:
    """Takes webhooks, as often as they come, and says which keys it has seen."""

    def __init__(self) -> None:
        self.port = 0
        self.keys: list[str] = []
        self.events: list[str] = []
        self.told: Counter[str] = Counter()
        """How often DevFix itself has told of each run that it has ended or asks for help."""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, EOFError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            method, path, _ = head.split(" ", 2)
            length = re.search(r"(?im)^content-length: *(\d+)", head)
            body = await reader.readexactly(int(length[1]) if length else 0)
            status = 200
            if method == "GET":
                status = 200 if path.rpartition("/")[2] in self.keys else 404
            else:
                key = re.search(r"(?im)^idempotency-key: *(\S+)", head)
                self.keys.append(key[1] if key else "")
                called = json.loads(body)
                self.events.append(str(called["event"]))
                if called["data"].get("status") in TERMINAL or called["data"].get("reason") == "escalation":
                    self.told[str(called["data"]["run_id"])] += 1
            writer.write(f"HTTP/1.1 {status} Told\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{{}}".encode())
            await writer.drain()
        writer.close()


@asynccontextmanager
async def receiver() -> AsyncIterator[Receiver]:
    made = Receiver()
    server = await asyncio.start_server(made.serve, "127.0.0.1")
    made.port = int(server.sockets[0].getsockname()[1])
    try:
        yield made
    finally:
        server.close()


def has_mail_server() -> bool:
    return find_spec("aiosmtpd") is not None


@asynccontextmanager
async def mail_server(maildir: Path) -> AsyncIterator[int]:
    """Its port; what it is sent lies in the folder. Needs aiosmtpd."""
    from aiosmtpd.smtp import SMTP

    box = mailbox.Maildir(maildir)

    class Handler:
        async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:  # noqa: N802 - aiosmtpd's name
            box.add(bytes(envelope.content or b""))
            return "250 taken"

    def protocol() -> SMTP:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return SMTP(Handler(), hostname="mail.example")

    server = await asyncio.get_running_loop().create_server(protocol, "127.0.0.1")
    try:
        yield int(server.sockets[0].getsockname()[1])
    finally:
        server.close()


def subjects(maildir: Path) -> Counter[str]:
    """How many messages have each subject."""
    return Counter(str(message["Subject"]) for message in mailbox.Maildir(maildir))


_HOOK = """#!{python} -I
import os, socket, sys
refs = " ".join(line.split()[2] for line in sys.stdin)
with socket.create_connection(("127.0.0.1", {port})) as wire:
    wire.sendall(f"{side} {{os.getpid()}} {{refs}}\\n".encode())
    sys.exit(0 if wire.recv(8) == b"go" else 1)
"""


class GitSink:
    """A bare repository whose own hooks are its wire: they run before a push is taken, and after."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.pushed: Counter[str] = Counter()
        """How often each ref was changed."""

    def hook(self, name: str, side: str, port: int) -> None:
        path = self.folder / "hooks" / name
        path.write_text(_HOOK.format(python=sys.executable, port=port, side=side))
        path.chmod(path.stat().st_mode | stat.S_IXUSR)


@asynccontextmanager
async def git_sink(folder: Path, watch: Watch, worker_of: Callable[[int], int | None]) -> AsyncIterator[GitSink]:
    """`worker_of`: the worker that a process belongs to."""
    _git(folder.parent, "init", "--quiet", "--bare", folder.name)
    made = GitSink(folder)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, ValueError):
            side, pid, *refs = (await reader.readline()).decode().split()
            if side == "done":
                made.pushed.update(refs)
            go = await watch(Moment("a push", "before" if side == "before" else "done", worker_of(int(pid)), "request"))
            writer.write(b"go" if go else b"no")
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1")
    port = int(server.sockets[0].getsockname()[1])
    made.hook("pre-receive", "before", port)
    made.hook("post-receive", "done", port)
    try:
        yield made
    finally:
        server.close()


def ancestors(pid: int) -> Iterator[int]:
    """The process, its parent, and so on. Linux only."""
    while pid > 1:
        yield pid
        try:
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            return


class Branches:
    """A repository with a branch for each run to push."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        _git(folder, "init", "--quiet", "--initial-branch=main")
        self.new("main")

    def new(self, branch: str) -> None:
        (self.folder / "file").write_text(branch)
        if branch != "main":
            _git(self.folder, "checkout", "--quiet", "-b", branch)
        _git(self.folder, "add", "file")
        _git(self.folder, "commit", "--quiet", "--message", branch)


def _git(folder: Path, *arguments: str) -> None:
    identity = {
        f"GIT_{role}_{fact}": "campaign@example.org" for role in ("AUTHOR", "COMMITTER") for fact in ("NAME", "EMAIL")
    }
    subprocess.run(
        ["git", *arguments],
        cwd=folder,
        env={
            "PATH": os.environ.get("PATH", os.defpath),
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_CONFIG_NOSYSTEM": "1",
            **identity,
        },
        check=True,
        capture_output=True,
    )


def has_tracker() -> bool:
    return find_spec("roundup") is not None


_SERVE = """
import re, sys
from wsgiref.simple_server import WSGIRequestHandler, make_server
from roundup.cgi.wsgi_handler import RequestDispatcher
class Quiet(WSGIRequestHandler):
    def log_message(self, *arguments): pass
server = make_server("127.0.0.1", 0, lambda *given: app(*given), handler_class=Quiet)
home, config = sys.argv[1], sys.argv[1] + "/config.ini"
text = open(config).read()
open(config, "w").write(re.sub("(?m)^web = .*$", f"web = http://127.0.0.1:{server.server_port}/", text))
app = RequestDispatcher(home)
print(server.server_port, flush=True)
server.serve_forever()
"""


class Tracker:
    """A real issue tracker (roundup) in a process of its own."""

    def __init__(self, port: int, folder: Path) -> None:
        self.port = port
        self._files = folder / "db" / "files" / "msg"
        self.url = f"http://127.0.0.1:{port}/rest/data/issue"

    @property
    def titles(self) -> list[str]:
        return [str(issue["title"]) for issue in self._get("issue?@fields=title")]

    @property
    def texts(self) -> list[str]:
        return [file.read_text() for file in sorted(self._files.rglob("msg*"))]

    def _get(self, what: str) -> Any:
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/rest/data/{what}")
        login = base64.b64encode(f"{TRACKER_USER}:{TRACKER_PASSWORD}".encode()).decode()
        request.add_header("Authorization", f"Basic {login}")
        with urllib.request.urlopen(request, timeout=20) as answer:  # noqa: S310 - loopback
            return json.load(answer)["data"]["collection"]


@contextmanager
def tracker(folder: Path) -> Iterator[Tracker]:
    """A new tracker with nothing in it. Needs roundup."""
    _admin(folder, "install", "classic", "anydbm")
    config = folder / "config.ini"
    text = config.read_text()
    given = {"web": "http://127.0.0.1/", "domain": "example.org", "host": "127.0.0.1", "debug": f"{folder}/mails"}
    for name, value in given.items():  # with a debug file, no mail goes out
        text = re.sub(rf"(?m)^#?{name} = *(NO DEFAULT)?$", f"{name} = {value}", text)
    config.write_text(text)
    _admin(folder, "initialise", TRACKER_PASSWORD)
    with subprocess.Popen([sys.executable, "-c", _SERVE, folder], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None  # noqa: S101 - it is a pipe
            yield Tracker(int(process.stdout.readline()), folder)
        finally:
            process.kill()


def _admin(folder: Path, *command: str) -> None:
    program = "from roundup.scripts.roundup_admin import run; run()"
    subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program, "-i", folder, *command],
        check=True,
        capture_output=True,
        timeout=60,
    )
