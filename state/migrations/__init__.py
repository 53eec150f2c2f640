"""Brings a schema up to this version: the numbered SQL files beside this module, applied once, in order.

Append-only: a file that was ever released is never edited, renamed or removed. Inside a file tables are named
without a schema; nothing in it may need to run outside a transaction.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Any, NamedTuple

from psycopg import AsyncConnection, Error, sql
from psycopg.errors import InsufficientPrivilege, LockNotAvailable
from psycopg.rows import scalar_row

from state.connection import one_line
from state.errors import DatabaseUnavailable

LOCK_SECONDS = 60


class Migration(NamedTuple):
    name: str
    statements: str


def shipped() -> list[Migration]:
    """The migrations that this version knows, in the order in which they apply."""
    found = (f for f in files(__name__).iterdir() if f.name.endswith(".sql"))
    return sorted(Migration(f.name.removesuffix(".sql"), f.read_text("utf-8")) for f in found)


async def migrate(connection: AsyncConnection[Any], *, schema: str, migrations: list[Migration]) -> list[str]:
    """Apply what is missing and return its names; all of it or nothing.

    Runs in one transaction of its own, or in a savepoint of the caller's, autocommit or not. Concurrent callers
    wait for one another. Raises DatabaseUnavailable where a newer DevFix was here, or where the schema is
    missing and this user may not create it.
    """
    async with connection.transaction():
        await _lock(connection, schema)
        await _create_schema(connection, schema)
        await connection.execute(sql.SQL("set local search_path to {}").format(sql.Identifier(schema)))
        applied = await _applied(connection, schema)
        _refuse_unknown(applied - {m.name for m in migrations})
        missing = [m for m in sorted(migrations) if m.name not in applied]
        for migration in missing:
            await _apply(connection, migration)
        return [m.name for m in missing]


async def _lock(connection: AsyncConnection[Any], schema: str) -> None:
    await connection.execute(f"set local lock_timeout = '{LOCK_SECONDS}s'")
    try:
        await connection.execute(
            "select pg_advisory_xact_lock(hashtextextended('devfix migrations in ' || %s, 0))", [schema]
        )
    except LockNotAvailable as error:
        raise DatabaseUnavailable(
            f"Another process has been migrating this database for {LOCK_SECONDS} seconds; end it and try again."
        ) from error


async def _create_schema(connection: AsyncConnection[Any], schema: str) -> None:
    # `create schema if not exists` demands the privilege even where the schema exists.
    existing = await connection.execute("select 1 from pg_namespace where nspname = %s", [schema])
    if await existing.fetchone():
        return
    try:
        await connection.execute(sql.SQL("create schema {}").format(sql.Identifier(schema)))
    except InsufficientPrivilege as error:
        raise DatabaseUnavailable(
            f"The database has no schema {schema!r} and this user may not create it; let its owner run"
            f" `create schema {schema} authorization {connection.info.user}`."
        ) from error


async def _applied(connection: AsyncConnection[Any], schema: str) -> set[str]:
    # `create table if not exists` demands the privilege even where the table exists, and sends a notice.
    existing = await connection.execute(
        "select 1 from pg_tables where schemaname = %s and tablename = 'migrations'", [schema]
    )
    if not await existing.fetchone():
        await connection.execute(
            "create table migrations (name text primary key, applied_at timestamptz not null default now())"
        )
    names = connection.cursor(row_factory=scalar_row)
    await names.execute("select name from migrations")
    return set(await names.fetchall())


async def _apply(connection: AsyncConnection[Any], migration: Migration) -> None:
    try:
        await connection.execute(migration.statements.encode())
    except Error as error:
        raise DatabaseUnavailable(
            f"The database could not be migrated, nothing was changed: {migration.name}: {one_line(error)}"
        ) from error
    await connection.execute("insert into migrations (name) values (%s)", [migration.name])


def _refuse_unknown(names: set[str]) -> None:
    if names:
        raise DatabaseUnavailable(
            f"This database was migrated by a newer DevFix (it has {', '.join(sorted(names))}); nothing was"
            " changed. Upgrade DevFix here."
        )
