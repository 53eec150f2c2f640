"""Migrations: once, in order, all or nothing, whoever runs them and however."""

from __future__ import annotations

import asyncio

import psycopg
import pytest
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from psycopg.rows import dict_row

from state.database import Database
from state.errors import DatabaseUnavailable
from state.migrations import Migration, migrate, shipped
from state.settings import Settings

TABLES = """
    select table_name, column_name, data_type, is_nullable, column_default
    from information_schema.columns where table_schema = %s and table_name like 'checkpoint%%' order by 1, 2
"""
INDEXES = """
    select tablename, indexname, replace(indexdef, schemaname || '.', '') as indexdef
    from pg_indexes where schemaname = %s and tablename like 'checkpoint%%' order by 1, 2
"""


@pytest.mark.parametrize("autocommit", [True, False])
async def test_b72_migrating_works_in_and_out_of_a_transaction(empty_database_url: str, autocommit: bool) -> None:
    """A fresh schema comes about whether or not the connection commits by itself, and a second time changes nothing."""
    async with await psycopg.AsyncConnection.connect(empty_database_url, autocommit=autocommit) as connection:
        first = await migrate(connection, schema="devfix", migrations=shipped())
        assert first == [m.name for m in shipped()]
        assert await migrate(connection, schema="devfix", migrations=shipped()) == []
    async with await psycopg.AsyncConnection.connect(empty_database_url) as connection:
        cursor = await connection.execute("select name from devfix.migrations order by name")
        assert [name for (name,) in await cursor.fetchall()] == first


async def test_b72_migrating_inside_the_callers_transaction_is_undone_with_it(empty_database_url: str) -> None:
    async with await psycopg.AsyncConnection.connect(empty_database_url, autocommit=True) as connection:
        async with connection.transaction(force_rollback=True):
            await migrate(connection, schema="devfix", migrations=shipped())
        cursor = await connection.execute("select count(*) from pg_namespace where nspname = 'devfix'")
        assert await cursor.fetchone() == (0,)


async def test_a_failing_migration_leaves_nothing_and_is_named(empty_database_url: str) -> None:
    broken = [*shipped(), Migration("9999_broken", "create table half (); select 1 / 0;")]
    async with await psycopg.AsyncConnection.connect(empty_database_url, autocommit=True) as connection:
        with pytest.raises(DatabaseUnavailable, match="nothing was changed: 9999_broken: division by zero"):
            await migrate(connection, schema="devfix", migrations=broken)
        cursor = await connection.execute("select count(*) from pg_namespace where nspname = 'devfix'")
        assert await cursor.fetchone() == (0,)


async def test_a_missing_migration_is_applied_to_what_is_there(database_url: str) -> None:
    more = [*shipped(), Migration("9999_more", "create table more (a int); insert into more values (1);")]
    async with await psycopg.AsyncConnection.connect(database_url, autocommit=True) as connection:
        assert await migrate(connection, schema="devfix", migrations=more) == ["9999_more"]
        cursor = await connection.execute("select a from devfix.more")
        assert await cursor.fetchone() == (1,)


async def test_a_database_of_a_newer_devfix_is_left_alone(database_url: str) -> None:
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("insert into devfix.migrations (name) values ('9999_from_the_future')")
    database = Database(Settings(database_url=database_url))
    with pytest.raises(DatabaseUnavailable, match=r"migrated by a newer DevFix .*9999_from_the_future"):
        await database.open()


async def test_a_frozen_migrator_is_not_waited_for_forever(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("state.migrations.LOCK_SECONDS", 1)
    first = await psycopg.AsyncConnection.connect(database_url, autocommit=True)
    second = await psycopg.AsyncConnection.connect(database_url, autocommit=True)
    async with first, second, first.transaction():
        await migrate(first, schema="devfix", migrations=shipped())
        with pytest.raises(DatabaseUnavailable, match="Another process has been migrating"):
            await migrate(second, schema="devfix", migrations=shipped())


async def test_migrators_at_once_take_turns(empty_database_url: str) -> None:
    async def one() -> list[str]:
        async with await psycopg.AsyncConnection.connect(empty_database_url) as connection:
            return await migrate(connection, schema="devfix", migrations=shipped())

    applied = await asyncio.gather(*(one() for _ in range(4)))
    assert sorted(map(len, applied)) == [0, 0, 0, len(shipped())]


async def test_the_savers_tables_are_what_its_own_setup_makes(database_url: str) -> None:
    """An upgrade of the saver that changes its tables is noticed here; its setup() finds ours complete."""
    connection = await psycopg.AsyncConnection.connect(
        database_url, autocommit=True, prepare_threshold=0, row_factory=dict_row
    )
    async with connection:
        await connection.execute("set search_path to public")
        await AsyncPostgresSaver(connection).setup()
        for query in (TABLES, INDEXES, "select %s::text is null as n, v from checkpoint_migrations order by v"):
            theirs = await (await connection.execute(query, ["public"])).fetchall()
            await connection.execute("set search_path to devfix")
            ours = await (await connection.execute(query, ["devfix"])).fetchall()
            await connection.execute("set search_path to public")
            assert ours == theirs
            assert ours
