"""A real issue tracker (roundup) in a process of its own, and a wire to it that can be cut."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import subprocess
import sys
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

PASSWORD = "right-word"  # noqa: S105
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
        request.add_header("Authorization", "Basic " + base64.b64encode(f"admin:{PASSWORD}".encode()).decode())
        with urllib.request.urlopen(request, timeout=20) as answer:  # noqa: S310 - loopback
            return json.load(answer)["data"]["collection"]


@contextmanager
def tracker(folder: Path) -> Iterator[Tracker]:
    """A new tracker with nothing in it."""
    _admin(folder, "install", "classic", "anydbm")
    config = folder / "config.ini"
    text = config.read_text()
    given = {"web": "http://127.0.0.1/", "domain": "example.org", "host": "127.0.0.1", "debug": f"{folder}/mails"}
    for name, value in given.items():  # with a debug file, no mail goes out
        text = re.sub(rf"(?m)^#?{name} = *(NO DEFAULT)?$", f"{name} = {value}", text)
    config.write_text(text)
    _admin(folder, "initialise", PASSWORD)
    with subprocess.Popen([sys.executable, "-c", _SERVE, folder], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
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


@asynccontextmanager
async def cut_wire(port: int, *cut: str) -> AsyncIterator[int]:
    """A port that leads there; the answer to the first request whose first line holds one of these words is lost."""
    left = list(cut)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            length = re.search(rb"(?i)content-length: (\d+)", head)
            body = await reader.readexactly(int(length[1]) if length else 0)
            # The tracker looks at its own address in Host and Origin.
            own = writer.get_extra_info("sockname")[1]
            head = head.replace(f":{own}".encode(), f":{port}".encode())
            there, back = await asyncio.open_connection("127.0.0.1", port)
            back.write(re.sub(rb"(?i)connection: keep-alive", b"connection: close", head) + body)
            answer = await there.read()
            back.close()
            lost = [word for word in left if word.encode() in head.split(b"\r\n")[0]]
            if lost:
                left.remove(lost[0])
            else:
                writer.write(answer)
                await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1")
    try:
        yield int(server.sockets[0].getsockname()[1])
    finally:
        server.close()
        await server.wait_closed()
