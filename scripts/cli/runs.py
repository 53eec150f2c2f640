"""devfix runs: which runs there are, the newest first."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Any

import typer

from scripts.cli.options import Json

if TYPE_CHECKING:
    from state.runs import Run


def runs(
    limit: Annotated[int, typer.Option(metavar="N", min=1, max=10_000, help="How many at most.")] = 20,
    as_json: Json = False,
) -> None:
    """List the runs, the newest first."""
    asyncio.run(_runs(limit, as_json))


async def _runs(limit: int, as_json: bool) -> None:
    from scripts.cli.output import moment, put_json, put_table, say
    from scripts.registers import open_registers
    from state.ids import short

    async with open_registers() as registers:
        newest = await registers.runs.newest(limit)
    if as_json:
        put_json([_facts(each) for each in newest])
    elif newest:
        rows = [
            (
                short(each.run_id),
                str(each.standing),
                each.step,
                f"{each.cost_usd:.4f}",
                moment(each.updated_at),
                each.goal,
            )
            for each in newest
        ]
        put_table(("RUN", "STATUS", "STEP", "USD", "UPDATED", "GOAL"), rows)
    else:
        say("there are no runs yet; `devfix demo` makes one")


def _facts(run: Run) -> dict[str, Any]:
    return run.model_dump(exclude={"report", "holder"}) | {"holder": str(run.holder) if run.holder else None}
