"""What the figures were measured on; without it they say nothing."""

from __future__ import annotations

import os
import platform

from pydantic import BaseModel, ConfigDict

from state.database import Database


class Machine(BaseModel):
    """The machine's size, and what of its set-up decides the figures."""

    model_config = ConfigDict(frozen=True)

    cores: int
    memory_gb: float
    python: str
    system: str
    load: float
    """Processes that wanted to run, on average of the last minute: above `cores`, the figures are too slow."""
    postgresql: str
    fsync: str
    synchronous_commit: str


async def machine(database: Database) -> Machine:
    async with database.transaction() as connection:
        cursor = await connection.execute(
            "SELECT current_setting('server_version') AS postgresql, current_setting('fsync') AS fsync, "
            "current_setting('synchronous_commit') AS synchronous_commit"
        )
        row = await cursor.fetchone()
    return Machine(
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        memory_gb=round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        python=platform.python_version(),
        system=f"{platform.system()} {platform.release()}",
        load=round(os.getloadavg()[0], 1),
        **(row or {}),
    )
