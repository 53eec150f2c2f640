"""The stores in PostgreSQL keep their promise."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from state.approvals import PostgresApprovals
from state.database import Database
from state.errors import EffectRefused
from state.holder import this_process
from state.ledger import PostgresLedger
from state.queue import Queue
from state.runs import PostgresRuns
from tests.contracts.approvals import ApprovalsContract
from tests.contracts.ledger import LedgerContract, intent
from tests.contracts.runs import RunsContract


def runs_on(database: Database, *, lease_seconds: float = 60) -> PostgresRuns:
    queue = Queue(database=database, lease_seconds=lease_seconds)
    return PostgresRuns(database=database, queue=queue, lease_seconds=lease_seconds)


class TestPostgresRuns(RunsContract):
    @pytest.fixture
    def runs(self, database: Database) -> PostgresRuns:
        return runs_on(database)

    @pytest.fixture
    def lose(self, database: Database) -> Callable[[str], Awaitable[None]]:
        async def lose(run_id: str) -> None:
            """A process that dies gives up its session's locks, and that is all that is seen of it."""
            async with database.direct() as connection:
                await connection.execute("SELECT pg_advisory_unlock_all()")

        return lose

    async def test_a_crashed_run_reads_so_at_once(
        self, runs: PostgresRuns, lose: Callable[[str], Awaitable[None]]
    ) -> None:
        """Its lock is free, whatever its last heartbeat says."""
        await runs.register("a")
        await runs.claim("a", this_process("test"))
        await lose("a")
        assert str((await runs.get("a")).standing) == "queued: crashed"

    async def test_a_frozen_holder_is_overtaken_when_its_lease_ends(self, database: Database) -> None:
        """It keeps its lock under SIGSTOP, but its heart does not beat."""
        runs = runs_on(database, lease_seconds=0.0)
        await runs.register("a")
        await runs.claim("a", this_process("test"))
        assert str((await runs.get("a")).standing) == "queued: crashed"
        assert (await runs.claim("a", this_process("test"))).epoch == 2

    async def test_a_broken_direct_connection_is_locked_again_at_the_next_beat(
        self, database: Database, runs: PostgresRuns
    ) -> None:
        """A live holder that lost its session is alive again before anybody overtakes it."""
        await runs.register("a")
        claim = await runs.claim("a", this_process("test"))
        async with database.direct() as connection:
            pid = connection.info.backend_pid
        async with database.transaction() as connection:
            await connection.execute("SELECT pg_terminate_backend(%s)", (pid,))
        assert (await runs.beat("a", claim.epoch)).held
        assert str((await runs.get("a")).standing) == "running"

    async def test_text_that_postgres_has_no_form_for_is_shown_replaced(self, runs: PostgresRuns) -> None:
        """The registry is for people; the state keeps the goal exactly."""
        await runs.register("a", goal="a\0b\ud800")
        assert (await runs.get("a")).goal == "a\ufffdb?"


class TestPostgresLedger(LedgerContract):
    @pytest.fixture
    async def ledger(self, database: Database) -> PostgresLedger:
        runs = runs_on(database)
        await runs.register("r")
        await runs.register("branch", parent="r")
        for run_id in ("r", "branch"):
            await runs.claim(run_id, this_process("test"))
        return PostgresLedger(database=database)

    async def test_a_row_that_this_version_cannot_read_is_refused(self, ledger: PostgresLedger) -> None:
        """And left as it is."""
        await ledger.claim(intent(), epoch=1)
        await ledger.settle("r", "c1", {}, epoch=1)
        async with ledger._database.transaction() as connection:
            await connection.execute("UPDATE effects SET receipt = %s", (b"\xc1 of another kind",))
        with pytest.raises(EffectRefused, match="can't be read by this version"):
            await ledger.claim(intent(), epoch=1)


class TestPostgresApprovals(ApprovalsContract):
    @pytest.fixture
    def approvals(self, database: Database) -> PostgresApprovals:
        return PostgresApprovals(database=database, queue=Queue(database=database, lease_seconds=60))
