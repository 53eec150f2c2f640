"""The queue: a job is put with the change that wakes it, and what dead workers leave behind is found."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from state.approvals import Decision, PostgresApprovals, Question
from state.database import Database
from state.holder import this_process
from state.queue import Queue
from state.runs import PostgresRuns, lock_key
from state.status import Standing

HOLDER = this_process("test")
RELEASED = Standing("queued", "released")
WAITING = Standing("waiting", "approval")
ASKS = [Question(call_id=name, tool="post", arguments={}) for name in ("c1", "c2")]
LEASE = 0.0
"""Whoever is looked for is not given any time: nothing here waits for a clock."""


@pytest.fixture
def queue(database: Database) -> Queue:
    return Queue(database=database, lease_seconds=LEASE)


@pytest.fixture
def runs(database: Database, queue: Queue) -> PostgresRuns:
    return PostgresRuns(database=database, queue=queue, lease_seconds=60)


@pytest.fixture
def approvals(database: Database, queue: Queue) -> PostgresApprovals:
    return PostgresApprovals(database=database, queue=queue)


@pytest.fixture
def lose(database: Database) -> Callable[[], Awaitable[None]]:
    async def lose() -> None:
        """A process that dies gives up its session's locks."""
        async with database.direct() as connection:
            await connection.execute("SELECT pg_advisory_unlock_all()")

    return lose


async def jobs(queue: Queue) -> list[tuple[str, str]]:
    listed = await queue.app.job_manager.list_jobs_async()
    return [(str(job.task_kwargs["run_id"]), str(job.status)) for job in listed]


async def fetched(queue: Queue) -> Any:
    """A job as a worker takes it."""
    manager = queue.app.job_manager
    return await manager.fetch_job(["devfix"], await manager.register_worker())


async def abandoned(queue: Queue) -> list[str]:
    return [each.run_id for each in await queue.look()]


async def test_a_job_is_put_with_the_callers_transaction_or_not_at_all(database: Database, queue: Queue) -> None:
    """And a second one, for a run that has one already, leaves the transaction whole."""
    async with database.transaction() as connection, connection.transaction(force_rollback=True):
        await queue.enqueue(connection, "a")
    assert await jobs(queue) == []
    for _ in range(2):
        async with database.transaction() as connection:
            await queue.enqueue(connection, "a")
            await connection.execute("INSERT INTO runs (run_id) VALUES (gen_random_uuid()::text)")
    assert await jobs(queue) == [("a", "todo")]
    async with database.transaction() as connection:
        cursor = await connection.execute("SELECT count(*) AS n FROM runs")
        assert await cursor.fetchone() == {"n": 2}


async def test_two_jobs_of_a_run_do_not_run_side_by_side(queue: Queue) -> None:
    """The second one, put while the first runs, is for what has happened since."""
    await queue.put("a")
    first = await fetched(queue)
    await queue.put("a")
    assert await jobs(queue) == [("a", "doing"), ("a", "todo")]
    assert await fetched(queue) is None
    await queue.app.job_manager.finish_job_by_id_async(first.id, status=_succeeded(), delete_job=True)
    assert (await fetched(queue)).task_kwargs == {"run_id": "a"}


async def test_a_released_run_is_queued_where_it_is_due(runs: PostgresRuns, queue: Queue) -> None:
    """At once, in the transaction that releases it; what a person put down stays put down."""
    for name, due_seconds in (("now", 0.0), ("person", None), ("late", 3600.0)):
        await runs.register(name)
        claim = await runs.claim(name, HOLDER)
        await runs.settle(name, claim.epoch, RELEASED, due_seconds=due_seconds)
    assert await jobs(queue) == [("now", "todo")]
    assert await abandoned(queue) == []


async def test_a_run_that_was_due_and_has_no_job_is_found(runs: PostgresRuns, queue: Queue) -> None:
    """Its process died between having saved the run and having begun it."""
    await runs.register("a")
    await runs.settle("a", 0, Standing("queued", "new"), due_seconds=-1.0)
    assert await abandoned(queue) == ["a"]
    await queue.put("a")
    assert await abandoned(queue) == []
    await runs.claim("a", HOLDER)
    await runs.settle("a", 1, RELEASED)
    assert await abandoned(queue) == []


async def test_a_run_whose_holder_is_gone_is_found_and_its_job_freed(
    runs: PostgresRuns, database: Database, queue: Queue, lose: Callable[[], Awaitable[None]]
) -> None:
    """With the holder, and how often in a row it died without a step; a living one is left alone."""
    patient = Queue(database=database, lease_seconds=60)
    await runs.register("a")
    await queue.put("a")
    await fetched(queue)
    await runs.claim("a", HOLDER)
    assert await patient.look() == []
    assert await jobs(queue) == [("a", "doing")]
    await lose()
    (found,) = await patient.look()
    assert (found.run_id, found.epoch, found.holder, found.crashes) == ("a", 1, HOLDER, 1)
    assert await jobs(queue) == []


async def test_a_takeover_that_has_just_begun_is_not_disturbed(
    runs: PostgresRuns, database: Database, queue: Queue, lose: Callable[[], Awaitable[None]]
) -> None:
    """A worker has taken the job and not yet claimed the run; were it to die, it would be found after two seconds."""
    await runs.register("a")
    await runs.claim("a", HOLDER)
    await lose()
    await queue.put("a")
    await fetched(queue)
    patient = Queue(database=database, lease_seconds=60)
    assert await patient.look() == []
    assert await jobs(queue) == [("a", "doing")]
    async with database.transaction() as connection:
        await connection.execute("UPDATE procrastinate_events SET at = at - interval '3 seconds'")
        await connection.execute("UPDATE attempts SET began_at = began_at - interval '5 seconds'")
    assert [each.run_id for each in await patient.look()] == ["a"]
    assert await jobs(queue) == []


async def test_a_claim_that_froze_before_it_was_made_keeps_nobody_from_the_run(
    runs: PostgresRuns, database: Database
) -> None:
    """Its process still has the lock of the epoch that it would have got; the next claim gets a later one."""
    await runs.register("a")
    async with database.session() as frozen:
        await frozen.execute("SELECT pg_advisory_lock(%s)", (lock_key(database.schema, "a", 1),))
        claim = await asyncio.wait_for(runs.claim("a", HOLDER), 60)
    assert claim.epoch == 2
    assert (await runs.beat("a", 2)).held


async def test_crashes_in_a_row_end_with_a_step_or_an_outcome(
    runs: PostgresRuns, database: Database, queue: Queue, lose: Callable[[], Awaitable[None]]
) -> None:
    """Only an attempt that came no further counts."""

    async def crash() -> int:
        claim = await runs.claim("a", HOLDER)
        await lose()
        (found,) = await queue.look()
        assert found.epoch == claim.epoch
        return found.crashes

    await runs.register("a")
    assert [await crash() for _ in range(3)] == [1, 2, 3]
    claim = await runs.claim("a", HOLDER)
    async with database.transaction() as connection:
        await connection.execute(
            "SELECT record_step('a', %s, 'checkpoint', NULL, 'loop', '{}', 'running', NULL, NULL, 0, 0)", (claim.epoch,)
        )
    await lose()
    assert (await queue.look())[0].crashes == 0
    assert await crash() == 1
    claim = await runs.claim("a", HOLDER)
    await runs.settle("a", claim.epoch, RELEASED)
    assert await crash() == 1


async def test_the_last_answer_wakes_a_worker(runs: PostgresRuns, approvals: PostgresApprovals, queue: Queue) -> None:
    """In its own transaction; what an older turn left open does not hold it up."""
    await runs.register("a")
    await approvals.ask("a", [Question(call_id="old", tool="post", arguments={})], ttl_seconds=None)
    await approvals.ask("a", ASKS, ttl_seconds=None)
    await approvals.decide("a", "c1", Decision(type="approve"), by="eve", wake=True)
    assert await jobs(queue) == []
    await approvals.decide("a", "c2", Decision(type="approve"), by="eve", wake=True)
    assert await jobs(queue) == [("a", "todo")]


@pytest.mark.parametrize("how", ["answered", "expired"])
async def test_b25_a_run_that_waits_for_nothing_any_more_is_found(
    runs: PostgresRuns, approvals: PostgresApprovals, queue: Queue, how: str
) -> None:
    """B25: whoever answered died before going on, or nobody answered in time; while something is open it waits."""
    await runs.register("a")
    claim = await runs.claim("a", HOLDER)
    await approvals.ask("a", ASKS[:1], ttl_seconds=None)
    await approvals.ask("a", ASKS[:2], ttl_seconds=None)
    await runs.settle("a", claim.epoch, WAITING)
    await approvals.decide("a", "c1", Decision(type="approve"), by="eve")
    assert await abandoned(queue) == []
    if how == "answered":
        await approvals.decide("a", "c2", Decision(type="reject"), by="eve")
    else:
        await approvals.ask("a", [ASKS[0], ASKS[1].model_copy(update={"call_id": "c3"})], ttl_seconds=0.0)
    assert await abandoned(queue) == ["a"]


async def test_two_rescues_at_once_put_one_job(
    runs: PostgresRuns, queue: Queue, database: Database, lose: Callable[[], Awaitable[None]]
) -> None:
    """Whoever comes second finds it there."""
    await runs.register("a")
    await runs.claim("a", HOLDER)
    await lose()
    other = Queue(database=database, lease_seconds=LEASE)
    assert await abandoned(queue) == await abandoned(other) == ["a"]
    await queue.put("a")
    await other.put("a")
    assert await jobs(queue) == [("a", "todo")]


def _succeeded() -> Any:
    from procrastinate.jobs import Status

    return Status.SUCCEEDED
