"""devfix effects: what a run has done to the world outside."""

from __future__ import annotations

import asyncio

from scripts.cli.options import Json, Run


def effects(run: Run, as_json: Json = False) -> None:
    """List a run's effects with their receipts, and what DevFix itself has told people of it."""
    asyncio.run(_effects(run, as_json))


async def _effects(prefix: str, as_json: bool) -> None:
    from scripts.cli.output import moment, put_json, put_table
    from scripts.registers import open_registers
    from state.ledger import Effect, PostgresLedger
    from state.outbox import Letter, Outbox

    async with open_registers() as registers:
        run = await registers.runs.find(prefix)
        effects = await PostgresLedger(database=registers.database).of(run.run_id)
        letters = await Outbox(database=registers.database).of(run.run_id)
    rows: list[Effect | Letter] = [*effects, *letters]
    if as_json:
        wanted = {"call_id", "tool", "state", "receipt", "at", "key", "epoch", "trouble"}
        put_json([{**each.model_dump(include=wanted), "at": each.at} for each in rows])
        return
    put_table(
        ("CALL", "TOOL", "STATE", "AT", "RECEIPT"),
        [(each.call_id, each.tool, each.state, moment(each.at), each.receipt) for each in rows],
    )
