"""Wires that the campaign puts between a worker and what it talks to: they see each commit and each request pass by.

A wire holds what passes until `watch` has answered, so that a process can be killed, frozen or cut off at exactly this
point: before a commit has left, after it is made and before its answer is back; and so for a request to a sink.
"""

from __future__ import annotations

import asyncio
import re
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Literal, NamedTuple

from psycopg.conninfo import conninfo_to_dict

Side = Literal["before", "done", "answered"]
"""before: it has not left yet. done: it has happened, and whoever asked does not know. answered: they know."""

_NEGOTIATIONS = {80877103, 80877104}
"""Asks for TLS or for GSSAPI; there is neither on loopback."""
_WRITES = re.compile(
    r"\b(?:(INSERT)\s+INTO\s+|(DELETE)\s+FROM\s+)(?:\"?\w+\"?\.)?\"?(\w+)|"
    r"\b(UPDATE)\s+(?:\"?\w+\"?\.)?\"?(\w+)\"?\s+(?:AS\s+\w+\s+)?SET\s+(\w+)|"
    r"\b(record_step|save_writes|record_call|claim_effect|change_effect|release_effect)\(",
    re.IGNORECASE,
)
_OWN_NAMES = re.compile(r"(?<=/)[^/]{16,}|\d+")


class Moment(NamedTuple):
    """Something passes by."""

    place: str
    """What is committed or asked for: the same words for the same kind of thing, in each run."""
    side: Side
    who: int | None
    """The process that did it, as far as the wire knows."""
    kind: Literal["commit", "request"]


Watch = Callable[[Moment], Awaitable[bool]]
"""Called at each moment; False cuts the connection there."""


class _Cut(Exception):
    pass


class Wire:
    """A port on loopback that leads elsewhere."""

    kind: Literal["commit", "request"] = "request"

    def __init__(self, watch: Watch) -> None:
        self.port = 0
        self._watch = watch
        self._tasks: set[asyncio.Task[None]] = set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, to its end. What breaks off on either side is cut on the other."""
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - a coroutine runs in one
        self._tasks.add(task)
        there: asyncio.StreamWriter | None = None
        try:
            back, there = await self._connect()
            await self._talk(reader, writer, back, there)
        except (OSError, EOFError, _Cut, asyncio.CancelledError):
            pass  # it is cancelled by `cut` alone
        finally:
            self._tasks.discard(task)
            for each in (writer, there):
                if each is not None:
                    each.transport.abort()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        raise NotImplementedError

    async def _talk(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        back: asyncio.StreamReader,
        there: asyncio.StreamWriter,
    ) -> None:
        raise NotImplementedError

    async def pass_by(self, place: str, side: Side, who: int | None) -> None:
        if not await self._watch(Moment(place, side, who, self.kind)):
            raise _Cut

    @asynccontextmanager
    async def open(self) -> AsyncIterator[int]:
        """The port, for as long as the block runs."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", limit=2**20)
        self.port = int(server.sockets[0].getsockname()[1])
        try:
            yield self.port
        finally:
            server.close()
            await self.cut()

    async def cut(self) -> None:
        """All connections that there are."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _both(*ways: Awaitable[None]) -> None:
    """Until either way ends; what it raised is raised."""
    tasks = [asyncio.ensure_future(way) for way in ways]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class _Session:
    """What one connection to PostgreSQL is at."""

    def __init__(self) -> None:
        self.open = False
        """BEGIN was sent, and neither COMMIT nor ROLLBACK yet."""
        self.writes: list[str] = []
        """What has been written since the last commit was sent."""
        self.committing: list[str] = []
        """Commits that were sent and not answered."""
        self._prepared: dict[bytes, str] = {}

    def parse(self, name: bytes, statement: str) -> bool:
        """A prepared statement counts each time that it is bound, one without a name here and now."""
        if not name:
            return self.read(statement)
        self._prepared[name] = statement
        return False

    def bind(self, name: bytes) -> bool:
        return self.read(self._prepared[name]) if name in self._prepared else False

    def read(self, statement: str) -> bool:
        """Take note of a statement; whether it is a commit of something."""
        first = statement.lstrip().split(None, 1)[0].upper().rstrip(";") if statement.strip() else ""
        if first == "BEGIN":
            self.open, self.writes = True, []
        elif first == "ROLLBACK" and " TO " not in statement.upper():
            self.open, self.writes = False, []
        elif first == "COMMIT":
            self.open = False
            return bool(self.writes)
        else:
            self.writes += [name for name in written(statement) if name not in self.writes]
        return False

    def sent(self) -> None:
        """The commit is on its way."""
        self.committing.append(", ".join(self.writes))
        self.writes = []


def written(statement: str) -> list[str]:
    """What a statement writes: "insert approvals", "update runs.status", "record_step". The save of a step is called by
    its own name, also where it takes along the record of a call."""
    found = []
    for insert, delete, table, update, updated, column, function in _WRITES.findall(statement):
        verb = (insert or delete or update).lower()
        found.append(function or (f"{verb} {updated}.{column}" if update else f"{verb} {table}").lower())
    return [name for name in found if name != "record_call"] or found


class DatabaseWire(Wire):
    """To a PostgreSQL: sees each commit that writes, named after what it writes. One wire a worker."""

    kind = "commit"

    def __init__(self, url: str, watch: Watch, *, ignored: Callable[[str], bool] = lambda _: False) -> None:
        super().__init__(watch)
        self.who: int | None = None
        self._parts = conninfo_to_dict(url)
        self._ignored = ignored

    @property
    def url(self) -> str:
        """For who goes through this wire."""
        parts = self._parts
        user = f"{parts.get('user') or ''}" + (f":{parts['password']}" if parts.get("password") else "")
        return (
            f"postgresql://{user}@127.0.0.1:{self.port}/{parts.get('dbname') or 'postgres'}"
            "?sslmode=disable&gssencmode=disable"
        )

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        host, port = str(self._parts.get("host") or "127.0.0.1"), int(str(self._parts.get("port") or 5432))
        if host.startswith("/"):
            return await asyncio.open_unix_connection(f"{host}/.s.PGSQL.{port}", limit=2**20)
        return await asyncio.open_connection(host, port, limit=2**20)

    async def _talk(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        back: asyncio.StreamReader,
        there: asyncio.StreamWriter,
    ) -> None:
        there.write(await _startup(reader, writer))
        session = _Session()
        await _both(self._ask(reader, there, session), self._answer(back, writer, session))

    async def _ask(self, reader: asyncio.StreamReader, there: asyncio.StreamWriter, session: _Session) -> None:
        while True:
            kind, body = await _message(reader)
            if self._commits(kind, body, session):
                await there.drain()
                place = ", ".join(session.writes)
                if not self._ignored(place):
                    await self.pass_by(place, "before", self.who)
                session.sent()
            there.write(kind + struct.pack(">I", len(body) + 4) + body)
            if reader.at_eof() or not _has_more(reader) or there.is_closing():
                await there.drain()

    @staticmethod
    def _commits(kind: bytes, body: bytes, session: _Session) -> bool:
        """Whether this message makes what was written last."""
        if kind == b"Q":
            commits = session.read(body.rstrip(b"\0").decode(errors="replace"))
        elif kind == b"P":
            name, statement, _ = body.split(b"\0", 2)
            commits = session.parse(name, statement.decode(errors="replace"))
        elif kind == b"B":
            commits = session.bind(body.split(b"\0", 2)[1])
        else:
            commits = False
        return commits or (kind in (b"Q", b"S") and not session.open and bool(session.writes))

    async def _answer(self, back: asyncio.StreamReader, writer: asyncio.StreamWriter, session: _Session) -> None:
        while True:
            kind, body = await _message(back)
            place = None
            if session.committing and kind == b"C" and body == b"ROLLBACK\0":
                session.committing.pop(0)
            elif session.committing and ((kind == b"C" and body == b"COMMIT\0") or (kind, body) == (b"Z", b"I")):
                place = session.committing.pop(0)
            if place is not None and not self._ignored(place):
                await writer.drain()
                await self.pass_by(place, "done", self.who)
            writer.write(kind + struct.pack(">I", len(body) + 4) + body)
            if not _has_more(back) or writer.is_closing():
                await writer.drain()


def _has_more(reader: asyncio.StreamReader) -> bool:
    return bool(reader._buffer)  # type: ignore[attr-defined]


async def _startup(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
    """The first message, which alone has no kind; what asks for encryption before it is told that there is none."""
    while True:
        head = await reader.readexactly(8)
        length, code = struct.unpack(">II", head)
        body = await reader.readexactly(length - 8)
        if code not in _NEGOTIATIONS:
            return head + body
        writer.write(b"N")


async def _message(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    head = await reader.readexactly(5)
    return head[:1], await reader.readexactly(struct.unpack(">I", head[1:])[0] - 4)


class Request(NamedTuple):
    """A request that has reached a sink and was answered."""

    place: str
    key: str
    """The Idempotency-Key, or else what was asked for in full."""
    status: int


class HttpWire(Wire):
    """To an HTTP server: sees each request, and keeps what became of it."""

    def __init__(self, host: str, port: int, watch: Watch, *, who: Callable[[int], int | None]) -> None:
        super().__init__(watch)
        self.answered: list[Request] = []
        self._host = host
        self._there = port
        self._who = who

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(self._host, self._there, limit=2**20)

    async def _talk(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        back: asyncio.StreamReader,
        there: asyncio.StreamWriter,
    ) -> None:
        who = self._who(int(writer.get_extra_info("peername")[1]))
        while True:
            head, body = await _http(reader)
            # A server may look for its own address in Host and Origin.
            head = head.replace(f":{self.port}".encode(), f":{self._there}".encode())
            method, path, _ = head.split(b"\r\n")[0].decode("latin-1").split(" ", 2)
            place = f"{method} {_OWN_NAMES.sub('*', path.partition('?')[0])}"
            await self.pass_by(place, "before", who)
            there.write(head + body)
            told, text = await _http(back)
            key = _header(head, b"idempotency-key") or f"{path} {body.decode('latin-1')}"
            self.answered.append(Request(place, key, int(told.split(b" ")[1])))
            await self.pass_by(place, "done", who)
            writer.write(told + text)
            await writer.drain()
            await self.pass_by(place, "answered", who)


async def _http(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """A request or an answer, head and body; one without a length goes to the end of the connection."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = _header(head, b"content-length")
    if length:
        return head, await reader.readexactly(int(length))
    chunked = b"chunked" in _header(head, b"transfer-encoding").encode()
    answers_with_body = head.startswith(b"HTTP/") and head.split(b" ")[1] not in (b"204", b"304")
    return head, await reader.read(-1) if chunked or answers_with_body else b""


def _header(head: bytes, name: bytes) -> str:
    found = re.search(rb"(?im)^" + name + rb":[ \t]*([^\r\n]*)", head)
    return found[1].decode("latin-1").strip() if found else ""


class MailWire(Wire):
    """To a mail server without TLS: sees the end of each message, and the server's word for it."""

    def __init__(self, port: int, watch: Watch, *, who: Callable[[int], int | None]) -> None:
        super().__init__(watch)
        self._there = port
        self._who = who

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self._there)

    async def _talk(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        back: asyncio.StreamReader,
        there: asyncio.StreamWriter,
    ) -> None:
        who = self._who(int(writer.get_extra_info("peername")[1]))
        writer.write(await back.readline())
        while line := await reader.readline():
            there.write(line)
            answer = await _reply(back)
            if answer.startswith(b"354"):
                writer.write(answer)
                text = await reader.readuntil(b"\r\n.\r\n")
                await self.pass_by("a mail", "before", who)
                there.write(text)
                answer = await _reply(back)
                await self.pass_by("a mail", "done", who)
                writer.write(answer)
                await writer.drain()
                await self.pass_by("a mail", "answered", who)
            else:
                writer.write(answer)


async def _reply(back: asyncio.StreamReader) -> bytes:
    """The server's answer to one command, all its lines."""
    lines = [await back.readline()]
    while lines[-1][3:4] == b"-":
        lines.append(await back.readline())
    if not lines[-1]:
        raise ConnectionResetError
    return b"".join(lines)
