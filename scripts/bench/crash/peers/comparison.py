"""The driver of the comparison: one worker of a system, killed while it runs errands, and started afresh."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from scripts.bench.crash.campaign import Server, own_server
from scripts.bench.crash.figures import Fault, Point
from scripts.bench.crash.peers.figures import Errand, PeerFigures, SystemFigures, counted
from scripts.bench.crash.peers.places import Places, Seen
from scripts.bench.crash.peers.processes import PeerWorker
from scripts.bench.crash.peers.shop import Shop, open_shop
from scripts.bench.crash.peers.systems import (
    COMPLETED,
    CONTENDERS,
    RUNNING,
    WAITING,
    Contender,
    Place,
    System,
    until_ready,
)
from scripts.bench.crash.wire import HttpWire, Moment
from scripts.bench.crash.workers import has_socket
from scripts.bench.machine import machine
from scripts.bench.spread import Spread
from scripts.bootstrap import build
from state.errors import DevfixError, Refused
from state.settings import Settings

END_SECONDS = 90.0
"""A run that has not ended so long after its last blow hangs."""
LOOK_SECONDS = 0.03
RUNS_A_KILL = 3
"""Where blows do not fall, no more runs than this for each of them."""
LATE_SECONDS = 1.0
"""What was asked of the shop is done by then."""

Tell = Callable[[str], None]


class Driver:
    """One system's runs, one after another, and the blows on its worker."""

    def __init__(self) -> None:
        self.struck: list[Fault] = []
        self.next_seconds: list[float] = []
        self.points: dict[Point, Seen] = {}
        self.seconds = 0.0
        """How long the undisturbed run took."""
        self._system: System
        self._worker: PeerWorker
        self._dead: list[PeerWorker] = []
        self._order = 0
        self._under_way = False
        self._seen: Counter[tuple[str, str]] = Counter()
        self._here: dict[Point, Seen] = {}
        self._pending: list[Fault] = []
        self.fallen: list[Fault] = []
        """The blows of the last run."""
        self._strikes: set[asyncio.Task[None]] = set()
        self._killed: float | None = None

    @asynccontextmanager
    async def on(self, system: System) -> AsyncIterator[None]:
        self._system = system
        self._worker = await system.start_worker()
        try:
            yield
        finally:
            for each in [*self._dead, self._worker]:
                await each.close()

    async def undisturbed(self) -> Errand:
        """Where a run can be struck, and how long it takes. Raises DevfixError where it does not complete."""
        await self.run([])  # the first one of a process is slower than the others
        began = time.monotonic()
        errand = await self.run([])
        self.seconds = time.monotonic() - began
        if errand.standing != COMPLETED:
            raise DevfixError(f"the undisturbed run is {errand.standing}: {self._worker.said.strip()[-500:]}")
        self.points = dict(self._here)
        return errand

    async def run(self, faults: Sequence[Fault]) -> Errand:
        """One errand, from its begin to its end; what stands at the shop is not counted yet."""
        await until_ready(self._worker)
        before = len(self.next_seconds)
        self._order += 1
        self._seen.clear()
        self._here.clear()
        self._pending = [fault for fault in faults if isinstance(fault.at, Point)]
        self.fallen, self._killed, self._under_way = [], None, True
        timed = [asyncio.create_task(self._strike_later(each)) for each in faults if isinstance(each.at, float)]
        await self._system.begin(self._order)
        standing = await self._accompany()
        self._under_way = False
        for task in timed:
            task.cancel()
        await self._settle(hangs=standing.startswith((RUNNING, WAITING)))
        return Errand(
            order=self._order,
            struck=[str(each) for each in self.fallen],
            went_on_after=[round(each, 2) for each in self.next_seconds[before:]],
            standing=standing,
            refunds=0,
            letters=0,
        )

    async def _accompany(self) -> str:
        """Answer the question, as a person does, until the run has ended or hangs."""
        deadline, blows, answered = time.monotonic() + END_SECONDS, 0, False
        while True:
            if len(self.fallen) > blows:
                deadline, blows = time.monotonic() + END_SECONDS, len(self.fallen)
            standing = await self._system.standing(self._order)
            if standing not in {RUNNING, WAITING}:
                if self._worker.ready:
                    self._goes_on()
                return standing
            if time.monotonic() > deadline:
                return f"{standing}, and has not gone on for {END_SECONDS:.0f} s"
            if standing == WAITING and not answered:
                await self._system.approve(self._order)
                answered = True
            await asyncio.sleep(LOOK_SECONDS)

    async def _settle(self, *, hangs: bool) -> None:
        if self._strikes:
            await asyncio.wait(self._strikes)
        if hangs:  # the next run is not to suffer from it
            self._dead.append(self._worker)
            self._worker = await self._system.start_worker()
        for each in self._dead:
            await each.close()
        self._dead.clear()

    def struck_at(self, kind: Seen) -> int:
        return sum(isinstance(each.at, Point) and self.points.get(each.at) == kind for each in self.struck)

    def owner(self, port: int) -> int | None:
        return self._worker.pid if self._worker.alive and has_socket(self._worker.pid, port) else None

    async def watch(self, moment: Moment) -> bool:
        if not self._under_way:
            return True
        own = moment.who == self._worker.pid and self._worker.alive  # else it is on its way from one that is dead
        if own and moment.kind == "request" and moment.side == "before":
            self._goes_on()
        self._seen[moment.place, moment.side] += 1
        here = Point(moment.place, moment.side, self._seen[moment.place, moment.side])
        self._here[here] = moment.kind
        fault = next((each for each in self._pending if each.at == here), None)
        if fault is None or not own:
            return True
        self._pending.remove(fault)
        await asyncio.shield(self._aside(fault))
        return False

    def _aside(self, fault: Fault) -> asyncio.Task[None]:
        """In a task of its own: the connection on which it falls is gone before it has ended."""
        strike = asyncio.create_task(self._strike(fault))
        self._strikes.add(strike)
        strike.add_done_callback(self._strikes.discard)
        return strike

    def _goes_on(self) -> None:
        if self._killed is not None:
            self.next_seconds.append(time.monotonic() - self._killed)
            self._killed = None

    async def _strike_later(self, fault: Fault) -> None:
        """So many seconds of a worker that can work: one that only starts does nothing that could be doubled."""
        left, seen = float(fault.at), time.monotonic()  # type: ignore[arg-type]
        while left > 0 or not self._worker.ready:
            await asyncio.sleep(0.005)
            now = time.monotonic()
            left, seen = left - (now - seen) * self._worker.ready, now
        self._aside(fault)

    async def _strike(self, fault: Fault) -> None:
        self._worker.kill()
        self._killed = time.monotonic()
        self.fallen.append(fault)
        self.struck.append(fault)
        self._dead.append(self._worker)
        self._worker = await self._system.start_worker()


async def measure(
    settings: Settings,
    *,
    kills: int = 50,
    seed: int = 1,
    only: Collection[str] = (),
    tell: Tell = lambda _: None,
) -> PeerFigures:
    """So many kills of each system's worker, on a PostgreSQL of the comparison's own."""
    began = time.monotonic()
    known = {each.name.casefold(): each for each in CONTENDERS}
    if unknown := [name for name in only if name.casefold() not in known]:
        raise Refused(f"--only {unknown[0]}: there is {'; '.join(each.name for each in CONTENDERS)}")
    chosen = [known[name.casefold()] for name in only] or CONTENDERS
    async with own_server() as server:
        systems = [await _measured(each, server, settings.home / "peers", kills, seed, tell) for each in chosen]
        application = build(Settings(home=server.folder / "home", database_url=server.url), label="bench")
        facts = await machine(application.database)
        await application.services.close()
    return PeerFigures(machine=facts, seed=seed, seconds=round(time.monotonic() - began, 1), systems=systems)


async def _measured(
    contender: Contender, server: Server, cache: Path, kills: int, seed: int, tell: Tell
) -> SystemFigures:
    named = {"system": contender.name, "version": contender.version, "promise": contender.promise}
    driver = Driver()
    folder = server.folder / f"peer-{CONTENDERS.index(contender)}"
    folder.mkdir()
    try:
        async with open_shop() as shop:
            wire = HttpWire("127.0.0.1", shop.port, driver.watch, who=driver.owner)
            async with wire.open() as port:
                place = Place(folder, server.url, f"http://127.0.0.1:{port}", driver.watch, cache)
                async with contender.open(place) as system, driver.on(system):
                    errands = await _errands(driver, contender.name, kills, seed, tell)
                    await asyncio.sleep(LATE_SECONDS)
            found = counted(_at_the_shop(errands, shop))
    except DevfixError as error:
        tell(f"{contender.name}: not measured: {error}")
        return SystemFigures(**named, not_measured=str(error))
    return SystemFigures.model_validate(
        {
            **named,
            **found,
            "seconds": round(driver.seconds, 2),
            "points": len(driver.points),
            "kills": len(driver.struck),
            "kills_at_requests": driver.struck_at("request"),
            "kills_at_commits": driver.struck_at("commit"),
            "next_seconds": Spread.of(driver.next_seconds, digits=2) if driver.next_seconds else None,
        }
    )


async def _errands(driver: Driver, name: str, kills: int, seed: int, tell: Tell) -> list[Errand]:
    await driver.undisturbed()
    tell(f"{name}: {len(driver.points)} points, {driver.seconds:.1f} s undisturbed")
    chance = random.Random(seed)  # noqa: S311 - repeatable on purpose
    places = Places(driver.points, driver.seconds, kills, chance)
    errands: list[Errand] = []
    while places and len(errands) < RUNS_A_KILL * kills:
        faults = places.next()
        errand = await driver.run(faults)
        places.give_back(each for each in faults if each not in driver.fallen)
        errands.append(errand)
        tell(f"{name}: {errand}")
    return errands


def _at_the_shop(errands: Sequence[Errand], shop: Shop) -> list[Errand]:
    return [
        each.model_copy(update={"refunds": shop.refunds[each.order], "letters": shop.letters[each.order]})
        for each in errands
    ]
