"""One PostgreSQL, one truth: what a transaction promises, and the sentence when there is none."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import psycopg
import pytest

from state.database import Database
from state.errors import DatabaseUnavailable
from state.settings import Settings


async def pid(database: Database) -> int:
    async with database.transaction() as connection:
        row = await (await connection.execute("select pg_backend_pid() as pid")).fetchone()
        assert row
        return int(row["pid"])


async def test_a_transaction_sees_our_schema_and_commits(database: Database) -> None:
    async with database.transaction() as connection:
        cursor = await connection.execute("insert into checkpoint_migrations values (%s)", [99])
        assert cursor.rowcount == 1
    async with database.transaction() as connection:
        cursor = await connection.execute("select max(v) as v, current_schema() as s from checkpoint_migrations")
        assert await cursor.fetchone() == {"v": 99, "s": "devfix"}


async def test_an_exception_rolls_back_and_leaves_the_connection_usable(database: Database) -> None:
    async def fail() -> None:
        async with database.transaction() as connection:
            await connection.execute("insert into checkpoint_migrations values (99)")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()
    async with database.transaction() as connection:
        cursor = await connection.execute("select v from checkpoint_migrations where v = 99")
        assert await cursor.fetchone() is None


async def test_a_failing_first_statement_is_raised_where_it_stands(database: Database) -> None:
    async with database.transaction() as connection:
        with pytest.raises(psycopg.errors.UniqueViolation):
            await connection.execute("insert into checkpoint_migrations values (0)")
        with pytest.raises(psycopg.errors.InFailedSqlTransaction):
            await connection.execute("select 1")
    assert await pid(database)


async def test_a_savepoint_may_come_first(database: Database) -> None:
    async with database.transaction() as connection:
        with pytest.raises(psycopg.errors.UniqueViolation):
            async with connection.transaction():
                await connection.execute("insert into checkpoint_migrations values (0)")
        await connection.execute("insert into checkpoint_migrations values (99)")
    async with database.transaction() as connection:
        cursor = await connection.execute("select count(*) as n from checkpoint_migrations")
        assert await cursor.fetchone() == {"n": 11}


async def test_every_way_to_send_a_first_statement_works(database: Database) -> None:
    async with database.transaction() as connection, connection.cursor() as cursor:
        await cursor.executemany("insert into checkpoint_migrations values (%s)", [[100], [101]])
        assert cursor.rowcount == 2
    async with (
        database.transaction() as connection,
        connection.cursor() as cursor,
        cursor.copy("copy checkpoint_migrations from stdin") as copy,
    ):
        await copy.write_row([102])
    async with database.transaction() as connection, connection.cursor() as cursor:
        rows = [row async for row in cursor.stream("select v from checkpoint_migrations where v > 99 order by v")]
        assert rows == [{"v": 100}, {"v": 101}, {"v": 102}]
    async with database.transaction() as connection, connection.pipeline():
        cursor = await connection.execute("select v from checkpoint_migrations where v = 100")
        assert await cursor.fetchone() == {"v": 100}


async def test_a_transaction_without_a_statement_is_no_trouble(database: Database) -> None:
    async with database.transaction():
        pass
    with pytest.raises(ZeroDivisionError):
        async with database.transaction():
            raise ZeroDivisionError
    assert await pid(database)


async def test_a_cancelled_statement_leaves_a_usable_pool(database: Database) -> None:
    async def slow() -> None:
        async with database.transaction() as connection:
            await connection.execute("select pg_sleep(60)")

    for _ in range(3):
        task = asyncio.create_task(slow())
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert await pid(database)
    assert database.pool.get_stats()["pool_available"] >= 1


async def test_a_server_that_hangs_up_is_out_of_service(database: Database) -> None:
    """In the middle of a transaction: what DevFix needs is away, which is nobody's failure."""
    with pytest.raises(DatabaseUnavailable, match="hung up"):
        async with database.transaction() as connection:
            await connection.execute("select pg_terminate_backend(pg_backend_pid())")
    assert await pid(database)


@pytest.fixture
async def hasty(database_url: str) -> AsyncIterator[Database]:
    """A database whose users are taken for frozen soon."""
    opened = Database(Settings(database_url=database_url, lease_seconds=0.2))
    await opened.open()
    yield opened
    await opened.close()


async def test_a_process_that_freezes_in_a_transaction_keeps_nobody_waiting(
    hasty: Database, database: Database
) -> None:
    """The server ends it after a lease; what it had locked is free, and nothing of it was committed."""
    row = "insert into checkpoint_migrations values (99)"

    async def freeze() -> None:
        async with hasty.transaction() as frozen:
            await frozen.execute(row)
            async with database.transaction() as other:
                await other.execute(row)  # waits for the frozen one's row
            await frozen.execute("select 1")

    with pytest.raises(DatabaseUnavailable, match="hung up"):
        await freeze()
    assert await pid(hasty)


async def test_a_transaction_that_is_never_idle_ends_too(hasty: Database) -> None:
    """A process may freeze while it sends; then the server waits for the rest."""
    async with hasty.transaction() as connection:
        if connection.info.server_version < 170000:
            pytest.skip("this PostgreSQL has no limit for a whole transaction")
    with pytest.raises(DatabaseUnavailable, match="hung up"):
        async with hasty.transaction() as connection:
            await connection.execute("select pg_sleep(60)")


async def test_b70_terminated_connections_are_replaced(database: Database, server_url: str) -> None:
    """Connections that the server ended, idle in the pool or direct, cost nobody a failed transaction."""
    await asyncio.gather(*(pid(database) for _ in range(50)))
    assert database.pool.get_stats()["pool_size"] > 2
    async with database.direct() as connection:
        await connection.execute("select pg_advisory_lock(1)")
    generation = database.direct_generation
    before = await pid(database)
    with psycopg.connect(server_url, autocommit=True) as admin:
        admin.execute(
            "select pg_terminate_backend(pid, 5000) from pg_stat_activity where pid <> pg_backend_pid()"
            " and application_name = 'devfix'"
        )
    for _ in range(3):
        assert await pid(database) != before
    async with database.direct() as connection:
        await connection.execute("select 1")
    assert database.direct_generation == generation + 1


async def test_the_direct_connection_is_one_and_keeps_its_session(database: Database) -> None:
    async with database.direct() as connection:
        await connection.execute("select pg_advisory_lock(7)")
        first = connection.info.backend_pid
    async with database.direct() as connection:
        cursor = await connection.execute("select pg_advisory_unlock(7) as held")
        assert await cursor.fetchone() == {"held": True}
        assert connection.info.backend_pid == first
    assert database.direct_generation == 1


async def test_four_at_once_open_an_empty_database(empty_database_url: str) -> None:
    databases = [Database(Settings(database_url=empty_database_url)) for _ in range(4)]
    await asyncio.gather(*(d.open() for d in databases), *(d.open() for d in databases))
    assert len({await pid(d) for d in databases}) == 4
    await asyncio.gather(*(d.close() for d in databases))


async def test_a_closed_database_opens_again(database: Database) -> None:
    await database.close()
    assert await pid(database)


async def test_a_taken_pool_says_so(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("state.database.POOL_SECONDS", 0.2)
    database = Database(Settings(database_url=database_url, database_pool_size=2))
    async with database.connection(), database.connection():
        with pytest.raises(DatabaseUnavailable, match=r"All 2 connections .* have been in use"):
            await pid(database)
    await database.close()
