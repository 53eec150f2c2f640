"""An attempt begins and ends in one place, and every way of ending leaves a true status."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.errors import GraphDrained
from langgraph.runtime import RunControl
from langgraph.types import interrupt

from graph.durable import RESUME_KEY
from scripts.bootstrap import Application
from state.errors import DatabaseUnavailable, Fenced
from tests.helpers.app import application_on
from tests.helpers.graphs import chain

CONFIG: RunnableConfig = {"configurable": {"thread_id": "t"}}
START: dict[str, Any] = {"seen": []}


async def note(state: dict[str, Any]) -> dict[str, Any]:
    return {"seen": ["note"]}


async def slow(state: dict[str, Any]) -> dict[str, Any]:
    await asyncio.sleep(30)
    return {"seen": ["slow"]}


async def standing(application: Application) -> str:
    return str((await application.services.runs.get("t")).standing)


async def until_running(application: Application, steps: int) -> None:
    """Wait until the run has saved this many steps."""
    for _ in range(200):
        await asyncio.sleep(0.05)
        if len(await application.steps.of("t")) >= steps:
            return
    raise AssertionError("the run did not come so far")


async def test_a_finished_run_is_completed(application: Application) -> None:
    """By its state, where the state says how, else as done."""
    await chain(application, note=note).ainvoke(START, CONFIG)
    assert await standing(application) == "completed: done"


async def test_every_way_into_the_graph_is_an_attempt(application: Application) -> None:
    """ainvoke, astream and astream_events save in sync mode under an epoch."""
    graph = chain(application, a=note, b=note)
    await graph.ainvoke(START, CONFIG, durability="exit")
    _ = [chunk async for chunk in graph.astream(START, CONFIG)]
    _ = [event async for event in graph.astream_events(START, CONFIG, version="v2")]
    steps = await application.steps.of("t")
    assert len(steps) == 3 * 4
    assert {step.epoch for step in steps} == {1, 2, 3}


async def test_a_copy_of_the_graph_is_durable_too(application: Application) -> None:
    """The dev server copies the graph for each run."""
    graph = chain(application, a=note).copy(update={"name": "another"})
    await graph.ainvoke(START, CONFIG)
    assert len(await application.steps.of("t")) == 3


async def test_an_interrupted_run_waits(application: Application) -> None:
    """And its attempt has ended: anybody may go on."""

    async def asks(state: dict[str, Any]) -> dict[str, Any]:
        return {"seen": [interrupt("well?")]}

    await chain(application, asks=asks).ainvoke(START, CONFIG)
    assert await standing(application) == "waiting: approval"
    assert (await application.services.runs.get("t")).holder is None


async def test_a_drained_run_is_released_at_the_next_step(application: Application) -> None:
    """Nothing that it did is lost."""
    control = RunControl()

    async def drains(state: dict[str, Any]) -> dict[str, Any]:
        control.request_drain("shutdown")
        return {"seen": ["drains"]}

    graph = chain(application, drains=drains, note=note)
    with pytest.raises(GraphDrained):
        await graph.ainvoke(START, CONFIG, control=control)
    assert await standing(application) == "queued: released"
    await graph.ainvoke(None, CONFIG)
    assert (await graph.aget_state(CONFIG)).values["seen"] == ["drains", "note"]


async def test_a_bare_cancellation_releases(application: Application) -> None:
    """The dev server's SIGTERM cancels a run like that, and resumes it later."""
    graph = chain(application, note=note, slow=slow)
    running = asyncio.create_task(graph.ainvoke(START, CONFIG))
    await until_running(application, 3)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert await standing(application) == "queued: released"


async def test_a_users_cancel_in_the_dev_server_cancels(application: Application) -> None:
    """It carries the server's UserInterrupt."""

    class UserInterrupt(Exception):
        """As in the dev server, which is not installed at run time."""

    graph = chain(application, note=note, slow=slow)
    stream = graph.astream(START, CONFIG)
    await anext(stream)
    with pytest.raises(asyncio.CancelledError):
        await stream.athrow(asyncio.CancelledError(UserInterrupt()))  # type: ignore[attr-defined]
    assert await standing(application) == "cancelled: by_person"


async def test_an_abandoned_stream_releases(application: Application) -> None:
    """A consumer that goes away ends the attempt."""
    graph = chain(application, a=note, b=note, c=note)
    async with aclosing(graph.astream(START, CONFIG)) as stream:  # type: ignore[type-var]
        async for _ in stream:
            break
    assert await standing(application) == "queued: released"
    await graph.ainvoke(None, CONFIG)
    assert (await graph.aget_state(CONFIG)).values["seen"] == ["note"] * 3


async def test_a_recorded_cancel_stops_what_runs(application: Application) -> None:
    """At the next heartbeat, in mid-node; the steps before are kept and the status stays cancelled."""
    graph = chain(application, note=note, slow=slow)
    running = asyncio.create_task(graph.ainvoke(START, CONFIG))
    await until_running(application, 3)
    await application.services.runs.request_cancel("t", "eve")
    await asyncio.wait_for(running, 10)
    assert await standing(application) == "cancelled: by_person"
    await graph.ainvoke(None, CONFIG)
    assert await standing(application) == "cancelled: by_person"
    assert (await graph.aget_state(CONFIG)).next == ("slow",)


async def test_only_an_explicit_resume_goes_on_with_a_cancelled_run(application: Application) -> None:
    """A terminal status is not overwritten by anything else."""
    graph = chain(application, a=note, b=note)
    await application.services.open()
    await application.services.runs.register("t")
    await application.services.runs.request_cancel("t", "eve")
    await graph.ainvoke(START, CONFIG)
    assert await application.steps.of("t") == []
    await graph.ainvoke(START, {"configurable": {"thread_id": "t", RESUME_KEY: True}})
    assert await standing(application) == "completed: done"


async def test_an_exception_ends_the_run_with_a_report(application: Application) -> None:
    """failed: internal, with the trace for whoever mends it; the run can be resumed."""
    broken = [True]

    async def breaks(state: dict[str, Any]) -> dict[str, Any]:
        if broken:
            raise ZeroDivisionError("by zero")
        return {"seen": ["mended"]}

    graph = chain(application, note=note, breaks=breaks)
    with pytest.raises(ZeroDivisionError):
        await graph.ainvoke(START, CONFIG)
    run = await application.services.runs.get("t")
    assert str(run.standing) == "failed: internal"
    assert run.report is not None
    assert "ZeroDivisionError" in str(run.report["details"])
    broken.clear()
    await graph.ainvoke(None, CONFIG)
    assert (await graph.aget_state(CONFIG)).values["seen"] == ["note", "mended"]


async def test_a_process_that_dies_after_its_last_save_leaves_a_run_to_be_settled(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until somebody goes on it reads as crashed; then it is completed, with its report, and told."""

    async def ends(state: dict[str, Any]) -> dict[str, Any]:
        return {"seen": ["end"], "status": "completed", "reason": "done"}

    async def dies(*given: object, **named: object) -> bool:
        raise DatabaseUnavailable("killed before it settled")

    told = {"notify": ("webhook",), "webhook_url": "http://localhost:9/hook"}
    first, second = (application_on(database_url, tmp_path, **told) for _ in range(2))
    monkeypatch.setattr(first.services.runs, "settle", dies)
    await chain(first, ends=ends).ainvoke(START, CONFIG)
    await first.services.close()
    assert await standing(second) == "queued: crashed"
    assert [step.status for step in await second.steps.of("t")][-1] == "completed"

    await chain(second, ends=ends).ainvoke(None, CONFIG)
    run = await second.services.runs.get("t")
    assert (str(run.standing), run.holder) == ("completed: done", None)
    assert run.report is not None
    assert [letter.standing for letter in await second.services.outbox.of("t")] == ["completed: done"]
    assert (await chain(second, ends=ends).aget_state(CONFIG)).values["seen"] == ["end"]
    await second.services.close()


async def test_an_overtaken_attempt_stops_and_writes_nothing(database_url: str, tmp_path: Path) -> None:
    """A process that was frozen past its lease wakes up late: its next save is refused, the other's steps stand."""
    first = application_on(database_url, tmp_path)
    second = application_on(database_url, tmp_path)

    async def freezes(state: dict[str, Any]) -> dict[str, Any]:
        async with first.database.transaction() as connection:
            await connection.execute("UPDATE runs SET heartbeat_at = now() - interval '1 hour'")
        await chain(second, freezes=note, after=note).ainvoke(None, CONFIG)
        return {"seen": ["late"]}

    with pytest.raises(Fenced):
        await chain(first, freezes=freezes, after=note).ainvoke(START, CONFIG)
    graph = chain(second, freezes=note, after=note)
    assert (await graph.aget_state(CONFIG)).values["seen"] == ["note", "note"]
    assert str((await second.services.runs.get("t")).standing) == "completed: done"
    await first.services.close()
    await second.services.close()
