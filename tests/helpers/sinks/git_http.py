"""A git server over http (git's own http-backend) that asks for a password, and may send its callers elsewhere."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, make_server


class GitServer:
    def __init__(self, root: Path, expected: str | None) -> None:
        self.url = ""
        self.authorizations: list[str] = []
        """What each request said of itself; empty for one that said nothing."""
        self.elsewhere: str | None = None
        """Where requests are redirected to."""
        self._root = root
        self._expected = expected

    def __call__(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        told = environ.get("HTTP_AUTHORIZATION", "")
        self.authorizations.append(told)
        if self.elsewhere:
            query = f"?{environ['QUERY_STRING']}" if environ.get("QUERY_STRING") else ""
            start("302 Found", [("Location", f"{self.elsewhere}{environ['PATH_INFO']}{query}")])
            return [b""]
        if self._expected is not None and told != self._expected:
            start("401 Unauthorized", [("WWW-Authenticate", f'Basic realm="said {told}"')])
            return [told.encode()]
        return self._backend(environ, start)

    def _backend(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        length = int(environ.get("CONTENT_LENGTH") or 0)
        cgi = {name: value for name, value in environ.items() if isinstance(value, str) and name.isupper()}
        own = {"GIT_PROJECT_ROOT": str(self._root), "GIT_HTTP_EXPORT_ALL": "1", "REMOTE_USER": "bot"}
        done = subprocess.run(
            ["git", "http-backend"],
            input=environ["wsgi.input"].read(length),
            env={"PATH": os.environ["PATH"], **cgi, **own},
            capture_output=True,
            check=True,
        )
        head, _, body = done.stdout.partition(b"\r\n\r\n")
        headers = [tuple(line.split(": ", 1)) for line in head.decode().split("\r\n")]
        status = next((value for name, value in headers if name == "Status"), "200 OK")
        start(status, [(name, value) for name, value in headers if name != "Status"])
        return [body]


class _Quiet(WSGIRequestHandler):
    def log_message(self, *arguments: Any) -> None:
        pass


@contextmanager
def git_server(root: Path, expected: str | None = None) -> Iterator[GitServer]:
    """The repositories below this folder, for callers with this Authorization."""
    made = GitServer(root, expected)
    with make_server("127.0.0.1", 0, made, handler_class=_Quiet) as server:  # type: ignore[arg-type]
        made.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield made
        finally:
            server.shutdown()
            thread.join()
