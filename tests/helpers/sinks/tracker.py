"""A wire to a real issue tracker that can be cut; the tracker is the campaign's."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from scripts.bench.crash.sinks import TRACKER_PASSWORD as PASSWORD
from scripts.bench.crash.sinks import Tracker, tracker

__all__ = ["PASSWORD", "Tracker", "cut_wire", "tracker"]


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
