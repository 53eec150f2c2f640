"""A receiver of webhooks: it acts on what it is sent, and fails in the way that it is told to."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import NamedTuple


class Call(NamedTuple):
    method: str
    path: str
    headers: dict[str, str]
    body: bytes


class Receiver:
    """Acts once for each request that it reads, unless its next way says otherwise; refuses doubled keys if told so.

    Ways: `ok`, a status like `500`, `act 500` (acts, then answers so), `hang`, `act hang`, `close`, `act close`, `drop`
    (closes before reading), `twice` (answers two times), `page` (one for people; nothing is done),
    `redirect STATUS URL`.
    """

    def __init__(self, *, refuses: bool = False) -> None:
        self.ways: list[str] = []
        """One for each request to come; then `ok`."""
        self.calls: list[Call] = []
        """All requests that were read."""
        self.acted: list[Call] = []
        self.url = ""
        self._refuses = refuses
        self._hanging = asyncio.Event()

    @property
    def keys(self) -> list[str]:
        """The keys that it has acted on, in order."""
        return [call.headers["idempotency-key"] for call in self.acted]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            way = self.ways.pop(0) if self.ways else "ok"
            if way != "drop":
                call = await _read(reader)
                self.calls.append(call)
                await self._answer(call, way, writer)
        writer.close()
        with suppress(ConnectionError, ssl.SSLError):
            await writer.wait_closed()

    async def _answer(self, call: Call, way: str, writer: asyncio.StreamWriter) -> None:
        if call.method == "GET":
            writer.write(_response(200 if call.path.rpartition("/")[2] in self.keys else 404))
            return
        acts = way in {"ok", "twice"} or way.startswith("act ")
        if acts and self._refuses and call.headers["idempotency-key"] in self.keys:
            writer.write(_response(409))
            return
        if acts:
            self.acted.append(call)
        match way.removeprefix("act ").split():
            case ["hang"]:
                await self._hanging.wait()
            case ["twice"]:
                writer.write(_response(200) + _response(500))
            case ["redirect", status, url]:
                writer.write(_response(int(status), f"location: {url}\r\n"))
            case [status] if status.isdigit():
                told = call.headers.get("authorization", "") + " " + call.headers.get("devfix-signature", "")
                writer.write(_response(int(status), body=told))
            case ["page"]:
                writer.write(_response(200, body="\n<!DOCTYPE html><title>Sign in</title>"))
            case ["ok"]:
                writer.write(_response(200))
        await writer.drain()


async def _read(reader: asyncio.StreamReader) -> Call:
    first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").strip().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    method, path, _ = first.split(" ")
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return Call(method, path, headers, body)


def _response(status: int, headers: str = "", body: str = "{}") -> bytes:
    head = f"HTTP/1.1 {status} Told\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n{headers}"
    return f"{head}connection: close\r\n\r\n{body}".encode()


@asynccontextmanager
async def receiver(*ways: str, refuses: bool = False, tls: ssl.SSLContext | None = None) -> AsyncIterator[Receiver]:
    """The receiver, at `url`, for as long as the block runs."""
    made = Receiver(refuses=refuses)
    made.ways = list(ways)
    server = await asyncio.start_server(made.serve, "127.0.0.1", ssl=tls)
    host, port = server.sockets[0].getsockname()
    made.url = f"{'https' if tls else 'http'}://{host}:{port}"
    try:
        yield made
    finally:
        made._hanging.set()
        server.close()
        await server.wait_closed()


async def closed_port() -> int:
    """A port on loopback at which nobody listens."""
    server = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1")
    port = int(server.sockets[0].getsockname()[1])
    server.close()
    await server.wait_closed()
    return port
