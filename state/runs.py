"""The run registry: one row a run; who holds it, how it stands, and since when."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple, Protocol

from psycopg import AsyncConnection
from psycopg.rows import DictRow
from pydantic import BaseModel, ConfigDict, JsonValue

from state.connection import Connection
from state.database import Database
from state.errors import Refused, RunBusy, RunNotFound, StepNotFound
from state.holder import Holder
from state.ids import short
from state.patience import patient
from state.queue import Queue
from state.status import TERMINAL, Standing, Status, standing_of

GOAL_CHARACTERS = 100_000
"""Of a goal, as the registry shows it; the state has it whole."""
FENCED_SQLSTATE = "DF001"
"""Raised by the functions `hold_run` and `record_step` for whoever is not the run's present attempt."""


class Run(BaseModel):
    """A run as the registry knows it; the saved state knows more."""

    model_config = ConfigDict(frozen=True)

    run_id: str
    goal: str
    job: str
    model: str | None
    status: Status
    reason: str | None
    report: dict[str, JsonValue] | None
    epoch: int
    step: int
    holder: Holder | None
    cancel_requested_by: str | None
    parent: str | None
    branched_at: int | None
    cost_usd: float
    tokens: int
    created_at: datetime
    updated_at: datetime
    pruned_at: datetime | None = None
    """Since when its states and files are gone."""

    @property
    def standing(self) -> Standing:
        return standing_of(self.status, self.reason)


class Claim(NamedTuple):
    """An attempt's hold on a run."""

    epoch: int
    step: int
    """The number of the last saved step."""
    former: Holder | None
    """Who held the run when its attempt ended without settling; None after an attempt that settled."""
    standing: Standing
    """How the run stood before."""


class Beat(NamedTuple):
    """What a heartbeat learns."""

    held: bool
    """False: another attempt has taken the run over."""
    cancel_requested_by: str | None


class Former(NamedTuple):
    """An earlier attempt, as far as it is known."""

    holder: Holder
    ended: bool
    """It settled: its process did nothing more for the run after that."""


class Past(NamedTuple):
    """An attempt that has no further part in its run: the run has ended, or another attempt came after it."""

    run_id: str
    epoch: int
    former: Former


class Settled(NamedTuple):
    """How a run was put down: what others may want to be told."""

    run_id: str
    goal: str
    step: int
    standing: Standing
    report: Mapping[str, JsonValue]


Announce = Callable[[Connection, Settled], Awaitable[None]]
"""Called in the transaction that settles a run."""


class Runs(Protocol):
    """What every run store promises; the same tests hold each of them to it."""

    async def register(
        self,
        run_id: str,
        *,
        goal: str = "",
        job: str = "",
        model: str | None = None,
        parent: str | None = None,
        branched_at: int | None = None,
        step: int = 0,
    ) -> None:
        """Make the run known on first sight, its steps numbered on from `step`; a known run stays as it is."""

    async def describe(self, run_id: str, *, goal: str, job: str, model: str) -> None:
        """What the run turned out to be, once its job has begun it."""

    async def claim(self, run_id: str, holder: Holder) -> Claim:
        """Hold the run under a new epoch. Raises RunBusy while a live attempt holds it, RunNotFound."""

    async def beat(self, run_id: str, epoch: int) -> Beat:
        """Say that the attempt lives."""

    async def settle(
        self,
        run_id: str,
        epoch: int,
        standing: Standing,
        report: Mapping[str, JsonValue] | None = None,
        *,
        due_seconds: float | None = None,
    ) -> bool:
        """End the attempt with what came of it; False, and nothing written, when another attempt holds the run.

        A worker goes on with the run after `due_seconds`, if nobody has until then; without it, a person does.
        """

    async def stopped(self, run_id: str, epoch: int) -> None:
        """Say that an attempt which was overtaken has noticed it: nothing of it runs any more."""

    async def seize(self, run_id: str) -> int | None:
        """Raise the epoch for a save from outside any attempt; None for an unknown run. Raises RunBusy."""

    async def request_cancel(self, run_id: str, by: str) -> Run:
        """Record a cancel: a live attempt sees it at its next beat, a run that nobody holds is cancelled at once."""

    async def attempt(self, run_id: str, epoch: int) -> Former:
        """Who held the run under this epoch. Raises RunNotFound."""

    async def past(self, run_ids: Collection[str]) -> Sequence[Past]:
        """The attempts of these runs that have no further part in them; unknown runs have none."""

    async def get(self, run_id: str) -> Run:
        """Raises RunNotFound."""

    async def find(self, prefix: str) -> Run:
        """The run with this id, unambiguous prefix, or `last`. Raises RunNotFound, Refused if ambiguous."""

    async def newest(self, limit: int = 50) -> Sequence[Run]: ...


def lock_key(schema: str, run_id: str, epoch: int) -> int:
    """The advisory lock of one attempt. Each epoch has its own, so a frozen holder's lock never blocks the next."""
    digest = hashlib.sha256(f"{schema}\0{run_id}\0{epoch}".encode()).digest()
    return int.from_bytes(digest[:8], "big", signed=True)


_COLUMNS = """
    run_id, goal, job, model, report, epoch, step, holder, cancel_requested_by, parent, branched_at, cost_usd, tokens,
    created_at, updated_at, pruned_at,
    CASE WHEN status = 'running' AND NOT is_alive(lock_key, heartbeat_at, %(lease)s) THEN 'queued' ELSE status END
        AS status,
    CASE WHEN status = 'running' AND NOT is_alive(lock_key, heartbeat_at, %(lease)s) THEN 'crashed' ELSE reason END
        AS reason
"""


class PostgresRuns:
    """Runs in table `runs`, attempts in table `attempts`."""

    def __init__(
        self, *, database: Database, queue: Queue, lease_seconds: float, announce: Announce | None = None
    ) -> None:
        self._database = database
        self._queue = queue
        self._announce = announce
        self._lease = lease_seconds
        self._locks: dict[tuple[str, int], int] = {}

    async def register(
        self,
        run_id: str,
        *,
        goal: str = "",
        job: str = "",
        model: str | None = None,
        parent: str | None = None,
        branched_at: int | None = None,
        step: int = 0,
    ) -> None:
        async with self._database.transaction() as connection:
            await connection.execute(
                "INSERT INTO runs (run_id, goal, job, model, parent, branched_at, step) "
                "VALUES (%s, %s, %s, %s, %s, %s, %s) ON CONFLICT (run_id) DO NOTHING",
                (run_id, goal[:GOAL_CHARACTERS], job, model, parent, branched_at, step),
            )

    @patient
    async def describe(self, run_id: str, *, goal: str, job: str, model: str) -> None:
        async with self._database.transaction() as connection:
            await connection.execute(
                "UPDATE runs SET goal = %s, job = %s, model = %s WHERE run_id = %s",
                (goal[:GOAL_CHARACTERS], job, model, run_id),
            )

    async def claim(self, run_id: str, holder: Holder) -> Claim:
        async with self._database.transaction() as connection:
            row = await self._take(connection, run_id)
            epoch = await self._lock_next(run_id, row["epoch"] + 1)
            await connection.execute(
                "UPDATE runs SET epoch = %(epoch)s, holder = %(holder)s, lock_key = %(key)s, "
                "heartbeat_at = clock_timestamp(), updated_at = clock_timestamp(), cancel_requested_by = NULL, "
                "due_at = NULL, status = CASE WHEN status = ANY(%(terminal)s) THEN status ELSE 'running' END, "
                "reason = CASE WHEN status = ANY(%(terminal)s) THEN reason END, "
                "report = CASE WHEN status = ANY(%(terminal)s) THEN report END WHERE run_id = %(run)s",
                {
                    "epoch": epoch,
                    "holder": holder.model_dump_json(),
                    "key": lock_key(self._database.schema, run_id, epoch),
                    "terminal": sorted(TERMINAL),
                    "run": run_id,
                },
            )
            await connection.execute(
                "INSERT INTO attempts (run_id, epoch, holder) VALUES (%s, %s, %s)",
                (run_id, epoch, holder.model_dump_json()),
            )
        former = Holder.model_validate(row["holder"]) if row["holder"] else None
        return Claim(epoch, row["step"], former, standing_of(row["status"], row["reason"]))

    async def _take(self, connection: AsyncConnection[DictRow], run_id: str) -> DictRow:
        """The run's row, locked for this transaction, if no live attempt holds it."""
        cursor = await connection.execute(
            "SELECT epoch, step, holder, status, reason, pruned_at, is_alive(lock_key, heartbeat_at, %s) AS alive "
            "FROM runs WHERE run_id = %s FOR UPDATE",
            (self._lease, run_id),
        )
        row = await cursor.fetchone()
        if row is None:
            raise RunNotFound(f"there is no run {run_id}; `devfix runs` lists the runs there are")
        if row["pruned_at"]:
            raise StepNotFound(pruned(run_id, row["pruned_at"]))
        if row["alive"]:
            raise RunBusy(
                f"run {short(run_id)} is held by {Holder.model_validate(row['holder'])} (attempt {row['epoch']}); "
                "nothing was changed: wait for it, or cancel it with `devfix cancel`"
            )
        return row

    async def _lock_next(self, run_id: str, epoch: int) -> int:
        """The epoch whose lock this process has now: this one, or a later one where a process that was frozen in the
        middle of its claim has the lock of an epoch that it never got."""
        while True:
            async with self._database.direct() as connection:
                key = lock_key(self._database.schema, run_id, epoch)
                cursor = await connection.execute("SELECT pg_try_advisory_lock(%s) AS locked", (key,))
                row = await cursor.fetchone()
            if row is not None and row["locked"]:
                self._locks[run_id, epoch] = self._database.direct_generation
                return epoch
            epoch += 1

    async def _lock(self, run_id: str, epoch: int) -> None:
        async with self._database.direct() as connection:
            await connection.execute("SELECT pg_advisory_lock(%s)", (lock_key(self._database.schema, run_id, epoch),))
        self._locks[run_id, epoch] = self._database.direct_generation

    async def _unlock(self, run_id: str, epoch: int) -> None:
        if self._locks.pop((run_id, epoch), None) != self._database.direct_generation:
            return
        async with self._database.direct() as connection:
            await connection.execute("SELECT pg_advisory_unlock(%s)", (lock_key(self._database.schema, run_id, epoch),))

    @patient
    async def beat(self, run_id: str, epoch: int) -> Beat:
        async with self._database.direct() as connection:
            await connection.execute("SELECT 1")
        if self._locks.get((run_id, epoch)) != self._database.direct_generation:
            await self._lock(run_id, epoch)
        async with self._database.transaction() as connection:
            # A beat need not outlive a power cut, so its commit does not wait for the disk.
            cursor = await connection.execute(
                "UPDATE runs SET heartbeat_at = clock_timestamp() WHERE run_id = %s AND epoch = %s "
                "RETURNING cancel_requested_by, set_config('synchronous_commit', 'off', true)",
                (run_id, epoch),
            )
            row = await cursor.fetchone()
        return Beat(row is not None, row["cancel_requested_by"] if row else None)

    @patient
    async def settle(
        self,
        run_id: str,
        epoch: int,
        standing: Standing,
        report: Mapping[str, JsonValue] | None = None,
        *,
        due_seconds: float | None = None,
    ) -> bool:
        async with self._database.transaction() as connection:
            cursor = await connection.execute(
                "UPDATE runs SET status = %s, reason = %s, report = coalesce(%s, report), holder = NULL, "
                "lock_key = NULL, heartbeat_at = NULL, cancel_requested_by = NULL, updated_at = clock_timestamp(), "
                "due_at = clock_timestamp() + make_interval(secs => %s::float8) WHERE run_id = %s AND epoch = %s "
                "RETURNING goal, step",
                (standing.status, standing.reason, _json(report), due_seconds, run_id, epoch),
            )
            if self._announce and (row := await cursor.fetchone()):
                await self._announce(connection, Settled(run_id, row["goal"], row["step"], standing, report or {}))
            if due_seconds == 0 and cursor.rowcount:
                await self._queue.enqueue(connection, run_id)
            await connection.execute(
                "UPDATE attempts SET ended_at = clock_timestamp(), outcome = %s WHERE run_id = %s AND epoch = %s",
                (str(standing), run_id, epoch),
            )
        await self._unlock(run_id, epoch)
        return cursor.rowcount == 1

    @patient
    async def stopped(self, run_id: str, epoch: int) -> None:
        async with self._database.transaction() as connection:
            await connection.execute(
                "UPDATE attempts SET ended_at = clock_timestamp(), outcome = 'overtaken' "
                "WHERE run_id = %s AND epoch = %s AND ended_at IS NULL",
                (run_id, epoch),
            )
        await self._unlock(run_id, epoch)

    async def seize(self, run_id: str) -> int | None:
        async with self._database.transaction() as connection:
            try:
                row = await self._take(connection, run_id)
            except RunNotFound:
                return None
            await connection.execute("UPDATE runs SET epoch = epoch + 1 WHERE run_id = %s", (run_id,))
            return int(row["epoch"]) + 1

    async def request_cancel(self, run_id: str, by: str) -> Run:
        async with self._database.transaction() as connection:
            cursor = await connection.execute(
                "UPDATE runs SET cancel_requested_by = %(by)s, updated_at = clock_timestamp(), "
                "epoch = epoch + CASE WHEN is_alive(lock_key, heartbeat_at, %(lease)s) THEN 0 ELSE 1 END, "
                "status = CASE WHEN is_alive(lock_key, heartbeat_at, %(lease)s) THEN status ELSE 'cancelled' END, "
                "reason = CASE WHEN is_alive(lock_key, heartbeat_at, %(lease)s) THEN reason ELSE 'by_person' END "
                "WHERE run_id = %(run)s AND NOT status = ANY(%(terminal)s)",
                {"by": by, "lease": self._lease, "run": run_id, "terminal": sorted(TERMINAL)},
            )
        run = await self.get(run_id)
        if cursor.rowcount == 0:
            raise Refused(f"run {short(run_id)} has ended ({run.standing}); nothing was changed")
        return run

    @patient
    async def attempt(self, run_id: str, epoch: int) -> Former:
        async with self._database.transaction() as connection:
            cursor = await connection.execute(
                "SELECT holder, ended_at FROM attempts WHERE run_id = %s AND epoch = %s", (run_id, epoch)
            )
            row = await cursor.fetchone()
        if row is None:
            raise RunNotFound(f"run {short(run_id)} has no attempt {epoch}")
        return Former(Holder.model_validate(row["holder"]), row["ended_at"] is not None)

    async def past(self, run_ids: Collection[str]) -> Sequence[Past]:
        async with self._database.transaction() as connection:
            cursor = await connection.execute(
                "SELECT run_id, attempts.epoch, attempts.holder, ended_at FROM attempts JOIN runs USING (run_id) "
                "WHERE run_id = ANY(%s) AND (status = ANY(%s) OR EXISTS (SELECT FROM attempts AS later "
                "WHERE later.run_id = attempts.run_id AND later.epoch > attempts.epoch))",
                (list(run_ids), sorted(TERMINAL)),
            )
            rows = await cursor.fetchall()
        return [
            Past(row["run_id"], row["epoch"], Former(Holder.model_validate(row["holder"]), row["ended_at"] is not None))
            for row in rows
        ]

    @patient
    async def get(self, run_id: str) -> Run:
        rows = await self._select("WHERE run_id = %(run)s", {"run": run_id})
        if not rows:
            raise RunNotFound(f"there is no run {run_id}; `devfix runs` lists the runs there are")
        return rows[0]

    async def find(self, prefix: str) -> Run:
        if prefix == "last":
            rows = await self._select("ORDER BY created_at DESC LIMIT 1", {})
        else:
            rows = await self._select("WHERE starts_with(run_id, %(prefix)s) LIMIT 2", {"prefix": prefix})
        return the_one(rows, prefix)

    async def newest(self, limit: int = 50) -> Sequence[Run]:
        return await self._select("ORDER BY created_at DESC LIMIT %(limit)s", {"limit": limit})

    async def _select(self, where: str, values: Mapping[str, Any]) -> list[Run]:
        async with self._database.transaction() as connection:
            cursor = await connection.execute(f"SELECT {_COLUMNS} FROM runs {where}", {**values, "lease": self._lease})  # noqa: S608 - constants of this module
            rows = await cursor.fetchall()
        return [Run.model_validate(row) for row in rows]


def the_one(rows: Sequence[Run], prefix: str) -> Run:
    """Raises RunNotFound or, for a prefix that several runs share, Refused."""
    if not rows or not prefix:
        raise RunNotFound(f"there is no run {prefix!r}; `devfix runs` lists the runs there are")
    if len(rows) > 1 and rows[0].run_id != prefix:
        raise Refused(f"{prefix!r} is the beginning of several runs' ids; give more of it")
    return rows[0]


def pruned(run_id: str, at: datetime) -> str:
    """The sentence for who wants a state that is gone."""
    return (
        f"run {short(run_id)} was pruned on {at:%Y-%m-%d}: its states and files are gone; its report, steps, "
        "approvals, effects and costs are kept"
    )


def _json(report: Mapping[str, JsonValue] | None) -> str | None:
    return None if report is None else json.dumps(report, ensure_ascii=False, default=str)
