"""The composition root: the one file that knows everyone. Everyone else is handed what they use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from graph.agent import build_agent
from graph.durable import DurableGraph
from graph.jobs import Job
from graph.models.chain import Chain
from graph.models.load import ModelLoader
from graph.models.prices import Prices
from graph.notices import announcer
from graph.policy import POLICY
from graph.services import Services
from scripts.jobs import SHIPPED, equipped, known_jobs
from state.approvals import PostgresApprovals
from state.artifacts import open_artifacts
from state.checkpointer import FencedSaver
from state.database import Database
from state.ledger import PostgresLedger
from state.outbox import Outbox
from state.pauses import Pauses
from state.queue import Queue
from state.runs import PostgresRuns
from state.settings import Settings, read_settings
from state.snapshots import Snapshots
from state.steps import Steps
from state.trace import PostgresTrace
from tools.execution import Execution
from tools.workspaces import Workspaces


@dataclass(frozen=True, kw_only=True)
class Application:
    """One process's DevFix. Nothing is open until it is used."""

    settings: Settings
    database: Database
    services: Services
    steps: Steps
    queue: Queue

    def saver(self) -> FencedSaver:
        """The checkpointer; needs a running event loop."""
        services = self.services
        return FencedSaver(database=self.database, runs=services.runs, trace=services.trace, saved=services.saved)

    def agent(self) -> DurableGraph:
        """The graph with its checkpointer; needs a running event loop."""
        return build_agent(self.services, checkpointer=self.saver())


def build(settings: Settings | None = None, *, label: str, jobs: Mapping[str, Job] = SHIPPED) -> Application:
    """Put the application together. Opens nothing; settings are read here, once, where none are given.

    Raises Refused for settings that do not fit, or a job of the user's that can't be loaded.
    """
    settings, jobs = known_jobs(settings or read_settings(), jobs)
    database = Database(settings)
    queue = Queue(database=database, lease_seconds=settings.lease_seconds)
    outbox = Outbox(database=database)
    runs = PostgresRuns(
        database=database,
        queue=queue,
        lease_seconds=settings.lease_seconds,
        announce=announcer(settings, outbox),
    )
    ledger = PostgresLedger(database=database)
    trace = PostgresTrace(database=database)
    artifacts = open_artifacts(settings=settings, database=database)
    snapshots = Snapshots(artifacts=artifacts)
    models = ModelLoader(runs=runs, trace=trace, settings=settings)
    chain = Chain(
        models=models, pauses=Pauses(database=database), settings=settings, retries=POLICY["model_error"].limit
    )

    async def close() -> None:
        await models.close()
        await database.close()

    services = Services(
        settings=settings,
        runs=runs,
        approvals=PostgresApprovals(database=database, queue=queue),
        ledger=ledger,
        outbox=outbox,
        trace=trace,
        artifacts=artifacts,
        snapshots=snapshots,
        workspaces=Workspaces(home=settings.home, snapshots=snapshots),
        execution=Execution(
            ledger=ledger,
            runs=runs,
            stop_seconds=2 * settings.heartbeat_seconds,
            retries=settings.tool_retries,
        ),
        models=models,
        chain=chain,
        jobs=equipped(jobs, settings),
        prices=Prices.read(settings.prices, settings.served),
        label=label,
        open=database.open,
        close=close,
    )
    return Application(
        settings=settings, database=database, services=services, steps=Steps(database=database), queue=queue
    )
