"""What the nodes use: stores, tools and models, handed in as one record by the composition root."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from state.errors import Fenced, Refused
from state.ids import short

if TYPE_CHECKING:
    from graph.attempt import Attempt
    from graph.jobs import Job
    from graph.models.chain import Chain
    from graph.models.load import ModelLoader
    from graph.models.prices import Prices
    from state.approvals import Approvals
    from state.artifacts import Artifacts
    from state.ledger import Ledger
    from state.outbox import Outbox
    from state.runs import Runs
    from state.settings import Settings
    from state.snapshots import Snapshots
    from state.trace import Trace
    from tools.execution import Execution
    from tools.workspaces import Workspaces


def _now() -> datetime:
    return datetime.now(UTC)


def _new_id() -> str:
    return uuid.uuid4().hex[:12]


async def _nothing() -> None:
    return None


@dataclass(kw_only=True)
class Services:
    """One process's services. Time and ids come from here, so that a replay can give the same ones."""

    settings: Settings
    runs: Runs
    approvals: Approvals
    ledger: Ledger
    outbox: Outbox
    trace: Trace
    artifacts: Artifacts
    snapshots: Snapshots
    workspaces: Workspaces
    execution: Execution
    models: ModelLoader
    chain: Chain
    """Asks them."""
    jobs: Mapping[str, Job]
    prices: Prices
    label: str = "process"
    now: Callable[[], datetime] = _now
    new_id: Callable[[], str] = _new_id
    open: Callable[[], Awaitable[None]] = _nothing
    """Makes the stores usable in the running event loop; idempotent."""
    close: Callable[[], Awaitable[None]] = _nothing
    attempts: dict[str, Attempt] = field(default_factory=dict)
    """The attempts that this process holds, by run."""
    saved: Counter[tuple[str, int]] = field(default_factory=Counter)
    """How many steps each attempt of this process has saved; the checkpointer counts."""

    def attempt(self, run_id: str) -> Attempt:
        """The present attempt on the run. Raises Fenced where this process holds none."""
        try:
            return self.attempts[run_id]
        except KeyError:
            raise Fenced(f"this process does not hold run {short(run_id)}; nothing was done") from None

    def job(self, name: str) -> Job:
        """Raises Refused for a job that nobody has registered."""
        if name not in self.jobs:
            raise Refused(
                f"there is no job {name!r} here; there are: {', '.join(sorted(self.jobs))}, and what "
                "DEVFIX_JOB=module:job names; nothing was changed"
            )
        return self.jobs[name]
