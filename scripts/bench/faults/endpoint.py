"""A chat endpoint on loopback that gives prepared answers: for what no mock server of others sends."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from ssl import SSLContext
from typing import Any, NamedTuple

Chunks = Sequence[Mapping[str, Any] | str]
"""One answer: chunks of a `chat.completion.chunk` stream, or its raw lines."""


class Reply(NamedTuple):
    """An answer that is no stream. A text is sent as it is, an object as JSON."""

    status: int = 200
    body: Mapping[str, Any] | str = {}
    headers: Mapping[str, str] = {}


class Hangup(NamedTuple):
    """No answer at all: the connection is closed."""


class Dropped(NamedTuple):
    """A stream whose connection is closed before its end, so that the client sees that something is missing."""

    chunks: Chunks


class Elsewhere(NamedTuple):
    """An answer that another server gives: it is handed the request as it came, and writes what comes back."""

    ask: Callable[[bytes, asyncio.StreamWriter], Awaitable[None]]


class Trickle(NamedTuple):
    """A stream whose last chunk comes again and again, until the client goes."""

    chunks: Chunks
    pause: float = 0.01


class Held(NamedTuple):
    """A stream that goes on when it is let go."""

    chunks: Chunks
    let_go: asyncio.Event
    rest: Chunks


class Blow(NamedTuple):
    """An answer before which, or so many seconds after which, something else happens."""

    kind: str
    answer: Given
    after_seconds: float | None = None


Given = Chunks | Reply | Trickle | Held | Hangup | Dropped | Elsewhere
Answer = Given | Blow
Strike = Callable[[str], Awaitable[None]]
"""Makes something else happen, by its kind."""


async def _nothing_else(kind: str) -> None:
    raise AssertionError(f"nobody is there who does this: {kind}")


class Endpoint:
    """Answers each request with the next of its prepared answers, the last one again and again."""

    def __init__(self, answers: Sequence[Answer], strike: Strike = _nothing_else) -> None:
        self.answers = list(answers)
        self.strike = strike
        self.requests: list[dict[str, Any]] = []
        self.moments: list[float] = []
        """When each request came, by the event loop's clock."""
        self.heads: list[dict[str, str]] = []
        """The headers of each request, and its first line under ""."""
        self.trouble: list[str] = []
        """What kept it from giving an answer."""
        self.url = ""
        self.serving: set[asyncio.Task[None]] = set()

    def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer))
        self.serving.add(task)
        task.add_done_callback(self.serving.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with suppress(asyncio.IncompleteReadError, ConnectionError):  # whoever asked is gone
                await self._answer(reader, writer)
        except Exception as error:
            self.trouble.append(f"no answer could be given: {error or type(error).__name__}")
            raise
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        raw = await reader.readuntil(b"\r\n\r\n")
        first, *lines = raw.decode().strip().splitlines()
        head = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        self.heads.append({"": first, **head})
        body = await reader.readexactly(int(head["content-length"]))
        self.requests.append(json.loads(body))
        self.moments.append(asyncio.get_running_loop().time())
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if not isinstance(answer, Blow):
            await self._give(answer, raw + body, writer)
        elif answer.after_seconds is None:
            await self.strike(answer.kind)
            await self._give(answer.answer, raw + body, writer)
        else:
            await self._give(answer.answer, raw + body, writer)
            await asyncio.sleep(answer.after_seconds)
            await self.strike(answer.kind)

    async def _give(self, answer: Given, request: bytes, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            if isinstance(answer, Elsewhere):
                await answer.ask(request, writer)
            elif not isinstance(answer, Hangup):
                await _give(answer, writer)
            writer.close()


async def _give(answer: Chunks | Reply | Trickle | Held | Dropped, writer: asyncio.StreamWriter) -> None:
    if isinstance(answer, Reply):
        body = answer.body if isinstance(answer.body, str) else json.dumps(answer.body)
        given = {"content-type": "application/json", **answer.headers}
        headers = "".join(f"{name}: {value}\r\n" for name, value in given.items())
        length = f"content-length: {len(body.encode())}\r\nconnection: close\r\n"
        writer.write(f"HTTP/1.1 {answer.status} So\r\n{length}{headers}\r\n{body}".encode())
        await writer.drain()
        return
    more = b"content-length: 1000000\r\n" if isinstance(answer, Dropped) else b""
    writer.write(b"HTTP/1.1 200 OK\r\n" + more + b"content-type: text/event-stream\r\nconnection: close\r\n\r\n")
    chunks = answer.chunks if isinstance(answer, (Trickle, Held, Dropped)) else answer
    await _send(chunks, writer)
    if isinstance(answer, Held):
        await answer.let_go.wait()
        await _send(answer.rest, writer)
    while isinstance(answer, Trickle):
        await asyncio.sleep(answer.pause)
        await _send(chunks[-1:], writer)


async def _send(chunks: Chunks, writer: asyncio.StreamWriter) -> None:
    lines = [each if isinstance(each, str) else f"data: {json.dumps(each)}\n\n" for each in chunks]
    writer.write("".join(lines).encode())
    await writer.drain()


@asynccontextmanager
async def endpoint(
    *answers: Answer, tls: SSLContext | None = None, strike: Strike = _nothing_else, host: str = "127.0.0.1"
) -> AsyncIterator[Endpoint]:
    """The endpoint, at `url`, for as long as the block runs."""
    made = Endpoint(answers, strike)
    server = await asyncio.start_server(made.serve, host, ssl=tls)
    _, port = server.sockets[0].getsockname()
    made.url = f"{'https' if tls else 'http'}://{host}:{port}/v1"
    async with server:
        yield made
        for task in made.serving:
            task.cancel()
        await asyncio.gather(*made.serving, return_exceptions=True)


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
