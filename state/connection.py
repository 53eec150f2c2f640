"""A connection whose transactions open for free, and the sentences for one that can't be made."""

from __future__ import annotations

import re
import select
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Self

import psycopg
from psycopg import AsyncConnection, AsyncCursor, AsyncTransaction
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import PipelineStatus
from psycopg.rows import DictRow, dict_row
from psycopg.types.string import StrDumperUnknown

from state.errors import DatabaseUnavailable, DatabaseUnwritable
from state.postgres import OLDEST_MAJOR

CONNECT_SECONDS = 10
CHECK_SECONDS = 1.0
OPTIONS: dict[str, Any] = {
    "autocommit": True,
    "row_factory": dict_row,
    # A transaction-mode pooler hands the next statement to another session: nothing may be prepared.
    "prepare_threshold": None,
    "connect_timeout": CONNECT_SECONDS,
    "client_encoding": "utf8",
    "application_name": "devfix",
    # A peer that vanished without a word is noticed in about a minute instead of two hours.
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
}


class Text(StrDumperUnknown):
    """Text as PostgreSQL takes it. What it has no form for, a NUL or half a character, is shown in its place.

    What must come back exactly as it was is kept as bytes (`state.codec`).
    """

    def dump(self, obj: str) -> bytes:
        return obj.replace("\0", "\ufffd").encode("utf-8", "replace")


class Connection(AsyncConnection[DictRow]):
    """`begin` sends BEGIN and its settings together with the first statement: no round trip of their own.

    Only that first statement travels in a pipeline, and its answer is read before `execute` returns. So row
    counts are there and errors are raised where the statement stands, as outside a pipeline.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.cursor_factory = Cursor
        self.adapters.register_dumper(str, Text)
        self.checked_at = 0.0
        self._opening: AsyncExitStack | None = None

    @asynccontextmanager
    async def begin(self, setting: bytes) -> AsyncIterator[Self]:
        """A transaction in which `setting` (a SET LOCAL) holds. Commits at the end, rolls back on an exception."""
        async with AsyncExitStack() as opening:
            await opening.enter_async_context(self.pipeline())
            self._opening = opening
            try:
                # Not self.transaction(): in a pipeline that opens two more, which would outlive the opening.
                async with AsyncTransaction(self):
                    await AsyncCursor(self).execute(setting)
                    yield self
                    await self.opened()
            finally:
                self._opening = None

    async def opened(self) -> None:
        """Read the answers that are due, and leave the pipeline."""
        opening, self._opening = self._opening, None
        if opening:
            await opening.aclose()

    @asynccontextmanager
    async def transaction(
        self, savepoint_name: str | None = None, force_rollback: bool = False
    ) -> AsyncIterator[AsyncTransaction]:
        await self.opened()
        async with super().transaction(savepoint_name, force_rollback) as transaction:
            yield transaction


class Cursor(AsyncCursor[Any]):
    """Closes the opening of its connection's transaction with the first statement."""

    async def execute(self, *arguments: Any, **options: Any) -> Self:
        try:
            return await super().execute(*arguments, **options)
        finally:
            await self._opened()

    async def executemany(self, *arguments: Any, **options: Any) -> None:
        await self._opened()
        await super().executemany(*arguments, **options)

    async def stream(self, *arguments: Any, **options: Any) -> AsyncIterator[Any]:
        await self._opened()
        async for row in super().stream(*arguments, **options):
            yield row

    @asynccontextmanager
    async def copy(self, *arguments: Any, **options: Any) -> AsyncIterator[psycopg.AsyncCopy]:
        await self._opened()
        async with super().copy(*arguments, **options) as copy:
            yield copy

    async def _opened(self) -> None:
        if isinstance(self.connection, Connection):
            await self.connection.opened()


async def check(connection: Connection) -> None:
    """Raise OperationalError if the connection is dead. Costs a round trip once a second at most.

    In between, a server's last words (or its hanging up) are seen without asking: bytes wait to be read on a
    connection that owes no answer.
    """
    if time.monotonic() - connection.checked_at < CHECK_SECONDS and not _has_something_to_say(connection):
        return
    await connection.execute("")
    connection.checked_at = time.monotonic()


def usable(connection: Connection) -> bool:
    """Whether another transaction may use it."""
    return not connection.closed and connection.pgconn.pipeline_status == PipelineStatus.OFF


async def connect(url: str, *, name: str) -> Connection:
    """Connect to a PostgreSQL that DevFix can work with; `name` is the setting that holds the URL.

    Raises DatabaseUnavailable. No message ever shows the password, or a part of it.
    """
    refuse_malformed(url, name=name)
    try:
        connection = await Connection.connect(url, **OPTIONS)
    except psycopg.OperationalError as error:
        raise unavailable(url, error) from None
    try:
        _refuse_unsuitable(connection.info)
    except DatabaseUnavailable:
        await connection.close()
        raise
    return connection


def refuse_malformed(url: str, *, name: str) -> None:
    """libpq takes what follows a stray @, / or : in a password for host or port, and its messages print them."""
    try:
        well_formed = _well_formed(url)
    except psycopg.ProgrammingError:
        well_formed = False
    if not well_formed:
        raise DatabaseUnavailable(
            f"{name} is not a PostgreSQL URL; write postgresql://USER:PASSWORD@HOST/DATABASE, with special"
            " characters of the password percent-encoded."
        ) from None


def unavailable(url: str, error: psycopg.OperationalError) -> DatabaseUnavailable:
    """One sentence on why there is no connection."""
    parts = conninfo_to_dict(url)
    return DatabaseUnavailable(f"The database {_place(parts)} can't be used: {_why(error, parts)}")


def one_line(error: psycopg.Error) -> str:
    """What the server said, without its excerpts of the statement."""
    return error.diag.message_primary or (str(error).splitlines() or [type(error).__name__])[0]


def unwritable(error: psycopg.Error) -> DatabaseUnwritable:
    """One sentence on a database that answers and keeps nothing."""
    why = "its disk is full" if isinstance(error, psycopg.errors.DiskFull) else "it is read-only (a standby?)"
    return DatabaseUnwritable(f"The database can't be written: {why}; what was saved before is kept.")


def _well_formed(url: str) -> bool:
    ports = str(conninfo_to_dict(url).get("port") or "")
    if not re.fullmatch(r"[\d,]*", ports):
        return False
    if not re.match(r"postgres(ql)?://", url):
        return True
    # A password cut by a slash leaves its rest in the path; one cut by an @, in the host.
    authority, _, path = url.split("?")[0].split("://", 1)[1].partition("/")
    return authority.count("@") <= 1 and not set(path) & set("@:/")


def _place(parts: dict[str, Any]) -> str:
    user, host = parts.get("user"), parts.get("host") or "the local socket"
    port = f":{parts['port']}" if parts.get("port") else ""
    return f"{parts.get('dbname') or user or ''!s} at {user + '@' if user else ''}{host}{port}".strip()


REASONS = (
    (r"password authentication failed|no password supplied", "user or password is wrong."),
    (r"(no pg_hba.conf entry|authentication failed)", "the server does not let this user in from here."),
    (r'database ".*" does not exist', "the server has no such database; create it."),
    (r'role ".*" does not exist', "the server knows no such user."),
    (r"Connection refused", "nothing listens there; start it, or correct the URL."),
    (r"No such file or directory", "no server has its socket there; start it, or correct the URL."),
    (
        r"Name or service|failed to resolve|nodename nor|could not translate|No address associated|resolution",
        "the host's name is not known.",
    ),
    (r"(timeout expired|timed out)", f"it does not answer within {CONNECT_SECONDS} seconds."),
    (r"(too many clients|remaining connection slots|too many connections)", "all its connections are taken."),
    (r"starting up|recovery mode", "it is starting; try again in a moment."),
    (r"shutting down", "it is shutting down."),
    (r"No space left on device", "its disk is full."),
    (r"Permission denied", "its socket may not be used by this user."),
)


def _why(error: psycopg.OperationalError, parts: dict[str, Any]) -> str:
    text = str(error)
    for pattern, reason in REASONS:
        if re.search(pattern, text):
            return reason
    line = text.strip().splitlines()[-1] if text.strip() else type(error).__name__
    password = str(parts.get("password") or "")
    return line.replace(password, "…") if password else line


def _refuse_unsuitable(info: psycopg.ConnectionInfo) -> None:
    major = info.server_version // 10000
    if major < OLDEST_MAJOR:
        raise DatabaseUnavailable(
            f"The database is PostgreSQL {major}, DevFix needs {OLDEST_MAJOR} or newer; nothing was changed."
        )
    encoding = info.parameter_status("server_encoding")
    if encoding not in ("UTF8", None):
        raise DatabaseUnavailable(
            f"The database keeps its text as {encoding}, DevFix needs UTF8; create one with `encoding 'UTF8'`."
        )


def _has_something_to_say(connection: Connection) -> bool:
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    return bool(poll.poll(0))
