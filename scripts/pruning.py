"""What `devfix prune` does: runs that ended long ago keep what people ask of them later, and the rest goes."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict

from scripts.registers import Registers
from state.artifacts import open_artifacts
from state.errors import Refused
from state.ids import short
from state.retention import SAFE_HOURS, Retention, Swept
from state.snapshots import Snapshots
from state.status import TERMINAL

NEWER = f"files that were stored in the last {SAFE_HOURS} hours are left for a later prune"


class PruneFacts(BaseModel):
    """What was pruned, or would be."""

    model_config = ConfigDict(frozen=True)

    runs: list[str]
    dry_run: bool
    artifacts: int = 0
    """Files and large results that nothing refers to any more."""
    artifact_bytes: int = 0
    note: str | None = None


async def prune_runs(
    registers: Registers, named: Sequence[str], *, older_than_days: float, dry_run: bool
) -> PruneFacts:
    """Prune the named runs, or all that ended so long ago. Raises Refused for a run that has not ended."""
    artifacts = open_artifacts(settings=registers.settings, database=registers.database)
    retention = Retention(database=registers.database, snapshots=Snapshots(artifacts=artifacts))
    chosen = await _ended(registers, named) if named else await retention.ended(days=older_than_days)
    if dry_run:
        return PruneFacts(runs=chosen, dry_run=True)
    pruned = await retention.prune(chosen)
    outside = registers.settings.artifacts_url is not None
    swept = Swept(0, 0) if outside else await retention.sweep()
    return PruneFacts(
        runs=pruned,
        dry_run=False,
        artifacts=swept.artifacts,
        artifact_bytes=swept.bytes,
        note="artifacts outside the database are left where they are" if outside else NEWER,
    )


async def _ended(registers: Registers, named: Sequence[str]) -> list[str]:
    runs = [await registers.runs.find(prefix) for prefix in named]
    for run in runs:
        if run.status not in TERMINAL:
            raise Refused(f"run {short(run.run_id)} has not ended ({run.standing}); nothing was pruned")
    return [run.run_id for run in runs]
