"""Each row as a real run of the graph, on PostgreSQL, against a chat endpoint on loopback; and what it came to."""

from __future__ import annotations

import asyncio
import json
import logging
import random
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, Final

from scripts.bench.crash.campaign import own_server
from scripts.bench.faults.blows import Blows
from scripts.bench.faults.conversation import complaints
from scripts.bench.faults.endpoint import Answer, Blow, Endpoint, Strike, endpoint
from scripts.bench.faults.errand import ERRAND, letters
from scripts.bench.faults.figures import RAN, FaultFigures, Outcome, fault_figures
from scripts.bench.faults.servers import Server
from scripts.bench.faults.table import DEEPEST, LOOK, TABLE, Row, before
from scripts.bench.faults.traces import trace_figures
from scripts.bench.machine import machine
from scripts.bootstrap import Application, build
from state.approvals import Decision
from state.errors import DevfixError, Refused, words_of
from state.runs import Run
from state.settings import Settings

FIRST, SECOND = "openai:gpt-4o", "openai:gpt-4o-mini"
END_SECONDS: Final = 90.0
AT_ONCE: Final = 4
"""Runs under way at the same moment; those whose database is struck are alone."""
_GOES_ON: Final = 8
"""How often a run that was put down, or waits for an approval, is gone on with."""
_VICTIM: Final = "from scripts.bench.faults.victim import main; main()"
_KILL: Final = "kill"
_QUICK: Final = {
    "heartbeat_seconds": 0.5,
    "lease_seconds": 3.0,
    "tool_retries": 0,
    "model_pause_seconds": 0.002,
    "database_pool_size": 4,
}

Tell = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class World:
    """Where the campaign's runs live."""

    folder: Path
    url: str
    blows: Blows


@dataclass(kw_only=True)
class Trial:
    """One run of one row, with the fault at the place that the seed says; killed in the middle, or not."""

    world: World
    row: Row
    seed: int
    killed: bool = False
    server: Server | None = None
    """Who gives the model's answers, where the endpoint does not itself."""
    end_seconds: float = END_SECONDS
    run_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    unapproved: int = 0
    approved: bool = False
    trouble: list[str] = field(default_factory=list)
    victim: subprocess.Popen[bytes] | None = None

    def __post_init__(self) -> None:
        chance = random.Random(f"{self.row.name} {self.seed}")  # noqa: S311 - repeatable on purpose
        self.place = chance.randrange(DEEPEST + 1)
        """Honest turns before the fault."""
        self.killed_at = chance.randrange(min(self.row.asks or 1, 2))
        """The question, from the fault on, at which the process is killed, if it is."""
        if self.row.put_down:
            self.killed_at = 0  # it may end by itself before it asks a second one
        if self.killed and "deadline_seconds" in self.row.limits:
            self.place = self.killed_at = 0  # so it may where its time is short
        self.folder = Path(tempfile.mkdtemp(dir=self.world.folder))

    @property
    def sink(self) -> Path:
        return self.folder / "letters"

    async def outcome(self) -> Outcome:
        """Run it to its end, and judge."""
        began = time.monotonic()
        script = self.row.script(before(self.place))
        if self.killed:
            script += script[-1:] * 2  # what is said for ever, and not the blow
            script.insert(self.place + self.killed_at, Blow(_KILL, LOOK))
        async with (
            endpoint(*self._given(script), strike=self._strike, host=_own_address()) as first,
            _maybe(self._given(self.row.second), self._strike) as second,
        ):
            settings = self._settings([each.url for each in (first, second) if each])
            try:
                async with asyncio.timeout(self.end_seconds):
                    run, ran = await self._run(settings)
            except TimeoutError:
                run, ran = None, []
                self.trouble.append(f"it had not ended after {self.end_seconds:.0f} s")
            except DevfixError as error:
                run, ran = None, []
                self.trouble.append(f"nobody can tell how it stands: {error}")
            finally:
                await asyncio.to_thread(self._end_victim)
            await self.world.blows.healed()
            return self._judged(run, ran, first, second, time.monotonic() - began)

    def _given(self, answers: Sequence[Answer]) -> list[Answer]:
        return [*map(self.server.answer, answers)] if self.server else [*answers]

    def _settings(self, urls: Sequence[str]) -> Settings:
        models = {name: {"base_url": url} for name, url in zip((FIRST, SECOND), urls, strict=False)}
        given = {"models": models, "fallback_models": list(models)[1:], **_QUICK, **self.row.settings}
        return Settings.model_validate({"database_url": self.world.url, "home": self.world.folder / "home", **given})

    async def _strike(self, kind: str) -> None:
        if kind == _KILL:
            await asyncio.to_thread(self._end_victim)
        else:
            await self.world.blows.strike(kind)

    def _end_victim(self) -> None:
        if self.victim is not None:
            self.victim.kill()
            self.victim.wait()

    # -- the run ------------------------------------------------------------------------------------------------------

    async def _run(self, settings: Settings) -> tuple[Run, list[str]]:
        """How it stands in the end, and the tools that ran."""
        given: dict[str, Any] | None = {
            "job": ERRAND.name,
            "model": FIRST,
            "options": {"sink": str(self.sink)},
            **self.row.given(self.place),
        }
        if self.killed:
            await self._begun_and_killed(settings, given or {})
            given = None
        application = build(settings, label="bench", jobs={ERRAND.name: ERRAND})
        try:
            run = await self._to_the_end(application, given)
            trace = await application.services.trace.of(self.run_id)
            state = await application.agent().aget_state({"configurable": {"thread_id": self.run_id}})
            self.trouble += [str(each["detail"]) for each in state.values["failures"] if each["kind"] == "internal"]
        finally:
            await application.services.close()
        return run, [call.name for call in trace if call.kind == "tool"]

    async def _begun_and_killed(self, settings: Settings, given: dict[str, Any]) -> None:
        told = json.dumps({"settings": settings.model_dump(mode="json"), "run_id": self.run_id, "given": given})
        with (self.folder / "victim.log").open("wb") as log:
            self.victim = subprocess.Popen(  # noqa: ASYNC220 - it only starts
                [sys.executable, "-c", _VICTIM, told], stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        if await asyncio.to_thread(self.victim.wait) != -9:
            self.trouble.append("it ended before it was killed")

    async def _to_the_end(self, application: Application, given: dict[str, Any] | None) -> Run:
        """Go on as long as the run is only put down, and approve what a person is asked."""
        agent = application.agent()
        for _ in range(_GOES_ON):
            told = ""
            try:
                await agent.ainvoke(given, {"configurable": {"thread_id": self.run_id}})
            except DevfixError as error:
                told = str(error)
            except Exception as error:  # noqa: BLE001 - a defect of the product is a row's outcome, not the campaign's
                told = words_of(error)
                self.trouble.append(told)
            given = None
            await self.world.blows.healed()
            run = await application.services.runs.get(self.run_id)
            match str(run.standing):
                case "waiting: approval":
                    await self._approve(application)
                case "queued: released" | "queued: crashed" | "queued: new":
                    continue
                case standing:
                    if told and standing.startswith("running"):
                        self.trouble.append(told)
                    return run
        return run

    async def _approve(self, application: Application) -> None:
        """What is open, as a person does."""
        if not self.approved:
            self.unapproved += len(letters(self.sink))
        self.approved = True
        approvals = application.services.approvals
        for row in await approvals.of(self.run_id):
            if row.decision is None:
                await approvals.decide(self.run_id, row.question.call_id, Decision(type="approve"), by="campaign")

    # -- the judgement ------------------------------------------------------------------------------------------------

    def _judged(
        self, run: Run | None, ran: Sequence[str], first: Endpoint, second: Endpoint | None, seconds: float
    ) -> Outcome:
        standing, row = str(run.standing) if run else "no end", self.row
        asked, asked_second = len(first.requests) - self.place, len(second.requests) if second else 0
        again = self.killed_at + 1 if self.killed else 0
        posted = len(letters(self.sink))
        self.trouble += [*first.trouble, *(second.trouble if second else [])]
        if run is not None and run.report is None:
            self.trouble.append("no report")
        self.trouble += [
            f"{name}{RAN}" for name in row.never if ran.count(name) > (self.place if name == "look" else 0)
        ]
        self.trouble += [f"a letter to {each['to']}" for each in letters(self.sink) if each["to"] != "ada"]
        self.trouble += self._of_requests(first, second)
        too_many = _beyond(asked, row.asks, again) + _beyond(asked_second, row.second_asks, again)
        return Outcome(
            row=row.name,
            group=row.group,
            seed=self.seed,
            killed=self.killed,
            served_by=self.server.name if self.server else "",
            expected=row.ends,
            standing=standing,
            asked=asked + asked_second,
            calls_after_a_limit=too_many,
            letters=posted,
            false_completed=standing.startswith("completed") and posted != 1,
            unapproved=self.unapproved if self.approved else posted,
            trouble=self.trouble,
            seconds=round(seconds, 2),
        )

    def _of_requests(self, first: Endpoint, second: Endpoint | None) -> Iterator[str]:
        """What is wrong with what the models were asked."""
        row, place = self.row, self.place
        for served in filter(None, (first, second)):
            refused = (why for request in served.requests for why in complaints(request))
            yield from (f"no provider takes the conversation: {why}" for why in islice(refused, 1))
        said = (str(each.get("content")) for request in first.requests[place + 1 :] for each in request["messages"])
        if row.told and not any(row.told in each for each in said):
            yield f"the model was not told {row.told!r}"
        if (asked := max(0, len(first.requests) - place)) < row.least:
            yield f"asked {asked} times only"
        if second is not None and row.second_asks and not second.requests:
            yield "the fallback was not asked"
        pauses = [later - sooner for sooner, later in pairwise(first.moments[place : place + 2])]
        if not self.killed and any(pause < row.waits for pause in pauses):
            yield f"asked again after {pauses[0]:.3f} s"


def _own_address() -> str:
    """A loopback address for this model alone: pauses are kept by address, and ports come again."""
    return "127." + ".".join(str(random.randrange(1, 255)) for _ in range(3))  # noqa: S311 - no secret


def _beyond(asked: int, most: int | None, again: int) -> int:
    """A killed process's question is asked again, and so are the tries that it had made."""
    return 0 if most is None else max(0, asked - most - again)


@asynccontextmanager
async def _maybe(answers: Sequence[Answer], strike: Strike) -> AsyncIterator[Endpoint | None]:
    """The endpoint of the model that the row's runs fall back to, if they do."""
    if not answers:
        yield None
        return
    async with endpoint(*answers, strike=strike, host=_own_address()) as made:
        yield made


async def all_of(trials: Sequence[Trial], *, tell: Tell) -> list[Outcome]:
    """Several at once, but for those whose database is struck."""
    free = asyncio.Semaphore(AT_ONCE)

    async def one(trial: Trial) -> Outcome:
        async with free:
            outcome = await trial.outcome()
        if not outcome.right:
            tell(str(outcome))
        return outcome

    together = [trial for trial in trials if trial.row.group != "database"]
    alone = [trial for trial in trials if trial.row.group == "database"]
    return [*await asyncio.gather(*map(one, together)), *[await one(trial) for trial in alone]]


def faults(only: str) -> list[Row]:
    """Those in whose `group: name` this stands. Raises Refused where there is none."""
    rows = [row for row in TABLE if only in f"{row.group}: {row.name}"]
    if not rows:
        raise Refused(f"there is no fault in whose group and name {only!r} stands")
    return rows


def sample(rows: Sequence[Row], number: int) -> list[Row]:
    """So many of the rows, evenly."""
    number = min(number, len(rows))
    return [rows[place * len(rows) // number] for place in range(number)]


async def measure(
    *,
    seeds: int = 10,
    kills: int = 20,
    only: str = "",
    servers: Sequence[Server] = (),
    tell: Tell = lambda _: None,
) -> FaultFigures:
    """Each row once a seed, and some with a kill in the middle, on a PostgreSQL of the campaign's own; once more a seed
    for each of these servers that can say what the row takes."""
    began = time.monotonic()
    rows = faults(only)
    _quiet()
    async with own_server() as server:
        world = World(folder=server.folder, url=server.url, blows=Blows(server.url, server.home))
        application = build(Settings(database_url=server.url, home=server.folder / "home"), label="bench")
        await application.services.open()
        outcomes: list[Outcome] = []
        for seed in range(seeds):
            trials = [Trial(world=world, row=row, seed=seed) for row in rows]
            for other in servers:
                trials += [Trial(world=world, row=row, seed=seed, server=other) for row in rows if other.serves(row)]
            outcomes += await all_of(trials, tell=tell)
            tell(f"seed {seed}: {sum(each.right for each in outcomes)} of {len(outcomes)} right so far")
        killed = [Trial(world=world, row=row, seed=seeds, killed=True) for row in sample(rows, kills)]
        outcomes += await all_of(killed, tell=tell)
        facts = await machine(application.database)
        await application.services.close()
    return fault_figures(facts, outcomes, trace_figures(), seeds=seeds, seconds=time.monotonic() - began)


def _quiet() -> None:
    """Trouble is what the campaign is about: it is judged by how runs end, and not told as it comes."""
    for name in ("psycopg.pool", "graph", "state", "tools"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
