"""Retention: what is kept of runs that ended long ago, so that the tables don't grow for ever.

A pruned run keeps its row with status and report, the numbers, nodes and times of its steps, its approvals, its effects
with their receipts, and of each call its name, times, tokens, cost and error. Gone are its states, what its calls were
asked and answered, and the files that no other run needs.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from state.codec import CompactSerializer, tag_of
from state.connection import Connection
from state.database import Database
from state.errors import Unserializable
from state.shared_rows import packed
from state.snapshots import Snapshots
from state.status import TERMINAL

BATCH_RUNS = 50
"""Runs that one transaction prunes."""
BATCH_ROWS = 1000
LARGEST_MANIFEST = 16_000_000
"""Bytes of an artifact that may be a snapshot's manifest."""
SAFE_HOURS = 24
"""An artifact that was stored, or stored again, in this time stays: what refers to it may not be saved yet."""

_DIGEST = re.compile(rb"[0-9a-f]{64}")
_VALUES = {
    "checkpoints": "'' AS type, convert_to(checkpoint::text, 'UTF8') AS value",
    "checkpoint_blobs": "type, blob AS value",
    "checkpoint_writes": "type, blob AS value",
    "trace": "'' AS type, unnest(ARRAY[request, result]) AS value",
    "approvals": "'' AS type, unnest(ARRAY[arguments, bound]) AS value",
    "effects": "'' AS type, unnest(ARRAY[arguments, receipt]) AS value",
    "outbox": "'' AS type, unnest(ARRAY[arguments, receipt]) AS value",
}
"""Where a run may name an artifact: each table, and how its rows read as types and bytes."""


class Swept(NamedTuple):
    """What became free."""

    artifacts: int
    bytes: int
    """In the table; PostgreSQL uses them again, and gives them back to the disk with a VACUUM FULL."""


class Retention:
    """Prunes runs that have ended, and sweeps away artifacts that nothing refers to."""

    def __init__(self, *, database: Database, snapshots: Snapshots) -> None:
        self._database = database
        self._snapshots = snapshots

    async def ended(self, *, days: float) -> list[str]:
        """The runs that have stood ended for so long and were not pruned yet, the oldest first."""
        async with self._database.transaction() as connection:
            cursor = await connection.execute(
                "SELECT run_id FROM runs WHERE pruned_at IS NULL AND status = ANY(%s) "
                "AND updated_at <= clock_timestamp() - make_interval(secs => %s::float8) ORDER BY updated_at",
                (sorted(TERMINAL), days * 86400),
            )
            return [row["run_id"] for row in await cursor.fetchall()]

    async def prune(self, run_ids: Sequence[str]) -> list[str]:
        """Prune those of these runs that have ended and that nobody goes on with; their ids."""
        pruned: list[str] = []
        for first in range(0, len(run_ids), BATCH_RUNS):
            async with self._database.transaction(opening=self._database.search_path) as connection:
                pruned += await _prune(connection, run_ids[first : first + BATCH_RUNS])
        return pruned

    async def sweep(self) -> Swept:
        """Delete the artifacts that no run refers to."""
        needed = await self._needed()
        async with self._database.transaction(opening=self._database.search_path) as connection:
            await connection.execute("CREATE TEMPORARY TABLE needed (digest text PRIMARY KEY) ON COMMIT DROP")
            await connection.execute("INSERT INTO needed SELECT unnest(%s::text[])", (sorted(needed),))
            cursor = await connection.execute(
                "WITH gone AS (DELETE FROM artifacts WHERE created_at < now() - make_interval(hours => %s) "
                "AND NOT EXISTS (SELECT FROM needed WHERE needed.digest = artifacts.digest) "
                "RETURNING octet_length(data) AS length) "
                "SELECT count(*) AS number, coalesce(sum(length), 0) AS length FROM gone",
                (SAFE_HOURS,),
            )
            row = await cursor.fetchone()
        return Swept(int(row["number"]), int(row["length"])) if row else Swept(0, 0)

    async def _needed(self) -> set[str]:
        """All digests that stand anywhere in what is kept, and what the snapshots among them consist of."""
        async with self._database.transaction(opening=self._database.search_path) as connection:
            cursor = await connection.execute("SELECT DISTINCT snapshot FROM steps WHERE snapshot IS NOT NULL")
            found = {row["snapshot"] for row in await cursor.fetchall()}
            for table, columns in _VALUES.items():
                found |= await _named_in(connection, table, columns)
            cursor = await connection.execute(
                "SELECT digest FROM artifacts WHERE digest = ANY(%s) AND size <= %s", (sorted(found), LARGEST_MANIFEST)
            )
            small = [row["digest"] for row in await cursor.fetchall()]
        return found | await self._snapshots.parts(small)


async def _prune(connection: Connection, run_ids: Sequence[str]) -> list[str]:
    # The row lock: whoever claims one of them meanwhile finds it pruned.
    cursor = await connection.execute(
        "UPDATE runs SET pruned_at = clock_timestamp() WHERE run_id = ANY(%s) "
        "AND pruned_at IS NULL AND status = ANY(%s) AND holder IS NULL RETURNING run_id",
        (list(run_ids), sorted(TERMINAL)),
    )
    pruned = [row["run_id"] for row in await cursor.fetchall()]
    for table in ("checkpoint_writes", "checkpoint_blobs", "checkpoints"):
        await connection.execute(f"DELETE FROM {table} WHERE thread_id = ANY(%s)", (pruned,))  # noqa: S608
    await connection.execute("UPDATE steps SET snapshot = NULL WHERE run_id = ANY(%s)", (pruned,))
    await connection.execute("UPDATE trace SET request = NULL, result = NULL WHERE run_id = ANY(%s)", (pruned,))
    return pruned


async def _named_in(connection: Connection, table: str, columns: str) -> set[str]:
    serde = CompactSerializer()
    found: set[str] = set()
    async with connection.cursor(f"values_of_{table}", binary=True) as cursor:
        cursor.itersize = BATCH_ROWS
        await cursor.execute(f"SELECT {columns} FROM {table}")  # noqa: S608 - constants of this module
        async for row in cursor:
            if row["value"]:
                value = bytes(row["value"])
                try:
                    data = packed(row["type"] or tag_of(value), value, serde)
                except Unserializable as error:
                    raise Unserializable(
                        f"a row of table {table} can't be read, nor which files it needs: {error}"
                    ) from None
                found |= {digest.decode() for digest in _DIGEST.findall(data)}
    return found
