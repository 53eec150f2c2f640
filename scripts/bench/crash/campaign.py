"""The driver: it keeps workers running, begins runs, answers as a person does, strikes, and judges what is left."""

from __future__ import annotations

import asyncio
import os
import random
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from scripts.bench.crash.figures import (
    CrashFigures,
    Fault,
    Kind,
    Outcome,
    Point,
    TrialFigures,
    crash_figures,
    trial_figures,
)
from scripts.bench.crash.orphans import adopt_orphans, children, left_processes
from scripts.bench.crash.plan import Plan
from scripts.bench.crash.trial import Between, Trial
from scripts.bench.crash.wire import Moment
from scripts.bench.crash.workers import Worker, has_socket
from scripts.bench.machine import machine
from scripts.bootstrap import Application, build
from scripts.starting import begin, check_input, completed_input
from state import embedded
from state.approvals import Decision
from state.database import WHOLE_LEASES
from state.errors import AlreadyDecided, DevfixError
from state.patience import patiently
from state.runs import Run
from state.settings import Settings
from state.status import TERMINAL
from state.steps import Step

END_SECONDS = 180.0
"""A run that has not ended so long after its last blow hangs."""
LOOK_SECONDS = 0.05
WORKERS = 2
"""One at work, and one that takes over."""
LEASE_SECONDS = 3.0
HEARTBEAT_SECONDS = 0.5
FROZEN_SECONDS = (WHOLE_LEASES + 4) * LEASE_SECONDS
"""A frozen process is overtaken by then, also one that was frozen while it sent a transaction."""
WOKEN_SECONDS = 1.0
"""What a process that was frozen still does when it wakes up, it does within this; only then its run is judged."""
_MOST_WORKERS = 3

Result = TypeVar("Result")
OpenTrial = Callable[[Between], AbstractAsyncContextManager[Trial]]


class _Death(NamedTuple):
    """A worker was killed."""

    at: float
    others_ready: bool
    """There was another one to take over."""


class Campaign:
    """One trial on one database: runs, one after another."""

    def __init__(self, folder: Path, url: str, *, home: Path, end_seconds: float = END_SECONDS) -> None:
        self._end_seconds = end_seconds
        self._folder = folder
        self._url = url
        self._home = home
        """Where the database's server lives."""
        self._workers: list[Worker] = []
        self._expected: Mapping[str, int] = {}
        self._seen: Counter[tuple[str, str]] = Counter()
        self._pending: list[Fault] = []
        self._strikes: set[asyncio.Task[Any]] = set()
        self._frozen: set[asyncio.Event] = set()
        self._struck_now: list[Fault] = []
        self._deaths: list[_Death] = []
        self._taken_over: list[float] = []
        self._run_id: str | None = None
        self._trouble: list[str] = []
        self.struck: list[Fault] = []
        self.points: set[Point] = set()
        self.seconds = 0.0
        """How long an undisturbed run takes."""

    @asynccontextmanager
    async def on(self, open_trial: OpenTrial) -> AsyncIterator[None]:
        """The trial, its workers, and the application that begins its runs and answers their questions."""
        between = Between(self._folder, self._watch, self._owner, self._worker_among)
        async with open_trial(between) as trial:
            self._trial = trial
            self._environment = self._variables(trial.environment)
            self._application = _application(self._environment, self._url)
            try:
                await self._application.services.open()
                yield
            finally:
                for strike in self._strikes:
                    strike.cancel()
                for worker in self._workers:
                    await worker.close()
                await self._application.services.close()

    def _variables(self, own: Mapping[str, str]) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("DEVFIX_")}
        return {
            **kept,
            "DEVFIX_HOME": str(self._folder / "home"),
            "DEVFIX_LEASE_SECONDS": str(LEASE_SECONDS),
            "DEVFIX_HEARTBEAT_SECONDS": str(HEARTBEAT_SECONDS),
            **own,
        }

    @property
    def name(self) -> str:
        return self._trial.name

    # -- runs -----------------------------------------------------------------------------------------------------

    async def undisturbed(self) -> Outcome:
        """What a run does when nobody disturbs it: what others are compared with, and where they can be struck.

        Raises DevfixError where it does not complete.
        """
        outcome = await self.run([])
        if not outcome.standing.startswith("completed"):
            raise DevfixError(
                f"the undisturbed run of {self._trial.name} did not complete ({outcome.standing}); there is nothing to "
                f"compare with: {' '.join(outcome.trouble)}"
            )
        self._expected = outcome.effects
        self.points = {
            Point(place, side, number + 1)  # type: ignore[arg-type]
            for (place, side), count in self._seen.items()
            for number in range(count)
        }
        return outcome

    async def run(self, faults: Sequence[Fault]) -> Outcome:
        """One run, from its begin to its end, with these blows; `fallen` are those that fell."""
        await self._staff()
        await self._ready()
        self._seen.clear()
        self._pending = [fault for fault in faults if isinstance(fault.at, Point)]
        self._struck_now, self._deaths, self._taken_over, self._trouble = [], [], [], []
        given = completed_input(await asyncio.to_thread(self._trial.next))
        await check_input(self._application, given)
        began = time.monotonic()
        self._run_id = run_id = await begin(self._application, given, due_seconds=0)
        timed = [asyncio.create_task(self._strike_later(each)) for each in faults if isinstance(each.at, float)]
        run = await self._accompany(run_id)
        self.seconds = self.seconds or time.monotonic() - began
        for task in timed:
            task.cancel()
        self._pending.clear()
        await self._calm()
        return await self._judged(run)

    @property
    def fallen(self) -> Sequence[Fault]:
        """The blows that fell on the last run."""
        return self._struck_now

    async def _accompany(self, run_id: str) -> Run:
        """Answer what the run asks, until it has ended, asks for help, or hangs."""
        deadline, blows = time.monotonic() + self._end_seconds, 0
        while True:
            if len(self._struck_now) > blows:
                deadline, blows = time.monotonic() + self._end_seconds, len(self._struck_now)
            run = await patiently(lambda: self._application.services.runs.get(run_id))
            if run.status in TERMINAL or run.reason in {"escalation", "upgrade"}:
                return run
            if time.monotonic() > deadline:
                self._trouble.append(f"it has not gone on for {self._end_seconds:.0f} s, and stands {run.standing}")
                return run
            if run.reason == "approval":
                await self._approve(run_id)
            await asyncio.sleep(LOOK_SECONDS)

    async def _approve(self, run_id: str) -> None:
        """As a person does."""
        approvals = self._application.services.approvals
        for row in await patiently(lambda: approvals.of(run_id)):
            if row.decision is None:
                decision, call = Decision(type="approve"), row.question.call_id
                with suppress(AlreadyDecided):
                    await patiently(lambda c=call, d=decision: approvals.decide(run_id, c, d, by="campaign", wake=True))  # type: ignore[misc]

    async def _calm(self) -> None:
        """Until nobody is frozen any more, and what they were at has ended."""
        for thawing in self._frozen:
            thawing.set()
        if self._strikes:
            await asyncio.wait(self._strikes)
        if any(fault.kind == "freeze" for fault in self._struck_now):
            await asyncio.sleep(WOKEN_SECONDS)
        self._run_id = None

    # -- blows ----------------------------------------------------------------------------------------------------

    async def _watch(self, moment: Moment) -> bool:
        if self._run_id is None:
            return True
        self._seen[moment.place, moment.side] += 1
        here = Point(moment.place, moment.side, self._seen[moment.place, moment.side])
        fault = next((each for each in self._pending if each.at == here), None)
        worker = next((each for each in self._workers if each.pid == moment.who), None)
        if fault is None or worker is None:
            return True
        self._pending.remove(fault)
        striking = self._aside(self._strike(fault, worker))
        if fault.kind == "freeze" and moment.kind == "request":
            return True  # what a frozen process has asked for is on its way all the same
        return await striking or (fault.kind == "restart" and moment.kind == "request")

    def _aside(self, strike: Coroutine[None, None, Result]) -> asyncio.Future[Result]:
        """In a task of its own: the connection on which it fell may be gone before it has ended."""
        task = asyncio.create_task(strike)
        self._strikes.add(task)
        task.add_done_callback(self._strikes.discard)
        return asyncio.shield(task)

    async def _strike_later(self, fault: Fault) -> None:
        await asyncio.sleep(float(fault.at))  # type: ignore[arg-type]
        run = await patiently(lambda: self._application.services.runs.get(str(self._run_id)))
        holder = run.holder.pid if run.holder else None
        ready = [each for each in self._workers if each.alive and not each.frozen]
        worker = next((each for each in ready if each.pid == holder), ready[0] if ready else None)
        if worker is not None:
            await self._aside(self._strike(fault, worker))

    async def _strike(self, fault: Fault, worker: Worker) -> bool:
        """Whether what was under way may go on."""
        self._struck_now.append(fault)
        self.struck.append(fault)
        match fault.kind:
            case "kill":
                worker.kill()
                self._deaths.append(_Death(time.time(), any(each.ready for each in self._workers)))
                self._aside(self._time_takeover(worker.pid))
                await self._staff()
            case "cut":
                if not isinstance(fault.at, Point):
                    await worker.cut()
            case "restart":
                await embedded.stop(self._home)
                await embedded.start(self._home)
            case "freeze":
                await self._freeze(worker)
                return True
        return False

    async def _freeze(self, worker: Worker) -> None:
        """Until another one has taken its run over and, every other time, has ended it."""
        thawing = asyncio.Event()
        worker.freeze()
        self._frozen.add(thawing)
        await self._staff()
        until = time.monotonic() + FROZEN_SECONDS
        to_the_end = len(self.struck) % 2 == 0
        while not thawing.is_set():
            run = await patiently(lambda: self._application.services.runs.get(str(self._run_id)))
            held = run.holder is not None and run.holder.pid == worker.pid
            if not held and not to_the_end:
                break
            if held and time.monotonic() > until:
                self._trouble.append(f"nobody took over from a frozen process in {FROZEN_SECONDS:.0f} s")
                break
            await asyncio.sleep(LOOK_SECONDS)
        self._frozen.discard(thawing)
        worker.thaw()

    async def _time_takeover(self, dead: int) -> None:
        """From the death of a run's holder until another holds it, or from the last death of one who was about to.

        A run that nobody held then waits for nobody; and where nobody was ready, it is the start of a process that
        would be measured.
        """
        held, until = False, time.monotonic() + self._end_seconds
        while time.monotonic() < until:
            run = await patiently(lambda: self._application.services.runs.get(str(self._run_id)))
            if run.holder is None or (held and run.holder.pid != dead):
                at = run.updated_at.timestamp()
                before = [each for each in self._deaths if each.at < at]
                if held and run.holder is not None and before and before[-1].others_ready:
                    self._taken_over.append(round(at - before[-1].at, 3))
                return
            if run.holder.pid != dead or run.status in TERMINAL:
                return
            held = True
            await asyncio.sleep(0.02)

    def _owner(self, port: int) -> int | None:
        return next((each.pid for each in self._workers if each.alive and has_socket(each.pid, port)), None)

    def _worker_among(self, pids: Iterable[int]) -> int | None:
        workers = {each.pid for each in self._workers}
        return next((pid for pid in pids if pid in workers), None)

    async def _staff(self) -> None:
        """As many workers as there should be, and not many more."""
        for worker in [each for each in self._workers if not each.alive]:
            await worker.close()
            self._workers.remove(worker)
        ready = [each for each in self._workers if not each.frozen]
        for worker in ready[_MOST_WORKERS:]:
            await worker.close()
            self._workers.remove(worker)
        for _ in range(WORKERS - len(ready)):
            self._workers.append(await Worker.start(self._folder, self._environment, self._url, self._watch))

    async def _ready(self) -> None:
        """Raises DevfixError where the workers do not start."""
        until = time.monotonic() + END_SECONDS
        while sum(each.ready for each in self._workers) < WORKERS:
            ended = next((each for each in self._workers if not each.alive), None)
            if ended or time.monotonic() > until:
                raise DevfixError(f"a worker did not start: {(ended or self._workers[-1]).said.strip()[-500:]}")
            await asyncio.sleep(LOOK_SECONDS)

    # -- judging --------------------------------------------------------------------------------------------------

    async def _judged(self, run: Run) -> Outcome:
        services = self._application.services
        ledger = await services.ledger.of(run.run_id)
        steps = await self._application.steps.of(run.run_id)
        effects = dict(await asyncio.to_thread(self._trial.counted, run.run_id, ledger))
        expected = self._expected or effects
        ends_well = run.status == "completed"
        reported = bool((run.report or {}).get("summary"))
        told = run.reason == "escalation" and any(each.state in {"unknown", "absent"} for each in ledger)
        more = sum(max(count - expected.get(name, 0), 0) for name, count in effects.items())
        less = sum(max(count - effects.get(name, 0), 0) for name, count in expected.items()) if ends_well else 0
        broken = broken_steps(steps)
        trouble = [*self._trouble, *broken]
        if not (ends_well or told):
            trouble.append(f"it stands {run.standing}: {(run.report or {}).get('summary')}")
        if not reported:
            trouble.append(f"it stands {run.standing} without a report")
        return Outcome(
            run_id=run.run_id,
            struck=[str(each) for each in self._struck_now],
            standing=str(run.standing),
            steps=len(steps),
            effects=effects,
            duplicates=more,
            lost=less + len(broken),
            true_status=(ends_well or told) and reported,
            told=told,
            taken_over_after=self._taken_over,
            trouble=trouble,
        )


def broken_steps(steps: Sequence[Step]) -> list[str]:
    """What is wrong with a run's steps: one that is missing, two beside each other, an attempt after its successor."""
    found = []
    if [each.number for each in steps] != list(range(1, len(steps) + 1)):
        found.append(f"its steps are numbered {[each.number for each in steps]}")
    for before, after in pairwise(steps):
        if after.parent_id != before.checkpoint_id:
            found.append(f"step {after.number} does not follow step {before.number}")
        if after.epoch < before.epoch:
            found.append(f"step {after.number} was saved by attempt {after.epoch}, after one of {before.epoch}")
    return found


def _application(environment: Mapping[str, str], url: str) -> Application:
    prefix = "DEVFIX_"
    given = {name.removeprefix(prefix).lower(): value for name, value in environment.items() if name.startswith(prefix)}
    return build(Settings.model_validate({**given, "database_url": url}), label="campaign")


class Server(NamedTuple):
    """A PostgreSQL of the campaign's own, and a folder."""

    folder: Path
    home: Path
    url: str


@asynccontextmanager
async def own_server() -> AsyncIterator[Server]:
    """Nothing is left of it afterwards."""
    with tempfile.TemporaryDirectory(prefix="devfix-bench-", ignore_cleanup_errors=True) as name:
        home = Path(name) / "server"
        url = await embedded.start(home)
        try:
            yield Server(Path(name), home, url)
        finally:
            await embedded.stop(home)


@asynccontextmanager
async def campaign(
    server: Server, open_trial: OpenTrial, *, end_seconds: float = END_SECONDS
) -> AsyncIterator[Campaign]:
    """A campaign that knows what an undisturbed run does."""
    folder = Path(tempfile.mkdtemp(dir=server.folder))
    made = Campaign(folder, server.url, home=server.home, end_seconds=end_seconds)
    async with made.on(open_trial):
        await made.undisturbed()
        yield made


async def measure(
    trials: Sequence[OpenTrial],
    blows: Mapping[Kind, int],
    *,
    seed: int = 1,
    tell: Callable[[str], None] = lambda _: None,
) -> CrashFigures:
    """So many blows on the runs of each trial, on a PostgreSQL of the campaign's own."""
    began = time.monotonic()
    adopt_orphans()
    async with own_server() as server:
        figures = [await _all_runs(server, open_trial, blows, seed, tell) for open_trial in trials]
        application = _application({}, server.url)
        facts = await machine(application.database)
        await application.services.close()
    return crash_figures(facts, figures, seed=seed, seconds=time.monotonic() - began)


async def _all_runs(
    server: Server, open_trial: OpenTrial, blows: Mapping[Kind, int], seed: int, tell: Callable[[str], None]
) -> TrialFigures:
    known = children()
    outcomes = []
    async with campaign(server, open_trial) as under_way:
        tell(f"{under_way.name}: {len(under_way.points)} points, {under_way.seconds:.1f} s undisturbed")
        chance = random.Random(seed)  # noqa: S311 - repeatable on purpose
        plan = Plan(under_way.points, under_way.seconds, blows, chance)
        while plan:
            faults = plan.next()
            outcome = await under_way.run(faults)
            plan.give_back(each for each in faults if each not in under_way.fallen)
            outcomes.append(outcome)
            tell(f"{under_way.name} {outcome}")
    left = await asyncio.to_thread(left_processes, known)
    return trial_figures(
        under_way.name,
        outcomes,
        points=under_way.points,
        struck=under_way.struck,
        processes_left=left,
    )
