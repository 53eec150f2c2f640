"""How a run is cancelled: asked of whoever holds it, or done at once where nobody does."""

from __future__ import annotations

import asyncio

from graph.report import report_on_state
from scripts.bootstrap import Application
from scripts.facts import newest
from state.errors import Refused
from state.ids import short
from state.runs import Run
from state.status import TERMINAL, Standing

WAIT_SECONDS = 5.0
_LOOK_SECONDS = 0.1
CANCELLED = Standing("cancelled", "by_person")


async def cancel_run(application: Application, run: Run, *, by: str) -> Run:
    """The run as it stands after at most 5 s.

    Raises Refused for a run that has ended, and for one that died in the middle of an effect: cancelled now, it would
    leave the effect half-done; resumed, it finishes it or finds out what became of it.
    """
    runs = application.services.runs
    begun = [effect.tool for effect in await application.services.ledger.of(run.run_id) if effect.state == "claimed"]
    if begun and run.status != "running":
        name = short(run.run_id)
        raise Refused(f"run {name} died while it did {begun[0]}; `devfix resume {name}` settles that, then cancel it")
    run = await runs.request_cancel(run.run_id, by)
    if run.status == "cancelled":
        values = (await newest(application, run)).values
        report = report_on_state(run.run_id, CANCELLED, {**values, "report": None})
        report = report.model_copy(update={"summary": f"{by} cancelled the run."})
        await runs.settle(run.run_id, run.epoch, CANCELLED, report.model_dump())
        return await runs.get(run.run_id)
    return await _until_settled(application, run)


async def _until_settled(application: Application, run: Run) -> Run:
    for _ in range(int(WAIT_SECONDS / _LOOK_SECONDS)):
        if run.status in TERMINAL:
            break
        await asyncio.sleep(_LOOK_SECONDS)
        run = await application.services.runs.get(run.run_id)
    return run
