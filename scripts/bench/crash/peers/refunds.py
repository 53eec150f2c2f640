"""The errand as a job of DevFix.

`DEVFIX_JOB=scripts.bench.crash.peers.refunds:REFUNDS`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import httpx2
from pydantic import BaseModel

from graph.jobs import Job, Verdict
from graph.jobs.basic import BasicRules
from state.agent_state import AgentState
from tools.registry import Found, Toolbox, ToolContext, ToolResult, tool

NAMED = "scripts.bench.crash.peers.refunds:REFUNDS"


class RefundWork(BaseModel):
    """The options of a run, and the facts of its tools."""

    order: int
    shop: str
    refunded: float | None = None
    written_to: str | None = None


def turns(order: int, *, paid: float, customer: str) -> list[dict[str, object]]:
    """What a scripted model asks for."""
    calls = [
        ("look_up_order", {"order": order}),
        ("refund_order", {"order": order, "amount": paid}),
        ("write_letter", {"order": order, "to": customer}),
    ]
    return [{"tool_calls": [{"name": name, "args": args}]} for name, args in calls]


async def _shop(context: ToolContext, method: str, path: str, **body: Any) -> httpx2.Response:
    async with httpx2.AsyncClient(base_url=str(context.work["shop"]), timeout=10) as client:
        return await client.request(method, path, json=body or None, headers={"Idempotency-Key": context.key})


async def _look(args: Mapping[str, Any], context: ToolContext) -> Found:
    answer = await _shop(context, "GET", f"/done/{context.key}")
    if answer.status_code == 404:
        return None
    answer.raise_for_status()
    return {"refunded": args["amount"]} if "amount" in args else {"written_to": args["to"]}


@tool(kind="read")
async def look_up_order(order: int, *, context: ToolContext) -> str:
    """Look up an order."""
    return (await _shop(context, "GET", f"/orders/{order}")).raise_for_status().text


@tool(kind="effect", verify=_look)
async def refund_order(order: int, amount: float, *, context: ToolContext) -> ToolResult:
    """Refund an order."""
    (await _shop(context, "POST", f"/orders/{order}/refunds", amount=amount)).raise_for_status()
    return ToolResult(content=f"refunded {amount}", facts={"refunded": amount})


@tool(kind="effect", verify=_look, gated=False)
async def write_letter(order: int, to: str, *, context: ToolContext) -> ToolResult:
    """Write to the customer."""
    text = "Your money is on its way."
    (await _shop(context, "POST", "/letters", order=order, to=to, text=text)).raise_for_status()
    return ToolResult(content=f"wrote to {to}", facts={"written_to": to})


class RefundRules(BasicRules):
    """Done when the receipts of the refund and of the letter are there."""

    work = RefundWork
    goal = "Refund the order, and tell the customer."
    steps = ("look up the order", "refund it", "write to the customer")

    def prompt(self, state: AgentState) -> str:
        return state.goal

    def judge(self, state: AgentState) -> Verdict:
        work = RefundWork.model_validate(state.work)
        if work.refunded is not None and work.written_to is not None:
            return Verdict(judgement="done", summary="It is refunded, and the customer knows.")
        return Verdict(judgement="go_on", summary="The refund or the letter is missing.")


REFUNDS = Job(
    name="refunds",
    rules=RefundRules(),
    toolbox=Toolbox.of([look_up_order, refund_order, write_letter]),
    work=RefundWork,
    default_model="scripted:",
)
