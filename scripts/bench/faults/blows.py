"""What happens to the database while a run works."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import psycopg

from state import embedded

AWAY_SECONDS: Final = 1.0
_CUT: Final = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
    "WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
)
_LOCK: Final = "LOCK TABLE devfix.runs, devfix.checkpoints, devfix.steps IN ACCESS EXCLUSIVE MODE"


class Blows:
    """Strikes at one database. Only one of an own server (`home`) can be started anew."""

    def __init__(self, url: str, home: Path | None = None) -> None:
        self._url = url
        self._home = home
        self._healing: set[asyncio.Task[None]] = set()

    async def strike(self, kind: str) -> None:
        """Returns as soon as it has happened; what lasts for a while is taken back by itself."""
        match kind:
            case "cut":
                async with self._connection() as connection:
                    await connection.execute(_CUT)
            case "restart" if self._home is not None:
                await embedded.stop(self._home)
                await embedded.start(self._home)
            case "read-only":
                await self._read_only(True)
                self._later(self._read_only_no_more())
            case "locked":
                locked = asyncio.Event()
                self._later(self._lock(locked))
                await locked.wait()
            case _:
                raise ValueError(f"there is no such blow here: {kind}")

    async def healed(self) -> None:
        """Nothing of it lasts any longer."""
        await asyncio.gather(*self._healing)

    def _later(self, healing: Any) -> None:
        task = asyncio.ensure_future(healing)
        self._healing.add(task)
        task.add_done_callback(self._healing.discard)

    async def _read_only(self, on: bool) -> None:
        async with self._connection() as connection:
            await connection.execute("SET default_transaction_read_only = off")
            name = psycopg.sql.Identifier(connection.info.dbname)
            value = psycopg.sql.SQL("on" if on else "off")
            await connection.execute(
                psycopg.sql.SQL("ALTER DATABASE {} SET default_transaction_read_only = {}").format(name, value)
            )
            await connection.execute(_CUT)

    async def _read_only_no_more(self) -> None:
        await asyncio.sleep(AWAY_SECONDS)
        await self._read_only(False)

    async def _lock(self, locked: asyncio.Event) -> None:
        async with self._connection() as connection, connection.transaction():
            await connection.execute(_LOCK)
            locked.set()
            await asyncio.sleep(AWAY_SECONDS)

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
        async with await psycopg.AsyncConnection.connect(self._url, autocommit=True) as connection:
            yield connection
