"""A job of one's own: refund an order behind an approval, and write to the customer. The example of the README.

`DEVFIX_JOB=tests.jobs.refund:REFUND devfix run --option order=7 --option shop=http://127.0.0.1:8080`
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import httpx2
from pydantic import BaseModel

from graph.jobs import Job, Verdict
from graph.jobs.basic import BasicRules
from state.agent_state import AgentState
from state.errors import EffectRefused
from tools.registry import Found, Toolbox, ToolContext, ToolResult, tool


class RefundWork(BaseModel):
    """The options of a run, and what its tools have reported."""

    order: int
    shop: str
    """The address of the shop's server."""
    customer: str | None = None
    refunded: float | None = None
    written_to: str | None = None


async def _shop(context: ToolContext, method: str, path: str, **body: Any) -> httpx2.Response:
    async with httpx2.AsyncClient(base_url=str(context.work["shop"]), timeout=10) as client:
        return await client.request(method, path, json=body or None, headers={"Idempotency-Key": context.key})


@tool(kind="read")
async def look_up_order(order: int, *, context: ToolContext) -> ToolResult:
    """Look up an order: its customer, what was paid, what was refunded."""
    answer = await _shop(context, "GET", f"/orders/{order}")
    if answer.status_code == 404:
        return ToolResult(content=f"there is no order {order}", is_error=True)
    found = answer.raise_for_status().json()
    return ToolResult(content=str(found), facts={"customer": found["customer"]})


async def _find_refund(args: Mapping[str, Any], context: ToolContext) -> Found:
    answer = await _shop(context, "GET", f"/refunds/{context.key}")
    return None if answer.status_code == 404 else {"refunded": answer.raise_for_status().json()["amount"]}


@tool(kind="effect", verify=_find_refund)
async def refund(order: int, amount: float, *, context: ToolContext) -> ToolResult:
    """Refund so much of an order. Exactly once: the shop can be asked for the refund of this call."""
    answer = await _shop(context, "POST", f"/orders/{order}/refunds", amount=amount)
    if answer.status_code == 422:
        raise EffectRefused(f"the shop refused: {answer.text}")
    answer.raise_for_status()
    return ToolResult(content=f"refunded {amount}", facts={"refunded": amount})


async def _find_letter(args: Mapping[str, Any], context: ToolContext) -> Found:
    answer = await _shop(context, "GET", f"/letters/{context.key}")
    return None if answer.status_code == 404 else {"written_to": answer.raise_for_status().json()["to"]}


@tool(kind="effect", verify=_find_letter)
async def write_to_customer(to: str, text: str, *, context: ToolContext) -> ToolResult:
    """Write to the customer."""
    (await _shop(context, "POST", "/letters", to=to, text=text)).raise_for_status()
    return ToolResult(content=f"wrote to {to}", facts={"written_to": to})


class RefundRules(BasicRules):
    """Done when the receipts of the refund and of the letter are there."""

    work = RefundWork
    goal = "Refund the order, and tell the customer."
    steps = ("look up the order", "refund it", "write to the customer")

    def prompt(self, state: AgentState) -> str:
        return f"You work for a shop's support. {state.goal} The order's number is {state.work['order']}."

    def judge(self, state: AgentState) -> Verdict:
        work = RefundWork.model_validate(state.work)
        if work.refunded is not None and work.written_to is not None:
            return Verdict(judgement="done", summary=f"{work.refunded} refunded; {work.written_to} was told.")
        missing = "the refund" if work.refunded is None else "the letter to the customer"
        return Verdict(judgement="go_on", summary=f"{missing} is missing.")


REFUND = Job(
    name="refund",
    rules=RefundRules(),
    toolbox=Toolbox.of([look_up_order, refund, write_to_customer]),
    work=RefundWork,
    default_model="openai:gpt-5-mini",
)
