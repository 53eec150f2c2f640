"""What outlives a SIGKILL: the same patch, applied once, no step lost, no process left."""

from __future__ import annotations

import asyncio
import ctypes
import hashlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from scripts.bench.commands import Devfix, devfix, facts_of
from scripts.bench.machine import Machine, machine
from scripts.bench.spread import ratio
from scripts.bootstrap import build
from scripts.sample_repository import copy_sample
from state.errors import DevfixError
from state.settings import Settings

SHORTEST_SECONDS = 0.5
END_SECONDS = 600.0
"""A run that has not ended by then hangs."""
LEFT_AFTER_SECONDS = 2.0
_SUBREAPER = 36
_IGNORED = {".git", "__pycache__", ".pytest_cache"}


class Killed(BaseModel):
    """One run, killed again and again until it ended."""

    model_config = ConfigDict(frozen=True)

    run_id: str
    kills: int
    standing: str
    same_patch: bool
    applied: int
    """How often the ledger says that the patch was applied."""
    steps: int
    without_gaps: bool
    processes_left: int

    @property
    def whole(self) -> bool:
        good = self.standing == "completed: done" and self.same_patch and self.without_gaps
        return good and self.applied == 1 and self.processes_left == 0


class KillFigures(BaseModel):
    """No peer: the ratio is runs that outlived every kill whole, to all runs."""

    model_config = ConfigDict(frozen=True)

    figure: str = "kill"
    machine: Machine
    seed: int
    undisturbed_seconds: float
    kills: int
    runs: int
    whole: int
    ratio: float
    each: list[Killed]


async def measure(
    settings: Settings,
    *,
    kills: int = 50,
    seed: int = 1,
    model: str = "search-repair",
    tell: Callable[[Killed], None] = lambda _: None,
) -> KillFigures:
    """Kill runs on the sample until so many kills are done; a run that ends before is followed by another.

    Raises DevfixError when the undisturbed run does not complete: there is nothing to compare with then.
    """
    async with devfix(settings) as commands:
        bench = _Bench(commands, kills, random.Random(seed), model)  # noqa: S311 - repeatable on purpose
        await asyncio.to_thread(bench.undisturbed)
        done: list[Killed] = []
        while bench.left:
            run = await asyncio.to_thread(bench.run)
            if run.kills:  # else it had ended before its first kill was due
                done.append(run)
                tell(run)
    application = build(settings, label="bench")
    facts = await machine(application.database)
    await application.services.close()
    return figures(facts, done, seed=seed, undisturbed_seconds=bench.seconds)


def figures(facts: Machine, done: Sequence[Killed], *, seed: int, undisturbed_seconds: float) -> KillFigures:
    whole = sum(each.whole for each in done)
    return KillFigures(
        machine=facts,
        seed=seed,
        undisturbed_seconds=round(undisturbed_seconds, 1),
        kills=sum(each.kills for each in done),
        runs=len(done),
        whole=whole,
        ratio=ratio(whole, len(done)),
        each=list(done),
    )


class _Bench:
    def __init__(self, commands: Devfix, kills: int, chance: random.Random, model: str) -> None:
        self.left = kills
        self.seconds = 0.0
        self._commands = commands
        self._chance = chance
        self._model = model
        self._patched = ""
        self._runs = 0

    def undisturbed(self) -> None:
        """What a run makes of the sample when nobody disturbs it, and how long it takes."""
        repository = copy_sample(self._commands.folder / "undisturbed")
        began = time.monotonic()
        run = self._commands.start("run", str(repository), "--yes", "--json", "--model", self._model)
        facts = facts_of(run, seconds=END_SECONDS)
        self.seconds = max(time.monotonic() - began, SHORTEST_SECONDS)
        if facts.get("status") != "completed":
            raise DevfixError(f"the undisturbed run did not complete: {facts.get('report') or facts.get('error')}")
        self._patched = tree_hash(repository)

    def run(self) -> Killed:
        """One run, from its first start to its end."""
        adopt_orphans()
        self._runs += 1
        repository = copy_sample(self._commands.folder / f"killed-{self._runs}")
        begun = self._commands.facts("run", str(repository), "--detach", "--model", self._model)
        run_id, kills = str(begun["run_id"]), 0
        while self.left and not self._ends(run_id, self._chance.uniform(SHORTEST_SECONDS, self.seconds)):
            kills += 1
            self.left -= 1
        facts = facts_of(self._resume(run_id), seconds=END_SECONDS) if not self._ended(run_id) else self._show(run_id)
        numbers = [step["step"] for step in self._commands.facts("history", run_id)]
        effects = self._commands.facts("effects", run_id)
        return Killed(
            run_id=run_id,
            kills=kills,
            standing=f"{facts.get('status')}: {facts.get('reason')}",
            same_patch=tree_hash(repository) == self._patched,
            applied=sum(each["state"] == "settled" for each in effects),
            steps=len(numbers),
            without_gaps=numbers == list(range(1, len(numbers) + 1)),
            processes_left=len(left_processes()),
        )

    def _ends(self, run_id: str, seconds: float) -> bool:
        """Go on with the run; kill it after so long. Whether it ended before."""
        process = self._resume(run_id, quiet=True)
        try:
            process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        return process.returncode != -signal.SIGKILL

    def _resume(self, run_id: str, *, quiet: bool = False) -> subprocess.Popen[bytes]:
        return self._commands.start("resume", run_id, "--yes", "--json", quiet=quiet)

    def _ended(self, run_id: str) -> bool:
        return self._show(run_id)["status"] in {"completed", "failed", "cancelled"}

    def _show(self, run_id: str) -> dict[str, str]:
        shown: dict[str, str] = self._commands.facts("show", run_id)
        return shown


def tree_hash(folder: Path) -> str:
    """One hash of all files, by path and content; what git and Python leave beside them does not count."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not _IGNORED & set(path.relative_to(folder).parts):
            digest.update(os.fsencode(path.relative_to(folder)) + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def adopt_orphans() -> None:
    """What a killed process leaves behind becomes a child of this one, so that none is overlooked. Linux only."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)


def left_processes() -> list[int]:
    """Processes below this one that live two seconds after all commands have ended."""
    deadline = time.monotonic() + LEFT_AFTER_SECONDS
    while (found := [pid for pid in _children(os.getpid()) if not _reaped(pid)]) and time.monotonic() < deadline:
        time.sleep(0.1)
    return found


def _reaped(pid: int) -> bool:
    with suppress(ChildProcessError):
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    return False


def _children(parent: int) -> Iterator[int]:
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            if int(entry.read_text().rsplit(")", 1)[1].split()[1]) == parent:
                yield int(entry.parent.name)
