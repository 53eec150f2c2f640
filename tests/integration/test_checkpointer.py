"""The fenced saver keeps the public contract, and keeps out whoever does not hold the run."""

from __future__ import annotations

from collections.abc import AsyncIterator

from langgraph.checkpoint.conformance import checkpointer_test, validate

from state.checkpointer import FencedSaver
from state.database import Database
from state.runs import PostgresRuns


def saver_of(database: Database) -> FencedSaver:
    return FencedSaver(database=database, runs=PostgresRuns(database=database, lease_seconds=5))


async def test_the_public_conformance_suite_passes_whole(database: Database) -> None:
    """Every base and extended capability, copy_thread and delete_for_runs included."""

    @checkpointer_test(name="FencedSaver")
    async def savers() -> AsyncIterator[FencedSaver]:
        yield saver_of(database)

    report = await validate(savers)

    assert report.passed_all(), {
        name: result.failures for name, result in report.results.items() if result.failures
    }
