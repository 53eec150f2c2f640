"""How soon a worker goes on after a kill, ends a run that is cancelled, and does what was answered."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Callable
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from scripts.bench.commands import Devfix, devfix, hire, settings_of, staff
from scripts.bench.machine import Machine, machine
from scripts.bench.spread import Spread
from scripts.bootstrap import Application, build
from scripts.starting import begin
from state.agent_state import RunInput
from state.approvals import Decision
from state.errors import Refused
from state.ids import short
from state.runs import Run
from state.settings import Settings

WORKERS = 2
LIMIT_SECONDS = 300.0
"""What takes longer than this hangs."""
_LOOK_SECONDS = 0.01
_CALC = "def add(a, b):\n    return a - b\n"
_TEST = "from calc import add\n\n\ndef test_add():\n    assert add(1, 2) == 3\n"
_SLOW = "import time\n\n\ndef test_slow():\n    time.sleep(3600)\n"
_FIX = [
    {"tool_calls": [{"name": "edit_file", "args": {"path": "calc.py", "old": "a - b", "new": "a + b"}}]},
    {"tool_calls": [{"name": "apply_patch_to_repository", "args": {"summary": "add adds"}}]},
]


class QueueFigures(BaseModel):
    """No peer."""

    model_config = ConfigDict(frozen=True)

    figure: str = "queue"
    machine: Machine
    workers: int
    takeover_seconds: Spread
    """From the SIGKILL of a worker to the moment at which another one has claimed its run."""
    cancel_seconds: Spread
    """From a person's cancel in the middle of a tool to the run's report; the tool's processes have ended."""
    answer_ms: Spread
    """From a person's answer to the receipt of the effect that it was about, by the database's clock."""


async def measure(
    settings: Settings,
    *,
    kills: int = 10,
    cancels: int = 10,
    answers: int = 20,
    tell: Callable[[str], None] = lambda _: None,
) -> QueueFigures:
    """Kill workers in the middle of a tool, cancel runs there, then answer runs that wait."""
    async with devfix(settings) as commands:
        # Nobody is given up here, however often his workers are killed.
        own = Devfix(commands.folder, {**commands.environment, "DEVFIX_MAX_CRASHES": "1000000"})
        application = build(settings_of(own), label="bench")
        try:
            bench = _Bench(own, application, tell)
            takeovers = await bench.takeovers(kills)
            cancelled = await bench.cancels(cancels)
            answered = await bench.answers(answers)
            facts = await machine(application.database)
        finally:
            await application.services.close()
    return QueueFigures(
        machine=facts,
        workers=WORKERS,
        takeover_seconds=Spread.of(takeovers),
        cancel_seconds=Spread.of(cancelled),
        answer_ms=Spread.of(answered, digits=1),
    )


class _Bench:
    def __init__(self, commands: Devfix, application: Application, tell: Callable[[str], None]) -> None:
        self._commands = commands
        self._application = application
        self._services = application.services
        self._tell = tell

    async def takeovers(self, kills: int) -> list[float]:
        """Seconds from each kill to the claim of another worker."""
        seconds: list[float] = []
        pauses = random.Random(1)  # noqa: S311 - so that a kill comes at no particular moment
        async with staff(self._commands, WORKERS) as workers:
            run_id = await self._begin("slow", {"calc.py": _CALC, "test_calc.py": _TEST, "test_slow.py": _SLOW})
            for _ in range(kills):
                held = await self._until(run_id, lambda run: run.holder is not None)
                await asyncio.sleep(pauses.uniform(0.5, 2.0))
                (holder,) = [each for each in workers if held.holder and each.pid == held.holder.pid]
                holder.kill()
                killed = time.monotonic()
                await self._until(run_id, lambda run, former=held.epoch: run.epoch > former)  # type: ignore[misc]
                seconds.append(time.monotonic() - killed)
                self._tell(f"taken over after {seconds[-1]:.2f} s")
                workers.remove(holder)
                holder.wait()
                workers.append(await asyncio.to_thread(hire, self._commands))
            await self._cancelled(run_id)
        return seconds

    async def cancels(self, number: int) -> list[float]:
        """Seconds from each cancel to the report of the run, whose tests were under way and are dead then."""
        seconds: list[float] = []
        pauses = random.Random(2)  # noqa: S311 - so that it comes at no particular moment
        async with staff(self._commands, WORKERS):
            for place in range(number):
                run_id = await self._begin(f"cancelled-{place}", {"test_slow.py": _SLOW})
                await self._until(run_id, lambda run: run.holder is not None)
                await asyncio.sleep(pauses.uniform(1.0, 3.0))
                seconds.append(await self._cancelled(run_id))
                self._tell(f"cancelled after {seconds[-1]:.2f} s")
        return seconds

    async def _cancelled(self, run_id: str) -> float:
        began = time.monotonic()
        await self._services.runs.request_cancel(run_id, "bench")
        await self._until(run_id, lambda run: run.status == "cancelled" and run.report is not None)
        return time.monotonic() - began

    async def answers(self, number: int) -> list[float]:
        """Milliseconds from each answer to its effect."""
        milliseconds: list[float] = []
        async with staff(self._commands, WORKERS):
            files = {"calc.py": _CALC, "test_calc.py": _TEST}
            run_ids = [await self._begin(f"quick-{place}", files) for place in range(number)]
            for run_id in run_ids:
                await self._until(run_id, lambda run: run.status == "waiting")
            for run_id in run_ids:
                (asked,) = await self._services.approvals.of(run_id)
                call_id = asked.question.call_id
                answer = await self._services.approvals.decide(
                    run_id, call_id, Decision(type="approve"), by="bench", wake=True
                )
                await self._until(run_id, lambda run: run.status == "completed")
                (effect,) = await self._services.ledger.of(run_id)
                assert answer.decided_at is not None  # noqa: S101 - it has just been decided
                milliseconds.append((effect.at - answer.decided_at).total_seconds() * 1000)
                self._tell(f"done {milliseconds[-1]:.0f} ms after the answer")
        return milliseconds

    async def _begin(self, name: str, files: dict[str, str]) -> str:
        folder = self._commands.folder / name
        await asyncio.to_thread(_write, folder, files)
        script = self._commands.folder / f"{name}.json"
        script.write_text(json.dumps(_FIX))
        given = RunInput(repository=str(folder), model=f"scripted:{script}")
        return await begin(self._application, given, due_seconds=0)

    async def _until(self, run_id: str, is_so: Callable[[Run], bool]) -> Run:
        until = time.monotonic() + LIMIT_SECONDS
        while time.monotonic() < until:
            run = await self._services.runs.get(run_id)
            if is_so(run):
                return run
            await asyncio.sleep(_LOOK_SECONDS)
        raise Refused(f"run {short(run_id)} stands {run.standing} for {LIMIT_SECONDS:.0f} s; the workers do not work")


def _write(folder: Path, files: dict[str, str]) -> None:
    folder.mkdir()
    for name, text in files.items():
        (folder / name).write_text(text)
