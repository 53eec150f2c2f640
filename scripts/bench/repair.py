"""How many repositories are repaired, offline, each within its time."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from scripts.bench.commands import Devfix, devfix, facts_of
from scripts.bench.machine import Machine, machine
from scripts.bench.spread import Spread, ratio
from scripts.bootstrap import build
from state.errors import BadRepository
from state.settings import Settings

GRACE_SECONDS = 5.0
"""For the process to start and to say how it ended, beyond the run's own time."""


class Repaired(BaseModel):
    """One repository."""

    model_config = ConfigDict(frozen=True)

    repository: str
    completed: bool
    standing: str
    seconds: float
    """From the command's start to its end."""
    steps: int
    candidates: int
    summary: str


class RepairFigures(BaseModel):
    """All of them, in the order of their names. No peer: the ratio is repaired repositories to all."""

    model_config = ConfigDict(frozen=True)

    figure: str = "repair"
    machine: Machine
    model: str
    limit_seconds: float
    completed: int
    total: int
    ratio: float
    seconds: Spread
    repositories: list[Repaired]


class Task(BaseModel):
    """How each of the repositories is worked on."""

    model_config = ConfigDict(frozen=True)

    model: str = "search-repair"
    test_command: str | None = None
    limit_seconds: float = 120.0
    keep: Path | None = None
    """Where the worked-on copies are left, to be looked at."""


async def measure(
    settings: Settings, folder: Path, task: Task, *, tell: Callable[[Repaired], None] = lambda _: None
) -> RepairFigures:
    """One after another; each is copied first. Raises BadRepository for a folder that holds none."""
    repositories = list(repositories_in(folder))
    if not repositories:
        raise BadRepository(f"{folder} holds no folders; name the folder that holds the repositories")
    done = []
    async with devfix(settings) as commands:
        for repository in repositories:
            done.append(await asyncio.to_thread(_repair, commands, repository, task))
            tell(done[-1])
    application = build(settings, label="bench")
    facts = await machine(application.database)
    await application.services.close()
    return figures(facts, task, done)


def repositories_in(folder: Path) -> Iterator[Path]:
    """Its folders, by name; hidden ones are none."""
    try:
        entries = sorted(folder.iterdir())
    except OSError as error:
        raise BadRepository(f"{folder} can't be read: {error.strerror}") from None
    return (each for each in entries if each.is_dir() and not each.name.startswith((".", "__")))


def figures(facts: Machine, task: Task, done: Sequence[Repaired]) -> RepairFigures:
    completed = sum(each.completed for each in done)
    return RepairFigures(
        machine=facts,
        model=task.model,
        limit_seconds=task.limit_seconds,
        completed=completed,
        total=len(done),
        ratio=ratio(completed, len(done)),
        seconds=Spread.of([each.seconds for each in done], digits=1),
        repositories=list(done),
    )


def _repair(commands: Devfix, repository: Path, task: Task) -> Repaired:
    copy = (task.keep.resolve() if task.keep else commands.folder / "repositories") / repository.name
    shutil.copytree(repository, copy, symlinks=True)
    options = ["--yes", "--json", "--model", task.model, "--deadline-seconds", str(task.limit_seconds)]
    if task.test_command:
        options += ["--test", task.test_command]
    began = time.monotonic()
    facts = facts_of(commands.start("run", str(copy), *options), seconds=task.limit_seconds + GRACE_SECONDS)
    seconds = time.monotonic() - began
    if "error" in facts:
        facts = {"status": "refused", "reason": facts["code"], "report": {"summary": facts["error"]}, "step": 0}
    return Repaired(
        repository=repository.name,
        completed=facts["status"] == "completed",
        standing=f"{facts['status']}: {facts['reason']}",
        seconds=round(seconds, 1),
        steps=facts["step"],
        candidates=_candidates(commands, facts),
        summary=facts["report"]["summary"],
    )


def _candidates(commands: Devfix, facts: dict[str, object]) -> int:
    if not facts["step"]:
        return 0
    shown = commands.facts("show", str(facts["run_id"]), "--step", str(facts["step"]))
    return int(shown.get("state", {}).get("work", {}).get("candidates") or 0)
