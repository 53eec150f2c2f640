"""The fenced saver keeps the public contract, keeps out whoever does not hold the run, and saves a step whole."""

from __future__ import annotations

import asyncio
import contextlib
import math
import random
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import Any

import psycopg
import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.types import Command, interrupt

from scripts.bootstrap import Application
from state.checkpointer import EPOCH_KEY, FencedSaver
from state.database import Database
from state.errors import Fenced, RunBusy, Unserializable
from state.holder import this_process
from state.queue import Queue
from state.runs import PostgresRuns
from state.trace import Call, PostgresTrace
from tests.helpers.app import application_on
from tests.helpers.graphs import chain, loop, side_by_side

CONFIG: RunnableConfig = {"configurable": {"thread_id": "t"}}


@pytest.fixture
async def application(database_url: str, tmp_path: Path) -> AsyncIterator[Application]:
    application = application_on(database_url, tmp_path)
    await application.services.open()
    yield application
    await application.services.close()


def made_call(epoch: int) -> Call:
    now = datetime.now(UTC)
    return Call(
        run_id="t",
        epoch=epoch,
        step=1,
        kind="tool",
        name="look",
        call_id="c1",
        request={},
        result={"content": "a wall"},
        started_at=now,
        ended_at=now,
    )


async def same(state: dict[str, Any]) -> dict[str, Any]:
    return {}


async def test_the_public_conformance_suite_passes_whole(database: Database) -> None:
    """Every base and extended capability, copy_thread and delete_for_runs included."""
    runs = PostgresRuns(database=database, queue=Queue(database=database, lease_seconds=5), lease_seconds=5)

    @checkpointer_test(name="FencedSaver")
    async def savers() -> AsyncIterator[FencedSaver]:
        yield FencedSaver(database=database, runs=runs, trace=PostgresTrace(database=database))

    report = await validate(savers)

    assert report.passed_all(), {name: each.failures for name, each in report.results.items() if each.failures}


async def test_a_save_of_an_attempt_that_was_overtaken_is_refused(application: Application) -> None:
    """Nothing of it is kept, neither the checkpoint nor a task's writes."""
    runs = application.services.runs
    await runs.register("t")
    claim = await runs.claim("t", this_process())
    saver = application.saver()
    stale: RunnableConfig = {
        "configurable": {"thread_id": "t", "checkpoint_ns": "", "checkpoint_id": "c", EPOCH_KEY: claim.epoch - 1}
    }
    with pytest.raises(Fenced):
        await saver.aput(stale, empty_checkpoint(), {"source": "loop", "step": 0}, {})
    with pytest.raises(Fenced):
        await saver.aput_writes(stale, [("value", 1)], "task", "~__pregel_push, 0")
    assert await saver.aget_tuple(CONFIG) is None
    assert await application.steps.of("t") == []


async def test_a_call_is_recorded_with_its_step_or_not_yet(application: Application) -> None:
    """In the statement that saves the step. A save that is refused leaves the record to the attempt's end: the call was
    made, and paid."""
    runs, trace, saver = application.services.runs, application.services.trace, application.saver()
    await runs.register("t")
    claim = await runs.claim("t", this_process())
    for epoch, refused in ((claim.epoch - 1, pytest.raises(Fenced)), (claim.epoch, contextlib.nullcontext())):
        trace.record_with_step(made_call(epoch))
        where = {"thread_id": "t", "checkpoint_ns": "", EPOCH_KEY: epoch}
        with refused:
            await saver.aput({"configurable": where}, empty_checkpoint(), {"source": "loop", "step": 0}, {})
    assert [call.epoch for call in await trace.of("t")] == [claim.epoch]
    for epoch in (claim.epoch - 1, claim.epoch):
        await trace.finish("t", epoch)
    assert [call.epoch for call in await trace.of("t")] == [claim.epoch, claim.epoch - 1]
    assert len(await application.steps.of("t")) == 1


async def test_a_save_that_takes_a_record_along_waits_for_the_disk(application: Application) -> None:
    """As one that takes none."""
    trace = application.services.trace
    trace.record_with_step(made_call(1))
    async with application.database.transaction() as connection:
        await connection.execute("SET LOCAL synchronous_commit TO on")
        with trace.due("t", 1) as (record,):
            await connection.execute(f"SELECT {record.function}".encode(), record.arguments)
        cursor = await connection.execute("SHOW synchronous_commit")
        assert await cursor.fetchone() == {"synchronous_commit": "on"}


async def test_a_save_from_outside_is_taken_only_while_nobody_holds_the_run(application: Application) -> None:
    """And it raises the epoch, so whoever held the run before stays out."""
    started = asyncio.Event()

    async def slow(state: dict[str, Any]) -> dict[str, Any]:
        started.set()
        await asyncio.sleep(1)
        return {"value": 1}

    graph = chain(application, slow=slow)
    running = asyncio.create_task(graph.ainvoke({"seen": []}, CONFIG))
    await started.wait()
    with pytest.raises(RunBusy):
        await graph.aupdate_state(CONFIG, {"value": 2})
    await running
    before = (await application.services.runs.get("t")).epoch
    await graph.aupdate_state(CONFIG, {"value": 2})
    after = await application.services.runs.get("t")
    assert after.epoch > before
    assert str(after.standing) == "queued: released"
    assert (await graph.aget_state(CONFIG)).values["value"] == 2
    numbers = [step.number for step in await application.steps.of("t")]
    assert numbers == list(range(1, len(numbers) + 1))


async def test_b51_b52_b53_text_and_numbers_come_back_through_the_database(application: Application) -> None:
    """NUL, NaN, infinities and surrogates as plain fields, which LangGraph keeps in a jsonb column."""
    values: list[Any] = [
        "a\0b",
        math.inf,
        "\ud800",
        "line\nbreak",
        "\x7f",
        "ordinary",
        3,
        None,
        {"k": ["\udcff", math.nan]},
    ]

    for value in values:

        async def write(state: dict[str, Any], value: Any = value) -> dict[str, Any]:
            return {"value": value}

        config: RunnableConfig = {"configurable": {"thread_id": repr(value)}}
        graph = chain(application, write=write, then=same)
        await graph.ainvoke({"seen": []}, config)
        assert repr((await graph.aget_state(config)).values["value"]) == repr(value)


async def test_b58_what_has_no_form_is_refused_before_the_commit(application: Application) -> None:
    """The error names the field; the run ends as failed, and what was saved before stays readable."""

    async def bad(state: dict[str, Any]) -> dict[str, Any]:
        return {"value": {"deep": Fraction(1, 2)}}

    graph = chain(application, good=same, bad=bad)
    with pytest.raises(Unserializable, match=r"the state's field value .*deep is a value of type fractions.Fraction"):
        await graph.ainvoke({"seen": [1]}, CONFIG)
    assert (await graph.aget_state(CONFIG)).next == ("bad",)
    assert str((await application.services.runs.get("t")).standing) == "failed: internal"


async def test_b62_storage_grows_in_a_straight_line(application: Application) -> None:
    """400 steps of 2 KB take at most four times that, and the second half no more than the first."""
    noise = random.Random(1)

    async def work(state: dict[str, Any]) -> dict[str, Any]:
        return {"log": {"append": [{"text": f"{noise.getrandbits(8 * 1000):x}"}]}}

    graph = loop(application, work, times=200)
    sizes = []
    for _ in range(2):
        await graph.ainvoke({"seen": []}, {**CONFIG, "recursion_limit": 1000})
        async with application.database.transaction() as connection:
            cursor = await connection.execute(
                "SELECT (SELECT sum(pg_column_size(c)) FROM checkpoints c) + (SELECT sum(pg_column_size(b)) FROM "
                "checkpoint_blobs b) + (SELECT sum(pg_column_size(w)) FROM checkpoint_writes w) + "
                "(SELECT sum(pg_column_size(s)) FROM steps s) AS size"
            )
            row = await cursor.fetchone()
        assert row is not None
        sizes.append(row["size"])
    raw = 200 * 2000
    assert sizes[1] <= 4 * 2 * raw
    assert sizes[1] - sizes[0] <= 1.2 * sizes[0]
    assert len((await graph.aget_state(CONFIG)).values["log"]) == 400


async def test_b70_a_connection_that_the_server_drops_loses_no_save(application: Application) -> None:
    """pg_terminate_backend on every connection in mid-run: the save is repeated and the run goes on."""

    async def cut(state: dict[str, Any]) -> dict[str, Any]:
        async with application.database.transaction() as connection:
            await connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        return {"seen": ["cut"]}

    graph = chain(application, a=cut, b=cut, c=cut)
    await graph.ainvoke({"seen": []}, CONFIG)
    assert (await graph.aget_state(CONFIG)).values["seen"] == ["cut"] * 3
    assert str((await application.services.runs.get("t")).standing) == "completed: done"


async def test_a_finished_sibling_of_an_interrupted_node_is_not_run_again(application: Application) -> None:
    """Its writes were held back for the checkpoint that never came; they were saved all the same."""
    counts = {"quick": 0}

    async def quick(state: dict[str, Any]) -> dict[str, Any]:
        counts["quick"] += 1
        return {"seen": ["quick"]}

    async def asks(state: dict[str, Any]) -> dict[str, Any]:
        await asyncio.sleep(0.02)
        return {"seen": [interrupt("well?")]}

    graph = side_by_side(application, quick=quick, asks=asks)
    await graph.ainvoke({"seen": []}, CONFIG)
    assert str((await application.services.runs.get("t")).standing) == "waiting: approval"
    await graph.ainvoke(Command(resume="yes"), CONFIG)
    assert sorted((await graph.aget_state(CONFIG)).values["seen"]) == ["quick", "yes"]
    assert counts == {"quick": 1}


async def test_a_held_back_write_is_saved_while_its_sibling_still_runs(application: Application) -> None:
    """So that a kill in the meantime does not lose it."""

    async def quick(state: dict[str, Any]) -> dict[str, Any]:
        return {"seen": ["quick"]}

    async def slow(state: dict[str, Any]) -> dict[str, Any]:
        await asyncio.sleep(0.5)
        saved = await graph.checkpointer.aget_tuple(CONFIG)  # type: ignore[union-attr]
        return {"value": [channel for _, channel, _ in saved.pending_writes]}

    graph = side_by_side(application, quick=quick, slow=slow)
    await graph.ainvoke({"seen": []}, CONFIG)
    assert "seen" in (await graph.aget_state(CONFIG)).values["value"]


async def test_a_finished_tasks_writes_share_a_row_and_are_shown_one_by_one(application: Application) -> None:
    """Whoever looks back sees what each node wrote."""

    async def write(state: dict[str, Any]) -> dict[str, Any]:
        return {"value": "x", "seen": [1], "log": {"append": ["entry"]}}

    graph = chain(application, write=write, then=same)
    await graph.ainvoke({"seen": []}, CONFIG)
    (before,) = [each async for each in graph.aget_state_history(CONFIG) if each.next == ("write",)]
    assert before.tasks[0].result == {"value": "x", "seen": [1], "log": {"append": ["entry"]}}
    async with application.database.transaction() as connection:
        where = str(before.config["configurable"]["checkpoint_id"])  # type: ignore[typeddict-item]
        cursor = await connection.execute("SELECT channel FROM checkpoint_writes WHERE checkpoint_id = %s", (where,))
        assert [row["channel"] for row in await cursor.fetchall()] == ["log"]


async def test_b68_a_steps_writes_and_its_checkpoint_are_saved_together_or_not_at_all(application: Application) -> None:
    """Where the checkpoint can't be saved, its tasks' writes are not there either: the node runs again, whole."""

    async def write(state: dict[str, Any]) -> dict[str, Any]:
        async with application.database.transaction() as connection:
            await connection.execute("ALTER TABLE checkpoints ADD CONSTRAINT no_more CHECK (false) NOT VALID")
        return {"value": "x"}

    graph = chain(application, first=same, write=write, then=same)
    with pytest.raises(psycopg.errors.CheckViolation):
        await graph.ainvoke({"seen": []}, CONFIG)
    saved = await application.saver().aget_tuple(CONFIG)
    assert saved is not None
    assert not [channel for _, channel, _ in saved.pending_writes or () if channel == "value"]
    assert (await graph.aget_state(CONFIG)).next == ("write",)


async def test_a_step_and_its_checkpoint_are_one_transaction(application: Application) -> None:
    """As many steps as checkpoints, each naming its own, whatever kind of save made them."""
    graph = chain(application, a=same, b=same)
    await graph.ainvoke({"seen": [1]}, CONFIG)
    await graph.aupdate_state(CONFIG, {"seen": [2]})
    saved = [each.config["configurable"]["checkpoint_id"] async for each in graph.checkpointer.alist(CONFIG)]  # type: ignore[union-attr]
    steps = await application.steps.of("t")
    assert [step.checkpoint_id for step in reversed(steps)] == saved
    assert [step.source for step in steps] == ["input", "loop", "loop", "loop", "update"]
