"""How soon a worker goes on: with a run whose worker was killed, and with one that was answered."""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from scripts.bench.commands import Devfix, devfix
from scripts.bench.machine import Machine, machine
from scripts.bench.spread import Spread
from scripts.bootstrap import Application, build
from scripts.starting import begin
from state.agent_state import RunInput
from state.approvals import Decision
from state.errors import Refused
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
    answer_ms: Spread
    """From a person's answer to the receipt of the effect that it was about, by the database's clock."""


async def measure(
    settings: Settings, *, kills: int = 10, answers: int = 20, tell: Callable[[str], None] = lambda _: None
) -> QueueFigures:
    """Kill workers in the middle of a tool, then answer runs that wait."""
    async with devfix(settings) as commands:
        # Nobody is given up here, however often his workers are killed.
        own = Devfix(commands.folder, {**commands.environment, "DEVFIX_MAX_CRASHES": "1000000"})
        application = build(_settings(own), label="bench")
        try:
            bench = _Bench(own, application, tell)
            takeovers = await bench.takeovers(kills)
            answered = await bench.answers(answers)
            facts = await machine(application.database)
        finally:
            await application.services.close()
    return QueueFigures(
        machine=facts, workers=WORKERS, takeover_seconds=Spread.of(takeovers), answer_ms=Spread.of(answered, digits=1)
    )


def _settings(commands: Devfix) -> Settings:
    names = ("home", "database_url", "database_direct_url", "database_schema")
    given = {name: commands.environment.get(f"DEVFIX_{name.upper()}") for name in names}
    return Settings.model_validate({name: value for name, value in given.items() if value})


class _Bench:
    def __init__(self, commands: Devfix, application: Application, tell: Callable[[str], None]) -> None:
        self._commands = commands
        self._application = application
        self._services = application.services
        self._tell = tell
        self._workers: list[subprocess.Popen[bytes]] = []

    async def takeovers(self, kills: int) -> list[float]:
        """Seconds from each kill to the claim of another worker."""
        seconds: list[float] = []
        pauses = random.Random(1)  # noqa: S311 - so that a kill comes at no particular moment
        async with self._staff():
            run_id = await self._begin("slow", {"calc.py": _CALC, "test_calc.py": _TEST, "test_slow.py": _SLOW})
            for _ in range(kills):
                held = await self._until(run_id, lambda run: run.holder is not None)
                await asyncio.sleep(pauses.uniform(0.5, 2.0))
                (holder,) = [each for each in self._workers if held.holder and each.pid == held.holder.pid]
                holder.kill()
                killed = time.monotonic()
                await self._until(run_id, lambda run, former=held.epoch: run.epoch > former)  # type: ignore[misc]
                seconds.append(time.monotonic() - killed)
                self._tell(f"taken over after {seconds[-1]:.2f} s")
                self._workers.remove(holder)
                _close(holder)
                self._workers.append(await asyncio.to_thread(self._hire))
            await self._services.runs.request_cancel(run_id, "bench")
            await self._until(run_id, lambda run: run.status == "cancelled")
        return seconds

    async def answers(self, number: int) -> list[float]:
        """Milliseconds from each answer to its effect."""
        milliseconds: list[float] = []
        async with self._staff():
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

    @asynccontextmanager
    async def _staff(self) -> AsyncIterator[None]:
        self._workers = [await asyncio.to_thread(self._hire) for _ in range(WORKERS)]
        try:
            yield
        finally:
            for each in self._workers:
                each.kill()
                _close(each)

    def _hire(self) -> subprocess.Popen[bytes]:
        worker = self._commands.start("worker")
        assert worker.stderr is not None  # noqa: S101 - it was asked for
        if b"goes on with runs" not in (line := worker.stderr.readline()):
            raise Refused(f"a worker does not start: {line.decode(errors='replace').strip()}")
        return worker

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
        raise Refused(f"run {run_id[:8]} stands {run.standing} for {LIMIT_SECONDS:.0f} s; the workers do not work")


def _write(folder: Path, files: dict[str, str]) -> None:
    folder.mkdir()
    for name, text in files.items():
        (folder / name).write_text(text)


def _close(worker: subprocess.Popen[bytes]) -> None:
    worker.wait()
    for stream in (worker.stdout, worker.stderr):
        if stream is not None:
            stream.close()
