"""A shop's server with orders, refunds and letters. It does what it is told, as often as it is told."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Shop:
    """What has happened there, in order."""

    def __init__(self, *, seconds: float = 0.0) -> None:
        self.seconds = seconds
        """How long it takes to answer, before and after it has done what it was asked."""
        self.refunds: list[dict[str, Any]] = []
        self.letters: list[dict[str, Any]] = []
        self.address = ""


@contextmanager
def open_shop(*, seconds: float = 0.0) -> Iterator[Shop]:
    """A shop on loopback with order 7, on which 40 were paid by ada@example.com."""
    shop = Shop(seconds=seconds)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            kind, _, name = self.path.strip("/").partition("/")
            records = {"refunds": shop.refunds, "letters": shop.letters}.get(kind, [])
            found = next((each for each in records if each["key"] == name), None)
            if (kind, name) == ("orders", "7"):
                found = {"customer": "ada@example.com", "paid": 40, "refunded": sum(r["amount"] for r in shop.refunds)}
            self._answer(200 if found else 404, found)

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            time.sleep(shop.seconds)
            records = shop.letters if self.path == "/letters" else shop.refunds
            records.append({**body, "key": self.headers["Idempotency-Key"]})
            time.sleep(shop.seconds)
            self._answer(201, records[-1])

        def _answer(self, status: int, body: Any) -> None:
            data = json.dumps(body).encode()
            try:
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)
            except OSError:
                return  # whoever asked was killed

        def log_message(self, *_: Any) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    shop.address = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield shop
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
