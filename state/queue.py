"""The queue: a job says "advance this run" to whichever worker is free.

A job is a wake-up and nothing more. Whether a run may be advanced, and by whom, is for the claim to say; how it stands
is for the registry. So a job too many does no harm, and one that was lost is found missing (`look`) and put again.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from state.connection import Connection
from state.database import Database
from state.holder import Holder
from state.patience import patient

if TYPE_CHECKING:
    from procrastinate import App

QUEUE = "devfix"
"""A name of our own: procrastinate announces jobs to all of a database's schemas by the queue's name."""
ADVANCE = "devfix.advance"
"""The name of the one task; a worker registers what it does."""


class Abandoned(NamedTuple):
    """A run that nobody goes on with although somebody should."""

    run_id: str
    epoch: int
    holder: Holder | None
    """The process that went away with it; None where nobody held it."""
    crashes: int
    """How many attempts in a row died without having saved a step."""


class Queue:
    """Jobs in procrastinate's tables (migration 0009)."""

    def __init__(self, *, database: Database, lease_seconds: float) -> None:
        self._database = database
        self._lease = lease_seconds

    @cached_property
    def app(self) -> App:
        """procrastinate on our database. Made at first use: commands that put no job need not wait for its import."""
        from procrastinate import App

        from state.queue_connector import DatabaseConnector, ForgivingManager

        app = App(connector=DatabaseConnector(self._database))
        app.job_manager = ForgivingManager(app.connector)
        return app

    async def enqueue(self, connection: Connection, run_id: str, *, after_seconds: int = 0) -> None:
        """Wake a worker for this run when the caller's transaction commits. A job that waits already is enough."""
        from procrastinate.exceptions import AlreadyEnqueued

        job = self.app.configure_task(
            ADVANCE,
            queue=QUEUE,
            lock=run_id,
            queueing_lock=f"{run_id}:advance",
            schedule_in={"seconds": after_seconds} if after_seconds else None,
            connection=connection,
        )
        try:
            # A savepoint, because a refused insert would end the caller's transaction with it.
            async with connection.transaction():
                await job.defer_async(run_id=run_id)
        except AlreadyEnqueued:
            return

    @patient
    async def look(self) -> list[Abandoned]:
        """Free what dead workers left locked, and tell which runs lack somebody who goes on with them."""
        async with self._database.transaction() as connection:
            await connection.execute("SELECT drop_orphaned_jobs(%s)", (self._lease,))
            cursor = await connection.execute("SELECT * FROM runs_without_anybody(%s)", (self._lease,))
            rows = await cursor.fetchall()
        return [
            Abandoned(
                row["run_id"],
                row["epoch"],
                Holder.model_validate(row["holder"]) if row["holder"] else None,
                row["crashes"],
            )
            for row in rows
        ]

    @patient
    async def put(self, run_id: str, *, after_seconds: int = 0) -> None:
        """Wake a worker for this run, now or later."""
        async with self._database.transaction() as connection:
            await self.enqueue(connection, run_id, after_seconds=after_seconds)
