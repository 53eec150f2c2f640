"""An attempt that is stopped from outside: what it awaits is cancelled, and nothing else is taken for that."""

from __future__ import annotations

import asyncio

import pytest
from langgraph.runtime import RunControl

from graph.attempt import Attempt, Stopped
from state.runs import Claim
from state.status import Standing
from tests.helpers.memory_stores import MemoryRuns


@pytest.fixture
def attempt() -> Attempt:
    claim = Claim(1, 0, None, Standing("queued", "new"))
    return Attempt("run", claim, control=RunControl(), runs=MemoryRuns(), saved={}, heartbeat_seconds=1.0)


async def test_what_it_awaits_is_cancelled_and_ends_before_it_is_told(attempt: Attempt) -> None:
    """Stopped twice, as at a cancel of a run that is overtaken too: it cleans up once."""
    ended: list[str] = []

    async def work() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.01)
            ended.append("cleaned up")

    asyncio.get_running_loop().call_later(0.01, attempt.stop)
    asyncio.get_running_loop().call_later(0.015, attempt.stop)
    with pytest.raises(Stopped):
        await attempt.unless_stopped(work)
    assert ended == ["cleaned up"]


async def test_what_breaks_while_it_is_cancelled_is_told_and_no_end_of_the_run(
    attempt: Attempt, caplog: pytest.LogCaptureFixture
) -> None:
    """It was stopped; that its connection broke at the same moment changes nothing of that."""

    async def work() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            raise ConnectionError("gone")

    asyncio.get_running_loop().call_later(0.01, attempt.stop)
    with pytest.raises(Stopped):
        await attempt.unless_stopped(work)
    assert "while it was being stopped: ConnectionError: gone" in caplog.text


async def test_nothing_begins_once_it_is_stopped(attempt: Attempt) -> None:
    """Not even as far as its first wait."""
    begun: list[str] = []

    async def work() -> None:
        begun.append("work")

    attempt.stop()
    with pytest.raises(Stopped):
        await attempt.unless_stopped(work)
    assert begun == []


async def test_what_ends_before_is_given_back(attempt: Attempt) -> None:
    """And its errors are its own, a TimeoutError too."""

    async def late() -> None:
        raise TimeoutError("of the tool")

    assert await attempt.unless_stopped(lambda: asyncio.sleep(0, "done")) == "done"
    with pytest.raises(TimeoutError, match="of the tool"):
        await attempt.unless_stopped(late)
    attempt.stop()
    assert attempt.stopped


async def test_a_cancel_of_the_task_itself_stays_one(attempt: Attempt) -> None:
    """Ctrl-C, or the server's cancel, also where the attempt is stopped at the same moment."""
    task = asyncio.create_task(attempt.unless_stopped(lambda: asyncio.sleep(60)))
    await asyncio.sleep(0)
    attempt.stop()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
