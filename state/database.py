"""The one PostgreSQL: opened lazily, once, by whoever needs it first.

Statements of ours name tables without a schema and run inside `transaction()`. Pooled connections carry no
session state, so that a transaction-mode pooler may stand in between; what needs a session of its own
(advisory locks, LISTEN) uses `direct()`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import psycopg
from psycopg import sql
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from state import embedded
from state.connection import OPTIONS, Connection, check, connect, one_line, unwritable, usable
from state.errors import DatabaseUnavailable
from state.migrations import migrate, shipped
from state.patience import is_lost
from state.settings import Settings

WHOLE_LEASES = 6
"""How long a transaction may last at most, in leases; from PostgreSQL 17 on, which can tell."""
_LIMITS = sql.SQL(
    "set_config('idle_in_transaction_session_timeout', {idle}, true), "
    "CASE WHEN current_setting('server_version_num')::int >= 170000 "
    "THEN set_config('transaction_timeout', {whole}, true) END"
)
"""End the transaction of a process that was frozen in the middle of it, whose locks would keep everybody else from its
run for as long as it is frozen."""
POOL_SECONDS = 15.0
"""How long a transaction waits for a connection; longer than one attempt to connect takes."""


class SqlCall(NamedTuple):
    """One of the schema's functions with placeholders, and what they stand for."""

    function: str
    arguments: Sequence[Any]


class Database:
    """The user's PostgreSQL, or the embedded one; migrated, with a pool. Belongs to the event loop that opened it.

    Every method opens it first. All of them raise DatabaseUnavailable, in one sentence, when it can't be
    reached or used.
    """

    def __init__(self, settings: Settings) -> None:
        self.schema = settings.database_schema
        self.search_path = sql.SQL("SET LOCAL search_path TO {}").format(sql.Identifier(self.schema)).as_bytes()
        """Makes unqualified names ours, in a transaction whose first statement must be another."""
        limits = _LIMITS.format(
            idle=sql.Literal(f"{settings.lease_seconds * 1000:.0f}ms"),
            whole=sql.Literal(f"{settings.lease_seconds * 1000 * WHOLE_LEASES:.0f}ms"),
        )
        path = sql.Literal(f'"{self.schema}"')
        self.opening = sql.SQL("SELECT set_config('search_path', {}, true), {}").format(path, limits).as_bytes()
        """The statement that each transaction begins with: until its end, unqualified names are ours."""
        self._limits = limits.as_bytes()
        self._prefix = sql.Identifier(self.schema).as_bytes() + b"."
        self.direct_generation = 0
        """Grows with each new direct connection: session locks taken under an older number are gone."""
        self._settings = settings
        self._pool: AsyncConnectionPool[Connection] | None = None
        self._opening = asyncio.Lock()
        self._direct: Connection | None = None
        self._direct_use = asyncio.Lock()

    @property
    def pool(self) -> AsyncConnectionPool[Connection]:
        """The pool of an opened database. `connection()` is its door: it hands out connections that answer."""
        if self._pool is None:
            raise RuntimeError("the database is not open")
        return self._pool

    async def open(self) -> None:
        """Start the embedded server if no URL is set, migrate, open the pool. Idempotent, safe concurrently."""
        async with self._opening:
            if self._pool is None:
                await self._migrate()
                self._pool = await self._open_pool()

    async def close(self) -> None:
        """Close all connections; the embedded server goes on. The database may be opened again."""
        async with self._opening:
            pool, self._pool = self._pool, None
            direct, self._direct = self._direct, None
            if direct:
                await direct.close()
            if pool:
                await pool.close()

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """A pooled connection in autocommit mode, for who builds a transaction of his own, `opening` first."""
        await self.open()
        pool = self.pool
        connection = await self._from(pool)
        try:
            yield connection
        except (psycopg.errors.DiskFull, psycopg.errors.ReadOnlySqlTransaction) as error:
            raise unwritable(error) from error
        except psycopg.Error as error:
            if is_lost(error):
                raise DatabaseUnavailable(f"The database hung up: {one_line(error)}") from error
            raise
        finally:
            if not usable(connection):
                await connection.close()
            await pool.putconn(connection)

    @asynccontextmanager
    async def transaction(self, *, opening: bytes | None = None) -> AsyncIterator[Connection]:
        """One transaction in our schema: commits at the end, rolls back on an exception.

        Opening it costs no round trip: it travels with the first statement, which must be a single one.
        """
        async with self.connection() as connection, connection.begin(opening or self.opening):
            yield connection

    async def call(self, *calls: SqlCall) -> None:
        """Call functions of our schema, with arguments for their placeholders: one statement, one transaction.

        They bring their search path; nothing can be between the transaction's begin and its end.
        """
        names = [self._prefix + function.encode() for function, _ in calls]
        arguments = [argument for _, given in calls for argument in given]
        async with self.connection() as connection:
            await connection.execute(b"SELECT " + b", ".join([self._limits, *names]), arguments)

    async def rows(self, call: SqlCall) -> list[dict[str, Any]]:
        """The rows that one such function gives, as dictionaries."""
        # The outer join: the limits are set with the first row, so there has to be one.
        query = b"SELECT given.*, given IS NULL AS missing, %b FROM (SELECT) AS one LEFT JOIN %b AS given ON true"
        async with self.connection() as connection:
            cursor = await connection.execute(
                query % (self._limits, self._prefix + call.function.encode()), call.arguments
            )
            return [row for row in await cursor.fetchall() if not row["missing"]]

    @asynccontextmanager
    async def direct(self) -> AsyncIterator[Connection]:
        """The process's one session of its own, one user at a time; made anew when it broke."""
        await self.open()
        async with self._direct_use:
            if self._direct is None or not await _answers(self._direct):
                self._direct = await self._connect_directly()
                self.direct_generation += 1
            yield self._direct

    @asynccontextmanager
    async def session(self) -> AsyncIterator[Connection]:
        """One more session past any pooler, for who keeps one busy: a LISTEN."""
        await self.open()
        connection = await self._connect_directly()
        async with connection:
            yield connection

    async def _migrate(self) -> None:
        connection = await self._connect()
        try:
            await migrate(connection, schema=self.schema, migrations=await asyncio.to_thread(shipped))
        except psycopg.Error as error:
            raise DatabaseUnavailable(
                f"The database could not be migrated, nothing was changed: {one_line(error)}"
            ) from error
        finally:
            await connection.close()

    async def _url(self) -> str:
        """Asked for each new connection, so that an embedded server that went away is started again."""
        return self._settings.database_url or await embedded.start(self._settings.home)

    async def _open_pool(self) -> AsyncConnectionPool[Connection]:
        pool = AsyncConnectionPool(
            self._url,
            connection_class=Connection,
            kwargs=OPTIONS,
            min_size=1,
            max_size=self._settings.database_pool_size,
            timeout=POOL_SECONDS,
            open=False,
        )
        await pool.open()
        return pool

    async def _from(self, pool: AsyncConnectionPool[Connection]) -> Connection:
        # Not the pool's own `check`, which waits 1, 2, 4 … seconds between dead connections: after the server's
        # restart a full pool would take longer than anybody waits.
        for _ in range(pool.max_size + 1):
            connection = await self._next(pool)
            if await _answers(connection):
                return connection
            await pool.putconn(connection)
        raise DatabaseUnavailable("The database ends each connection as soon as it is made; see its log.")

    async def _next(self, pool: AsyncConnectionPool[Connection]) -> Connection:
        try:
            return await pool.getconn()
        except PoolTimeout:
            connection = await self._connect()  # says why, if there is no database any more
            await connection.close()
            raise DatabaseUnavailable(
                f"All {pool.max_size} connections to the database have been in use for {POOL_SECONDS:.0f} seconds;"
                " raise DEVFIX_DATABASE_POOL_SIZE."
            ) from None

    async def _connect(self) -> Connection:
        return await connect(await self._url(), name="DEVFIX_DATABASE_URL")

    async def _connect_directly(self) -> Connection:
        if url := self._settings.database_direct_url:
            return await connect(url, name="DEVFIX_DATABASE_DIRECT_URL")
        connection = await self._connect()
        if await _goes_through_a_pooler(connection):
            await connection.close()
            raise DatabaseUnavailable(
                "DEVFIX_DATABASE_URL goes through a connection pooler, which loses locks and notifications; set"
                " DEVFIX_DATABASE_DIRECT_URL to the same database past the pooler."
            )
        return connection


async def _answers(connection: Connection) -> bool:
    """Whether it is alive; closed if not."""
    try:
        await check(connection)
    except psycopg.OperationalError:
        await connection.close()
    return usable(connection)


async def _goes_through_a_pooler(connection: Connection) -> bool:
    """The process that greeted us is not the one that answers."""
    cursor = await connection.execute("select pg_backend_pid() as pid")
    row = await cursor.fetchone()
    return row is None or row["pid"] != connection.info.backend_pid
