"""What the campaign's wire to the database sees of whoever speaks through it."""

from __future__ import annotations

import psycopg
import pytest

from scripts.bench.crash.wire import DatabaseWire, Moment


@pytest.mark.parametrize("prepared", [True, False])
async def test_each_commit_passes_by_however_it_is_sent(empty_database_url: str, prepared: bool) -> None:
    """A statement that the server has prepared is sent by its name alone, from the second time on."""
    seen: list[tuple[str, str]] = []

    async def watch(moment: Moment) -> bool:
        seen.append((moment.place, moment.side))
        return True

    wire = DatabaseWire(empty_database_url, watch)
    async with (
        wire.open(),
        await psycopg.AsyncConnection.connect(
            wire.url, autocommit=True, prepare_threshold=0 if prepared else None
        ) as connection,
    ):
        await connection.execute("CREATE TABLE notes (number integer)")
        for number in range(3):
            await connection.execute("INSERT INTO notes VALUES (%s)", (number,))
        async with connection.transaction():
            for number in range(2):
                await connection.execute("UPDATE notes SET number = %s", (number,))
    assert seen == [("insert notes", "before"), ("insert notes", "done")] * 3 + [
        ("update notes.number", "before"),
        ("update notes.number", "done"),
    ]
