"""The steps of a run: one row a saved superstep, written in the transaction of its checkpoint.

A number is never used again, also where an in-thread fork makes LangGraph's own `metadata.step` repeat itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from pydantic import BaseModel, ConfigDict

from state.database import Database
from state.errors import StepNotFound
from state.ids import short
from state.runs import pruned


class Step(BaseModel):
    """One saved superstep."""

    model_config = ConfigDict(frozen=True)

    run_id: str
    number: int
    checkpoint_id: str
    parent_id: str | None
    epoch: int
    source: str
    """loop, input, fork or update: what made LangGraph save."""
    nodes: list[str]
    status: str | None
    snapshot: str | None
    at: datetime


class Steps:
    """Reads table `steps`; it is written by `record_step` alone (migration 0003)."""

    def __init__(self, *, database: Database) -> None:
        self._database = database

    async def of(self, run_id: str) -> Sequence[Step]:
        """The run's steps, oldest first."""
        async with self._database.transaction() as connection:
            cursor = await connection.execute("SELECT * FROM steps WHERE run_id = %s ORDER BY number", (run_id,))
            return [Step.model_validate(row) for row in await cursor.fetchall()]

    async def get(self, run_id: str, number: int) -> Step:
        """Raises StepNotFound, also for a step of a run that was pruned."""
        async with self._database.transaction() as connection:
            cursor = await connection.execute(
                "SELECT steps.*, pruned_at FROM steps JOIN runs USING (run_id) WHERE run_id = %s AND number = %s",
                (run_id, number),
            )
            row = await cursor.fetchone()
        if row is None:
            name = short(run_id)
            raise StepNotFound(f"run {name} has no step {number}; `devfix history {name}` lists its steps")
        if row["pruned_at"]:
            raise StepNotFound(pruned(run_id, row["pruned_at"]))
        return Step.model_validate(row)
