"""procrastinate on our own connections: the pool for what it asks, a session of its own for what it listens to.

Imported by who uses the queue alone: procrastinate takes a tenth of a second and more to import.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Any, LiteralString

import psycopg
from procrastinate import PsycopgConnector
from procrastinate.connector import Notify
from procrastinate.exceptions import ConnectorException
from procrastinate.jobs import Status
from procrastinate.manager import JobManager
from psycopg import sql

from state.database import Database
from state.errors import DatabaseUnavailable
from state.patience import patiently

LISTEN_AGAIN_SECONDS = 1.0
_log = logging.getLogger(__name__)


class DatabaseConnector(PsycopgConnector):
    """Runs procrastinate's statements in our schema, and waits while the database is away for a moment.

    Raises DatabaseUnavailable when it stays away.
    """

    def __init__(self, database: Database) -> None:
        super().__init__()
        self._database = database

    async def open_async(self, pool: Any = None) -> None:
        await self._database.open()

    async def close_async(self) -> None:
        """The database is closed by who opened it."""

    async def execute_query_async(self, query: LiteralString, **arguments: Any) -> None:
        await self.execute_query_all_async(query, **arguments)

    async def execute_query_one_async(self, query: LiteralString, **arguments: Any) -> dict[str, Any]:
        return (await self.execute_query_all_async(query, **arguments))[0]

    async def execute_query_all_async(self, query: LiteralString, **arguments: Any) -> list[dict[str, Any]]:
        # A job that was fetched twice, because the first answer got lost, is an orphan that is found and dropped.
        async def once() -> list[dict[str, Any]]:
            async with self._database.transaction() as connection:
                rows = await self.execute_query_all_async_with_connection(connection, query, **arguments)
            return list(rows)

        return await patiently(once)

    async def listen_notify(self, on_notification: Notify, channels: Iterable[str]) -> None:
        """Until cancelled, on one session after another. What is said while there is none, polling finds out."""
        while True:
            try:
                async with self._database.session() as connection:
                    for channel in channels:
                        await connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel)))
                    async for notification in connection.notifies():
                        await on_notification(channel=notification.channel, payload=notification.payload)
            except (psycopg.OperationalError, DatabaseUnavailable) as error:
                _log.debug("not listening for jobs: %s", error)
            await asyncio.sleep(LISTEN_AGAIN_SECONDS)


class ForgivingManager(JobManager):
    """Finishing a job that is gone is no error: its worker was frozen, and others took it for dead."""

    async def finish_job_by_id_async(self, job_id: int, status: Status, delete_job: bool) -> None:
        try:
            await super().finish_job_by_id_async(job_id, status, delete_job)
        except ConnectorException as error:
            if not isinstance(error.__cause__, psycopg.errors.RaiseException):
                raise
            _log.info("job %s was dropped while it ran", job_id)
