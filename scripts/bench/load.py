"""Many runs on a few workers: some at work, many that wait for a person, and what that does to a step.

`DEVFIX_JOB=scripts.bench.load:LOAD` is the job: calls that take as long as a quick model's, and one effect behind an
approval, a line in a file.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from graph.jobs import Job, Verdict
from graph.jobs.basic import BasicRules
from scripts.bench.commands import Devfix, devfix, settings_of, staff
from scripts.bench.machine import Machine, machine
from scripts.bench.spread import Spread, ratio
from scripts.bootstrap import Application, build
from scripts.starting import begin
from state.agent_state import AgentState, RunInput
from state.approvals import Decision
from state.errors import Refused
from state.settings import Settings
from state.status import TERMINAL
from tools.registry import Found, Toolbox, ToolContext, ToolResult, tool

NAMED = "scripts.bench.load:LOAD"
CALLS = 8
"""Calls of a run at work."""
LIMIT_SECONDS = 900.0
_LOOK_SECONDS = 0.2
_AT_ONCE = 8
"""Runs that are begun or answered side by side."""


class LoadWork(BaseModel):
    sink: str
    """The file that the effect writes to."""
    key: str | None = None
    """Of the line that was written."""


class LoadRules(BasicRules):
    """Done when the line is written."""

    work = LoadWork
    goal = "Take your time, then write the line."
    steps = ("write the line",)

    def prompt(self, state: AgentState) -> str:
        return state.goal

    def judge(self, state: AgentState) -> Verdict:
        if state.work.get("key"):
            return Verdict(judgement="done", summary="The line is written.")
        return Verdict(judgement="go_on", summary="The line is not written yet.")


@tool(kind="read")
async def take_time(turn: int, seconds: float, *, context: ToolContext) -> str:
    """Take so many seconds."""
    await asyncio.sleep(seconds)
    return f"turn {turn} took {seconds} s"


async def _find_line(args: Mapping[str, Any], context: ToolContext) -> Found:
    lines = await asyncio.to_thread(_lines, Path(str(context.work["sink"])))
    return {"key": context.key} if context.key in lines else None


@tool(kind="effect", verify=_find_line)
async def write_line(*, context: ToolContext) -> ToolResult:
    """Write this run's line."""
    await asyncio.to_thread(_append, Path(str(context.work["sink"])), context.key)
    return ToolResult(content="It is written.", facts={"key": context.key})


LOAD = Job(
    name="load",
    rules=LoadRules(),
    toolbox=Toolbox.of([take_time, write_line]),
    work=LoadWork,
    default_model="scripted:",
)


class LoadFigures(BaseModel):
    """The same steps alone and among the others."""

    model_config = ConfigDict(frozen=True)

    figure: str = "load"
    machine: Machine
    workers: int
    active: int
    waiting: int
    call_seconds: float
    """How long a call of a run at work takes."""
    alone_step_ms: Spread
    """From one saved step to the next, of one run at work, with nobody else about."""
    step_ms: Spread
    """The same of all runs at work, while the others wait."""
    ratio: float
    """The 95th percentiles, all by alone."""
    most_connections: int
    """To the database at once; one of the bench may be among them."""
    effects: int
    doubled: int
    lost: int


async def measure(
    settings: Settings,
    *,
    active: int = 50,
    waiting: int = 1000,
    workers: int = 2,
    call_seconds: float = 2.0,
    tell: Callable[[str], None] = lambda _: None,
) -> LoadFigures:
    """Let `waiting` runs come to their approval, `active` ones work beside them, then answer all."""
    async with devfix(settings) as commands:
        own = Devfix(commands.folder, {**commands.environment, "DEVFIX_JOB": NAMED})
        application = build(settings_of(own).model_copy(update={"job": NAMED, "database_pool_size": 2}), label="bench")
        try:
            async with staff(own, workers, "--concurrency", str(-(-active // workers))):
                return await _Bench(own.folder, application, workers, call_seconds, tell).run(active, waiting)
        finally:
            await application.services.close()


class _Bench:
    def __init__(
        self, folder: Path, application: Application, workers: int, seconds: float, tell: Callable[[str], None]
    ) -> None:
        self._sink = folder / "lines"
        self._application = application
        self._workers = workers
        self._seconds = seconds
        self._tell = tell
        self._connections = 0
        line = {"tool_calls": [{"name": "write_line", "args": {}}]}
        takes = [
            {"tool_calls": [{"name": "take_time", "args": {"turn": turn, "seconds": seconds}}]} for turn in range(CALLS)
        ]
        self._short, self._long = folder / "short.json", folder / "long.json"
        self._short.write_text(json.dumps([line]))
        self._long.write_text(json.dumps([*takes, line]))

    async def run(self, active: int, waiting: int) -> LoadFigures:
        counting = asyncio.create_task(self._count_connections())
        alone = await self._begin(self._long, 1)
        await self._until_all(alone, {"waiting"})
        self._tell("one run has worked alone")
        short = await self._begin(self._short, waiting)
        await self._until_all(short, {"waiting"})
        self._tell(f"{waiting} runs wait")
        long = await self._begin(self._long, active)
        await self._until_all(long, {"waiting"})
        self._tell(f"{active} runs have worked beside them")
        everybody = [*alone, *short, *long]
        await self._each(self._answer, everybody)
        await self._until_all(everybody, TERMINAL)
        counting.cancel()
        lines = Counter(await asyncio.to_thread(_lines, self._sink))
        alone_ms, step_ms = Spread.of(await self._step_ms(alone)), Spread.of(await self._step_ms(long))
        return LoadFigures(
            machine=await machine(self._application.database),
            workers=self._workers,
            active=active,
            waiting=waiting,
            call_seconds=self._seconds,
            alone_step_ms=alone_ms,
            step_ms=step_ms,
            ratio=ratio(step_ms.p95, alone_ms.p95),
            most_connections=self._connections,
            effects=len(lines),
            doubled=sum(count - 1 for count in lines.values()),
            lost=len(everybody) - len(lines),
        )

    async def _begin(self, script: Path, number: int) -> list[str]:
        given = RunInput(options={"sink": str(self._sink)}, model=f"scripted:{script}")

        async def one(_: str) -> str:
            return await begin(self._application, given, due_seconds=0)

        return await self._each(one, [""] * number)

    async def _answer(self, run_id: str) -> str:
        approvals = self._application.services.approvals
        (asked,) = await approvals.of(run_id)
        await approvals.decide(run_id, asked.question.call_id, Decision(type="approve"), by="bench", wake=True)
        return run_id

    async def _each(self, work: Callable[[str], Any], items: Sequence[str]) -> list[str]:
        some = asyncio.Semaphore(_AT_ONCE)

        async def one(item: str) -> str:
            async with some:
                return str(await work(item))

        return list(await asyncio.gather(*map(one, items)))

    async def _until_all(self, run_ids: Sequence[str], statuses: frozenset[Any] | set[str]) -> None:
        until = time.monotonic() + LIMIT_SECONDS
        left = list(run_ids)
        while left:
            if time.monotonic() > until:
                raise Refused(f"{len(left)} runs are not {' or '.join(sorted(statuses))} after {LIMIT_SECONDS:.0f} s")
            await asyncio.sleep(_LOOK_SECONDS)
            left = [each for each in left if (await self._application.services.runs.get(each)).status not in statuses]

    async def _step_ms(self, run_ids: Sequence[str]) -> list[float]:
        """Between the steps that a run's first attempt saved."""
        found = []
        for run_id in run_ids:
            steps = await self._application.steps.of(run_id)
            first = min(step.epoch for step in steps if step.source == "loop")
            moments = [step.at for step in steps if step.epoch == first]
            found += [(after - before).total_seconds() * 1000 for before, after in pairwise(moments)]
        return found

    async def _count_connections(self) -> None:
        while True:
            async with self._application.database.transaction() as connection:
                cursor = await connection.execute(
                    "SELECT count(*) AS number FROM pg_stat_activity "
                    "WHERE datname = current_database() AND application_name = 'devfix' AND pid <> pg_backend_pid()"
                )
                row = await cursor.fetchone()
            self._connections = max(self._connections, int(row["number"]) if row else 0)
            await asyncio.sleep(1)


def _lines(path: Path) -> list[str]:
    return path.read_text().split() if path.exists() else []


def _append(path: Path, line: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(descriptor, f"{line}\n".encode())
    finally:
        os.close(descriptor)
