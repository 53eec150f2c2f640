"""What a step and an effect touch in the database is one row of each table, however long the run is."""

from __future__ import annotations

import itertools
from typing import LiteralString, get_args

import psycopg
import pytest

from state.connection import Connection
from state.database import Database
from state.ledger import PostgresLedger
from state.status import REASONS, Reason, Status
from tests.contracts.ledger import intent

LONG = 200
"""Steps and effects of a run that has been going for a while, in a database without statistics yet."""
STEP = "SELECT record_step('a', 1, %s, NULL, 'loop', '{work}', 'running', NULL, NULL, 0, 0)"

KNOWN = "SELECT known_effect('a', %s, 'post', %s, false)"
CHANGE = "SELECT change_effect('a', 1, %s, '{settled}', 'unknown', NULL)"


async def rows_read(connection: Connection, table: str, statement: LiteralString, *arguments: str) -> int:
    """By this statement, whatever way it takes."""

    async def so_far() -> int:
        cursor = await connection.execute(
            "SELECT seq_tup_read + coalesce(idx_tup_fetch, 0) AS read FROM pg_stat_xact_user_tables"
            " WHERE schemaname = current_schema() AND relname = %s",
            (table,),
        )
        row = await cursor.fetchone()
        assert row is not None, table
        return int(row["read"])

    before = await so_far()
    await connection.execute(statement, arguments)
    return await so_far() - before


async def a_run(database: Database) -> PostgresLedger:
    await database.open()
    async with database.transaction() as connection:
        await connection.execute("INSERT INTO runs (run_id, status, reason, epoch) VALUES ('a', 'running', NULL, 1)")
    return PostgresLedger(database=database)


async def test_a_step_of_a_long_run_reads_no_other_step(database: Database) -> None:
    await a_run(database)
    for number in range(LONG):
        async with database.transaction() as connection:
            await connection.execute(STEP, (f"checkpoint-{number}",))
    async with database.transaction() as connection:
        assert await rows_read(connection, "steps", STEP, "the next") <= 1


async def test_an_effect_of_a_long_run_reads_no_other_effect(database: Database) -> None:
    ledger = await a_run(database)
    for number in range(LONG):
        await ledger.claim(intent(f"call-{number}", f"digest {number}", run="a"), epoch=1)
        await ledger.settle("a", f"call-{number}", {"number": number}, epoch=1)
    async with database.transaction() as connection:
        assert await rows_read(connection, "effects", KNOWN, "the next", "no such digest") == 0
        assert await rows_read(connection, "effects", KNOWN, "the next", f"digest {LONG - 1}") == 1
        assert await rows_read(connection, "effects", CHANGE, f"call-{LONG - 1}") <= 1


async def test_no_index_names_what_each_step_changes(database: Database) -> None:
    """Else each step would be a new entry in all indexes of its run's row (no heap-only tuple)."""
    await database.open()
    async with database.transaction() as connection:
        cursor = await connection.execute(
            "SELECT indexdef FROM pg_indexes WHERE schemaname = current_schema() AND tablename = 'runs'"
        )
        definitions = [row["indexdef"] for row in await cursor.fetchall()]
    changed = ("step", "cost_usd", "tokens", "heartbeat_at", "updated_at")
    assert definitions
    assert not [(column, text) for text in definitions for column in changed if column in text.partition("USING")[2]]


async def test_the_table_takes_the_standings_of_the_code_and_no_other(database: Database) -> None:
    await database.open()
    taken = {
        (status, reason)
        for status, reason in itertools.product(get_args(Status), (None, *get_args(Reason)))
        if await takes(database, status, reason)
    }
    assert taken == {(status, reason) for status, reasons in REASONS.items() for reason in reasons}


async def takes(database: Database, status: str, reason: str | None) -> bool:
    try:
        async with database.transaction() as connection:
            await connection.execute(
                "INSERT INTO runs (run_id, status, reason) VALUES (%s, %s, %s)", (f"{status} {reason}", status, reason)
            )
    except psycopg.errors.CheckViolation:
        return False
    return True


@pytest.mark.parametrize(
    ("status", "reason"), [("running", ""), ("completed", "done:"), ("completed:done", None), ("completed:done", "")]
)
async def test_what_only_reads_like_a_standing_is_not_taken(
    database: Database, status: str, reason: str | None
) -> None:
    await database.open()
    assert not await takes(database, status, reason)
