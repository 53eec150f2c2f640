"""What the campaign runs, and how it counts afterwards what stands outside."""

from __future__ import annotations

import hashlib
import importlib
import os
import re
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import NamedTuple, Protocol
from urllib.parse import urlsplit

from pydantic import JsonValue

from scripts.bench.crash.wire import HttpWire, Watch
from scripts.sample_repository import copy_sample
from state.agent_state import RunInput
from state.ledger import Effect

COUNTER = "count_effects"
"""A function of the job's module, from a run's id to how often each of its effects stands at its sink."""

_IGNORED = {".git", "__pycache__", ".pytest_cache"}
_ADDRESS = re.compile(r"http://(?:127\.0\.0\.1|localhost)(?::\d+)?")


class Between(NamedTuple):
    """What a trial's wires need."""

    folder: Path
    watch: Watch
    who: Callable[[int], int | None]
    """Which worker a connection from this port belongs to."""
    worker_among: Callable[[Iterable[int]], int | None]
    """Which of these processes is a worker."""


class Trial(Protocol):
    """One kind of run, again and again."""

    name: str
    environment: Mapping[str, str]
    """Settings of the workers, and of whoever begins and answers."""

    def next(self) -> RunInput:
        """The input of one more run, on a world of its own."""

    def counted(self, run_id: str, ledger: Sequence[Effect]) -> Mapping[str, int]:
        """How often each effect of the last run stands outside, by names that are the same for each run."""


class RepairTrial:
    """The sample repository, repaired, and the patch applied to it."""

    name = "repair"

    def __init__(self, folder: Path, *, model: str | None = None) -> None:
        self.environment: Mapping[str, str] = {}
        self._folder = folder
        self._model = model
        self._repository = folder
        self._number = 0
        self._patched: str | None = None

    def next(self) -> RunInput:
        self._number += 1
        self._repository = copy_sample(self._folder / f"sample-{self._number}")
        return RunInput(repository=str(self._repository), model=self._model)

    def counted(self, run_id: str, ledger: Sequence[Effect]) -> Mapping[str, int]:
        """The folder holds what the undisturbed run made of it, and the ledger says once."""
        found = tree_hash(self._repository)
        self._patched = self._patched or found
        applied = sum(each.tool == "apply_patch_to_repository" and each.state == "settled" for each in ledger)
        return {"the patch in the folder": int(found == self._patched), "the patch in the ledger": applied}


class JobTrial:
    """A job of the user's: its HTTP servers on loopback are reached through wires, which count what they did."""

    def __init__(self, job: str, given: RunInput, wires: Sequence[HttpWire], folder: Path) -> None:
        self.name = job
        self.environment: Mapping[str, str] = {"DEVFIX_JOB": job}
        self._given = given
        self._wires = wires
        self._counter = getattr(importlib.import_module(job.partition(":")[0]), COUNTER, None)

    def next(self) -> RunInput:
        for wire in self._wires:
            wire.answered.clear()
        return self._given

    def counted(self, run_id: str, ledger: Sequence[Effect]) -> Mapping[str, int]:
        """By the job's own counter, else what its servers have said yes to; and by the ledger."""
        counts = Counter(f"{each.tool}, in the ledger" for each in ledger if each.state == "settled")
        if self._counter is not None:
            return {**counts, **self._counter(run_id)}
        answered = [each for wire in self._wires for each in wire.answered]
        return counts + Counter(
            each.place for each in answered if not each.place.startswith("GET") and 200 <= each.status < 300
        )


@asynccontextmanager
async def job_trial(job: str, given: RunInput, between: Between) -> AsyncIterator[JobTrial]:
    """With a wire for each `http://127.0.0.1…` among the run's options."""
    async with AsyncExitStack() as stack:
        wires: dict[str, HttpWire] = {}
        options: dict[str, JsonValue] = {}
        for name, value in given.options.items():
            for address in set(_ADDRESS.findall(value)) if isinstance(value, str) else ():
                if address not in wires:
                    parts = urlsplit(address)
                    wires[address] = HttpWire(
                        parts.hostname or "127.0.0.1", parts.port or 80, between.watch, who=between.who
                    )
                    await stack.enter_async_context(wires[address].open())
                value = str(value).replace(address, f"http://127.0.0.1:{wires[address].port}")
            options[name] = value
        yield JobTrial(job, given.model_copy(update={"options": options}), list(wires.values()), between.folder)


@asynccontextmanager
async def repair_trial(model: str | None, between: Between) -> AsyncIterator[RepairTrial]:
    yield RepairTrial(between.folder, model=model)


def tree_hash(folder: Path) -> str:
    """One hash of all files, by path and content; what git and Python leave beside them does not count."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not _IGNORED & set(path.relative_to(folder).parts):
            digest.update(os.fsencode(path.relative_to(folder)) + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()
