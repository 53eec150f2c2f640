"""Migrations: once, in order, all or nothing, whoever runs them and however."""

from __future__ import annotations

import asyncio
from importlib.resources import files

import psycopg
import pytest
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from psycopg import sql
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


OBJECTS = (
    """
    select c.relname, a.attname, format_type(a.atttypid, a.atttypmod) as type, a.attnotnull,
        replace(pg_get_expr(d.adbin, d.adrelid), %(schema)s || '.', '') as value
    from pg_class c join pg_attribute a on a.attrelid = c.oid
        left join pg_attrdef d on d.adrelid = c.oid and d.adnum = a.attnum
    where c.relnamespace = %(schema)s::regnamespace and c.relname like 'procrastinate%%' and c.relkind in ('r', 'c')
        and a.attnum > 0 order by 1, a.attnum
    """,
    """
    select replace(indexdef, schemaname || '.', '') as definition from pg_indexes
    where schemaname = %(schema)s and tablename like 'procrastinate%%' order by 1
    """,
    """
    select conname, replace(pg_get_constraintdef(oid), %(schema)s || '.', '') as definition from pg_constraint
    where connamespace = %(schema)s::regnamespace and conrelid::regclass::text like '%%procrastinate%%' order by 1
    """,
    """
    select proname, prosrc, pg_get_function_arguments(oid) as arguments from pg_proc
    where pronamespace = %(schema)s::regnamespace and proname like 'procrastinate%%' order by 1
    """,
    """
    select tgname, replace(pg_get_triggerdef(t.oid), %(schema)s || '.', '') as definition
    from pg_trigger t join pg_class c on c.oid = tgrelid
    where c.relnamespace = %(schema)s::regnamespace and not tgisinternal order by 1
    """,
    """
    select typname, enumlabel from pg_enum join pg_type t on t.oid = enumtypid
    where typnamespace = %(schema)s::regnamespace order by 1, enumsortorder
    """,
)
"""All that procrastinate makes, with how it is made."""


async def test_the_queues_tables_are_what_procrastinate_makes(database_url: str) -> None:
    """An upgrade that changes them is noticed here, and becomes a migration of its own."""
    async with await psycopg.AsyncConnection.connect(database_url, autocommit=True, row_factory=dict_row) as connection:
        await connection.execute("create schema theirs")
        await connection.execute("set search_path to theirs")
        await connection.execute((files("procrastinate.sql") / "schema.sql").read_bytes())
        for query in OBJECTS:
            found = []
            for schema in ("theirs", "devfix"):
                await connection.execute(sql.SQL("set search_path to {}").format(sql.Identifier(schema)))
                found.append(await (await connection.execute(query, {"schema": schema})).fetchall())
            assert found[0] == found[1]
            assert found[0]


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
