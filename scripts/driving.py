"""Drives one run at the command line: attempt after attempt, until it waits for somebody who is not here, or ends."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from typing import Any

from langchain_core.runnables import RunnableConfig

from graph.durable import RESUME_KEY, DurableGraph
from scripts.asking import Later, ask, show_question
from scripts.bootstrap import Application
from scripts.cli.output import say
from scripts.display import display_for
from scripts.facts import facts_of, newest, open_questions
from scripts.registers import person
from scripts.signals import Signals
from scripts.watching import STREAM_MODES, View
from state.approvals import Approval, Decision
from state.errors import AlreadyDecided, DevfixError, Fenced, OutOfService, Refused, RunBusy
from state.ids import short
from state.runs import Run
from state.status import TERMINAL, Status

EXIT_CODES: dict[Status, int] = {"completed": 0, "waiting": 3, "failed": 4, "cancelled": 5}
RELEASED = 130


class Drive:
    """One process's way with one run. `yes` approves gated calls, never an escalation."""

    def __init__(self, application: Application, run_id: str, *, yes: bool = False, quiet: bool = False) -> None:
        self.application = application
        self.run_id = run_id
        self._yes = yes
        self._asks = not quiet and sys.stdin.isatty() and sys.stderr.isatty()
        self._display = display_for(live=sys.stderr.isatty())
        self._signals = Signals()
        self._view = View(run_id)
        self._interrupted = False

    @property
    def config(self) -> RunnableConfig:
        return {"configurable": {"thread_id": self.run_id}}

    async def go_on(self, *, resume: bool = False) -> Run:
        """Attempts until nobody here can do anything more for the run. `resume`: a person wants an ended run to go on.

        Raises RunBusy or Fenced when another attempt holds the run, OutOfService.
        """
        last = -1
        while True:
            await self._attempt(resume=resume)
            run = await self.application.services.runs.get(self.run_id)
            if self._signals.received is not None or run.status != "waiting" or run.step == last:
                return run
            if not await self.answered(run):
                return run
            resume, last = False, run.step

    async def answered(self, run: Run) -> bool:
        """Whether all that the run waits for has an answer, once those who are here have been asked."""
        if run.reason == "upgrade":
            return False
        for row in await self._questions(run):
            if self._yes and row.question.kind == "call":
                await self._show(run, row)
                await self._decide(row, Decision(type="approve"), by="--yes")
            elif not self._asks or not await self._ask(run, row):
                return False
        return not await self._questions(run)

    def exit_code(self, run: Run) -> int:
        """By the run's status; a run that was put down, by what put it down."""
        if self._signals.received is not None and run.status not in TERMINAL:
            return self._signals.exit_code
        return RELEASED if self._interrupted else EXIT_CODES.get(run.status, RELEASED)

    def say_goodbye(self, run: Run) -> None:
        """How to come back to a run that has not ended."""
        if run.status in TERMINAL:
            return
        if self._signals.received is not None or run.status == "queued":
            name = short(run.run_id)
            say(f"run {name} is put down ({run.standing}); nothing is lost: `devfix resume {name}`")
        elif run.status == "waiting":
            say(f"run {short(run.run_id)} waits ({run.reason}): `devfix approve {short(run.run_id)}`")

    async def _attempt(self, *, resume: bool) -> None:
        agent = self.application.agent()
        await self._look(agent)
        work = asyncio.create_task(self._stream(agent, resume=resume))
        with self._signals.stopping(work), self._display.during(self._view):
            await asyncio.wait({work})
        if work.cancelled():
            if self._signals.received is None:
                raise asyncio.CancelledError
        elif error := work.exception():
            await self._trouble(error)

    async def _look(self, agent: DurableGraph) -> None:
        self._view.begin((await agent.aget_state(self.config)).values)

    async def _stream(self, agent: DurableGraph, *, resume: bool) -> None:
        config: Any = {"configurable": {"thread_id": self.run_id, **({RESUME_KEY: True} if resume else {})}}
        async with aclosing(agent.astream(None, config, stream_mode=list(STREAM_MODES))) as chunks:  # type: ignore[type-var]
            async for mode, chunk in chunks:
                for line in self._view.take(mode, chunk):
                    self._display.event(line)

    async def _trouble(self, error: BaseException) -> None:
        """An error that the run itself records as its end is reported with the run; any other one is raised."""
        if isinstance(error, (RunBusy, Fenced, OutOfService, Refused)):
            raise error
        run = await self.application.services.runs.get(self.run_id)
        if run.status != "failed":
            raise error
        first = (str(error).splitlines() or [type(error).__name__])[0]
        say(f"devfix: {first if isinstance(error, DevfixError) else f'{type(error).__name__}: {first}'}")

    async def _questions(self, run: Run) -> Sequence[Approval]:
        return await open_questions(self.application, run, await newest(self.application, run))

    async def _show(self, run: Run, row: Approval) -> None:
        """What is approved without a question is shown all the same."""
        facts = await facts_of(self.application, run)
        for pending in _of(facts, row):
            show_question(facts, pending)

    async def _ask(self, run: Run, row: Approval) -> bool:
        """Put one question at the terminal; whether it has an answer now, by whomever."""
        facts = await facts_of(self.application, run)
        try:
            for pending in _of(facts, row):
                await self._decide(row, ask(facts, pending), by=person())
        except Later as later:
            self._interrupted = later.interrupted
            return False
        return True

    async def _decide(self, row: Approval, decision: Decision, *, by: str) -> None:
        try:
            await self.application.services.approvals.decide(self.run_id, row.question.call_id, decision, by=by)
        except AlreadyDecided as known:
            say(f"devfix: {known}")
            return
        say(f"{decision.type}: {row.question.tool} ({row.question.call_id}), by {by}")


def _of(facts: Mapping[str, Any], row: Approval) -> Sequence[Mapping[str, Any]]:
    """The question as it is shown; nothing when somebody has answered it meanwhile."""
    return [each for each in facts["pending"] if each["call_id"] == row.question.call_id]
