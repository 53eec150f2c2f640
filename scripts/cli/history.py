"""devfix history: the steps of a run."""

from __future__ import annotations

import asyncio

from scripts.cli.options import Json, Run


def history(run: Run, as_json: Json = False) -> None:
    """List a run's saved steps, the oldest first."""
    asyncio.run(_history(run, as_json))


async def _history(prefix: str, as_json: bool) -> None:
    from scripts.cli.output import moment, put_json, put_table
    from scripts.registers import open_registers

    async with open_registers() as registers:
        run = await registers.runs.find(prefix)
        steps = await registers.steps.of(run.run_id)
    if as_json:
        put_json([{"step": step.number, **step.model_dump(exclude={"number", "run_id"})} for step in steps])
        return
    rows = [
        (
            step.number,
            ", ".join(step.nodes) or step.source,
            step.status,
            step.epoch,
            (step.snapshot or "-")[:8],
            moment(step.at),
            step.checkpoint_id,
        )
        for step in steps
    ]
    put_table(("STEP", "NODES", "STATUS", "EPOCH", "SNAPSHOT", "AT", "CHECKPOINT"), rows)
