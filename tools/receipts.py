"""Receipts: what the ledger keeps of an effect that has happened, and what the model reads of it."""

from __future__ import annotations

import json

from pydantic import ValidationError

from state.ids import short
from state.ledger import Effect, Receipt
from tools.registry import Found, ToolContext, ToolResult

RECEIPT_BYTES = 64 * 1024
"""What a row of the ledger carries itself; a larger receipt is an artifact."""


def receipt_of(found: Found) -> Receipt:
    return {"content": "It had been done already; this is its receipt.", "facts": dict(found or {})}


async def storable(receipt: Receipt, context: ToolContext) -> Receipt:
    """The receipt as the ledger keeps it: a large one as an artifact, with its beginning for whoever reads the row."""
    data = json.dumps(receipt).encode()
    if len(data) <= RECEIPT_BYTES:
        return receipt
    digest = await context.artifacts.put(data)
    return {"artifact": digest, "content": str(receipt.get("content", ""))[:1000]}


async def result_of(receipt: Receipt, context: ToolContext) -> ToolResult:
    """The effect has happened, whatever its receipt looks like: one of another version is given as it is."""
    if "artifact" in receipt:
        receipt = json.loads(await context.artifacts.get(str(receipt["artifact"])))
    try:
        return ToolResult.model_validate(receipt)
    except ValidationError:
        text = f"It was done; its receipt was written by another version of DevFix: {json.dumps(receipt)[:4000]}"
        return ToolResult(content=text)


def told(effect: Effect) -> str:
    return (
        f"The same effect ({effect.tool} with equal arguments) is in the ledger as {effect.state}, as call "
        f"{effect.call_id} of run {short(effect.run_id)} at {effect.at:%Y-%m-%d %H:%M:%S %Z}."
    )


def repeated(note: str, result: ToolResult) -> ToolResult:
    """A receipt under another call's id says so: else the model would take it for a second effect."""
    text = f"{note} It was not done again; this is its receipt:\n{result.content}"
    return result.model_copy(update={"content": text})
