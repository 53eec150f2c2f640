"""The stores in memory keep the promise of the real ones."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from tests.contracts.approvals import ApprovalsContract
from tests.contracts.ledger import LedgerContract
from tests.contracts.runs import RunsContract
from tests.helpers.memory_stores import MemoryApprovals, MemoryLedger, MemoryRuns


class TestMemoryRuns(RunsContract):
    @pytest.fixture
    def runs(self) -> MemoryRuns:
        return MemoryRuns()

    @pytest.fixture
    def lose(self, runs: MemoryRuns) -> Callable[[str], Awaitable[None]]:
        async def lose(run_id: str) -> None:
            runs.lose(run_id)

        return lose


class TestMemoryLedger(LedgerContract):
    @pytest.fixture
    def ledger(self) -> MemoryLedger:
        ledger = MemoryLedger()
        ledger.epochs = {"r": 1, "branch": 1}
        ledger.parents["branch"] = "r"
        return ledger


class TestMemoryApprovals(ApprovalsContract):
    @pytest.fixture
    def approvals(self) -> MemoryApprovals:
        return MemoryApprovals()
