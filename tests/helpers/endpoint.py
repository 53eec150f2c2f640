"""A chat endpoint on loopback that streams prepared chunks: for what no mock server of others sends."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

Chunks = Sequence[Mapping[str, Any] | str]
"""One answer: chunks of a `chat.completion.chunk` stream, or its raw lines."""


class Endpoint:
    """Answers each request with the next of its prepared answers, the last one again and again."""

    def __init__(self, answers: Sequence[Chunks]) -> None:
        self.answers = list(answers)
        self.requests: list[dict[str, Any]] = []
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = next(int(line.split(":")[1]) for line in head.splitlines() if line.startswith("content-length:"))
        self.requests.append(json.loads(await reader.readexactly(length)))
        chunks = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        lines = [each if isinstance(each, str) else f"data: {json.dumps(each)}\n\n" for each in chunks]
        kind = "text/event-stream"
        writer.write(f"HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\nconnection: close\r\n\r\n{''.join(lines)}".encode())
        await writer.drain()
        writer.close()
        await writer.wait_closed()


@asynccontextmanager
async def endpoint(*answers: Chunks) -> AsyncIterator[Endpoint]:
    """The endpoint, at `url`, for as long as the block runs."""
    made = Endpoint(answers)
    server = await asyncio.start_server(made.serve, "127.0.0.1")
    host, port = server.sockets[0].getsockname()
    made.url = f"http://{host}:{port}/v1"
    async with server:
        yield made


def chunk(finish: str | None = None, **delta: Any) -> dict[str, Any]:
    """One chunk of a stream."""
    choice = {"index": 0, "delta": {"role": "assistant", **delta}, "finish_reason": finish}
    return {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "some-model", "choices": [choice]}


def calling(*named: tuple[str | None, str, str], finish: str = "tool_calls") -> Chunks:
    """A stream that makes these calls: id, name and arguments as they are on the wire."""
    calls = [
        {"index": place, "id": identifier, "type": "function", "function": {"name": name, "arguments": arguments}}
        for place, (identifier, name, arguments) in enumerate(named)
    ]
    return [chunk(tool_calls=calls), chunk(finish), "data: [DONE]\n\n"]


def saying(finish: str | None = "stop", **delta: Any) -> Chunks:
    """A stream that says this."""
    return [chunk(**delta), chunk(finish), "data: [DONE]\n\n"]
