"""devfix trace: each model and tool call of a run."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from scripts.cli.options import Json, Run

if TYPE_CHECKING:
    from state.trace import Call


def trace(run: Run, as_json: Json = False) -> None:
    """List a run's model and tool calls with times, tokens and errors; --json gives requests and results whole."""
    asyncio.run(_trace(run, as_json))


async def _trace(prefix: str, as_json: bool) -> None:
    from scripts.cli.output import put_json, put_table
    from scripts.registers import open_registers
    from state.trace import PostgresTrace

    async with open_registers() as registers:
        run = await registers.runs.find(prefix)
        calls = await PostgresTrace(database=registers.database).of(run.run_id)
    if as_json:
        put_json([{**call.model_dump(exclude={"run_id"}), "seconds": call.seconds} for call in calls])
        return
    heads = ("STEP", "EPOCH", "KIND", "NAME", "CALL", "SECONDS", "TOKENS", "USD", "RESULT")
    put_table(heads, [_row(call) for call in calls])


def _row(call: Call) -> tuple[object, ...]:
    tokens = None if call.input_tokens is None else f"{call.input_tokens}+{call.output_tokens}"
    cost = None if call.cost_usd is None else f"{call.cost_usd:.4f}"
    result = f"error: {call.error}" if call.error else str((call.result or {}).get("content") or "")[:500]
    return (call.step, call.epoch, call.kind, _name(call), call.call_id, f"{call.seconds:.2f}", tokens, cost, result)


def _name(call: Call) -> str:
    """The model that answered, and where another one than the run's own did, by what name it is known."""
    asked = call.request.get("asked")
    return call.name if asked in {None, call.name, call.request.get("model")} else f"{asked} ({call.name})"
