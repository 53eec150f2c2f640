"""A worker goes on with queued runs, several at a time, and takes over those whose process is gone.

Any number of workers on any number of machines share one database and need to know nothing of each other: the claim
decides who advances a run. A worker that dies loses nothing but time, one that is frozen is overtaken after a lease.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager

import psycopg
from langchain_core.runnables import RunnableConfig
from langgraph.errors import GraphDrained
from langgraph.runtime import RunControl

from graph.durable import DurableGraph
from graph.notices import keep_sending
from scripts.bootstrap import Application
from state.errors import DevfixError, Refused, RunBusy, SecretMissing
from state.holder import is_gone, this_process
from state.ids import short
from state.queue import ADVANCE, QUEUE, Abandoned
from state.runs import Run
from state.status import TERMINAL

LOOK_SECONDS = 1.0
"""How often each worker looks for runs that nobody goes on with."""
POLL_SECONDS = 0.5
"""How often a free worker looks for jobs that no notification has told it of: those that had to wait for a lock."""
AGAIN_SECONDS = 1.0
ELSEWHERE_SECONDS = 5
"""After so long, a run that this worker can't go on with is offered to all workers again."""


class Worker:
    """One process's worker. `tell` gets a line for each thing that a person may want to read."""

    def __init__(self, application: Application, *, concurrency: int, tell: Callable[[str], None]) -> None:
        self._application = application
        self._concurrency = concurrency
        self._tell = tell
        self._agent: DurableGraph = application.agent()
        self._control = RunControl()
        """Of all attempts of this worker: they are drained together."""
        self._serving: asyncio.Task[None] | None = None
        self._advancing: set[asyncio.Task[object]] = set()
        self._missed: dict[tuple[str, int], float] = {}
        """Since when an attempt has been seen without its holder."""
        self._left: set[str] = set()
        """Runs that it left to other workers and told of: they are offered again and again."""

    async def run(self) -> None:
        """Until `stop`. Raises DatabaseUnavailable where there is no database to begin with."""
        app = self._application.queue.app
        if ADVANCE not in app.tasks:
            app.task(name=ADVANCE, queue=QUEUE)(self._advance)
        services = self._application.services
        await services.open()
        self._tell(f"{this_process('worker')} goes on with runs, {self._concurrency} at a time; Ctrl-C ends it")
        async with self._beside(self._look_again_and_again(), keep_sending(services, complain=self._tell)):
            while not self._control.drain_requested:
                await self._serve()

    @asynccontextmanager
    async def _beside(self, *chores: Coroutine[object, object, None]) -> AsyncIterator[None]:
        """While the body runs, these do too. Raises what one of them raised, which ends the worker."""
        tasks = [asyncio.create_task(each) for each in chores]
        for each in tasks:
            each.add_done_callback(self._stop_if_failed)
        try:
            yield
        finally:
            for each in tasks:
                each.cancel()
            await asyncio.wait(tasks)
        for each in tasks:
            if not each.cancelled():
                each.result()

    def _stop_if_failed(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            self.stop()

    def stop(self) -> None:
        """Take no more jobs, and put each run down at its next saved step."""
        if not self._control.drain_requested:
            under_way = len(self._advancing)
            self._tell(
                f"stopping once {under_way} runs have saved their step; again: at once" if under_way else "stopping"
            )
        self._control.request_drain()
        if self._serving is not None:
            self._serving.cancel()

    def stop_at_once(self) -> None:
        """Put each run down where it is; what its step had done so far is done again."""
        for each in self._advancing:
            each.cancel()

    async def _serve(self) -> None:
        """One worker of procrastinate's, from its registration to its end; the next one is another."""
        self._serving = asyncio.create_task(
            self._application.queue.app.run_worker_async(
                queues=[QUEUE],
                concurrency=self._concurrency,
                fetch_job_polling_interval=POLL_SECONDS,
                delete_jobs="always",
                install_signal_handlers=False,
            )
        )
        await asyncio.wait({self._serving})
        if not self._serving.cancelled() and (error := self._serving.exception()) is not None:
            self._tell(f"the queue can't be read ({error}); trying again")
            await asyncio.sleep(AGAIN_SECONDS)

    # -- advancing ------------------------------------------------------------------------------------------------

    async def _advance(self, run_id: str) -> None:
        """Go on with the run until it waits or ends. Whatever comes of it, the job is done."""
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - a coroutine runs in one
        self._advancing.add(task)
        began = time.monotonic()
        try:
            if await self._wants_advancing(run_id):
                config: RunnableConfig = {"configurable": {"thread_id": run_id}}
                await self._agent.ainvoke(None, config, control=self._control)
                await self._tell_standing(run_id, began)
        except (GraphDrained, asyncio.CancelledError):
            self._tell(f"run {short(run_id)} is put down; the next worker goes on with it")
        except DevfixError as error:
            self._tell(f"run {short(run_id)}: {error}")
        except Exception as error:  # noqa: BLE001 - the attempt has ended the run with it, and with a report
            self._tell(f"run {short(run_id)}: {error!r}")
        finally:
            self._advancing.discard(task)

    async def _wants_advancing(self, run_id: str) -> bool:
        """Whether an attempt would find anything to do: a job may come late, or be one of several."""
        services = self._application.services
        run = await services.runs.get(run_id)
        if run.status in TERMINAL or run.reason == "upgrade":
            return False
        if run.status == "waiting" and not await services.approvals.answered(run_id):
            return False
        if (why := await self._unfit(run)) is not None:
            if run_id not in self._left:
                self._left.add(run_id)
                self._tell(f"run {short(run_id)} is left to another worker: {why}")
            await self._application.queue.put(run_id, after_seconds=ELSEWHERE_SECONDS)
            return False
        self._left.discard(run_id)
        return True

    async def _unfit(self, run: Run) -> str | None:
        """Why this worker can't go on with the run, where another one may."""
        services = self._application.services
        if run.job and run.job not in services.jobs:
            return f"it is of the job {run.job!r}, which this one does not know (DEVFIX_JOB)"
        if run.model:
            try:
                await services.chain.check(run.model)
            except SecretMissing as missing:
                return str(missing)
            except Refused:
                return None  # nowhere else is it better: the attempt ends the run with the reason
        return None

    async def _tell_standing(self, run_id: str, began: float) -> None:
        run = await self._application.services.runs.get(run_id)
        self._tell(f"run {short(run_id)}: {run.standing}, at step {run.step} after {time.monotonic() - began:.1f} s")

    # -- taking over ----------------------------------------------------------------------------------------------

    # Not a periodic job of the queue's: that would wait for a free place in a worker whose places are all taken.
    async def _look_again_and_again(self) -> None:
        while True:
            try:
                await self._look()
            except (DevfixError, psycopg.OperationalError) as error:
                self._tell(f"runs that need somebody can't be looked for ({error}); trying again")
            await asyncio.sleep(LOOK_SECONDS)

    async def _look(self) -> None:
        found = await self._application.queue.look()
        now = time.monotonic()
        known = {(each.run_id, each.epoch) for each in found}
        self._missed = {key: since for key, since in self._missed.items() if key in known}
        for each in found:
            since = self._missed.setdefault((each.run_id, each.epoch), now)
            if self._is_certain(each, now - since):
                await self._see_to(each)

    def _is_certain(self, abandoned: Abandoned, seconds: float) -> bool:
        """A holder that has lost its connection, with its lock, is back with its next heartbeat: it is waited for."""
        if abandoned.holder is None or is_gone(abandoned.holder):
            return True
        return seconds > 2 * self._application.settings.heartbeat_seconds

    async def _see_to(self, abandoned: Abandoned) -> None:
        run_id, crashes = abandoned.run_id, abandoned.crashes
        run = await self._application.services.runs.get(run_id)
        if abandoned.holder is not None and run.reason != "crashed":
            return  # it was being settled while it was looked at
        if abandoned.holder is not None and crashes >= self._application.settings.max_crashes:
            try:
                await self._agent.give_up(run_id, crashes)
            except RunBusy:
                return
            self._tell(f"run {short(run_id)} is given up: {crashes} processes in a row died with it")
            return
        await self._application.queue.put(run_id)
        if abandoned.holder is not None:
            self._tell(f"run {short(run_id)} is taken over: {abandoned.holder} is gone")
