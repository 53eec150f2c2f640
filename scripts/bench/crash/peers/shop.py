"""A shop on loopback: orders, refunds, letters. It does what it is told, as often as it is told, and can be asked."""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus
from typing import Any

SECONDS = 0.1
"""How long it takes to do a thing, and again to say so."""
PAID = 40.0
CUSTOMER = "ada@example.org"


class Shop:
    """What has happened there, by order."""

    def __init__(self) -> None:
        self.port = 0
        self.refunds: Counter[int] = Counter()
        self.letters: Counter[int] = Counter()
        self._keys: set[str] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, EOFError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                method, path, _ = head.split(" ", 2)
                length = re.search(r"(?im)^content-length: *(\d+)", head)
                body = await reader.readexactly(int(length[1]) if length else 0)
                key = re.search(r"(?im)^idempotency-key: *(\S+)", head)
                if method == "GET":
                    status, answer = self._found(path)
                else:
                    await asyncio.sleep(SECONDS)
                    status, answer = self._done(path, json.loads(body), key[1] if key else "")
                    await asyncio.sleep(SECONDS)
                data = json.dumps(answer).encode()
                writer.write(
                    f"HTTP/1.1 {status} {status.phrase}\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data
                )
                await writer.drain()
        writer.close()

    def _found(self, path: str) -> tuple[HTTPStatus, dict[str, Any]]:
        kind, _, name = path.strip("/").partition("/")
        if kind == "orders":
            return HTTPStatus.OK, {"order": int(name), "customer": CUSTOMER, "paid": PAID}
        return (HTTPStatus.OK if name in self._keys else HTTPStatus.NOT_FOUND), {}

    def _done(self, path: str, body: dict[str, Any], key: str) -> tuple[HTTPStatus, dict[str, Any]]:
        self._keys.add(key)
        if refunded := re.fullmatch(r"/orders/(\d+)/refunds", path):
            self.refunds[int(refunded[1])] += 1
        else:
            self.letters[int(body["order"])] += 1
        return HTTPStatus.CREATED, body


@asynccontextmanager
async def open_shop() -> AsyncIterator[Shop]:
    shop = Shop()
    server = await asyncio.start_server(shop.serve, "127.0.0.1")
    shop.port = int(server.sockets[0].getsockname()[1])
    try:
        yield shop
    finally:
        server.close()
