"""The errand on Temporal, as its documentation has it: a workflow of activities, and a signal."""

from __future__ import annotations

import asyncio
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

from temporalio import activity, workflow
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.worker import Worker

with workflow.unsafe.imports_passed_through():
    import shop_calls
    from desk import say, serve

ADDRESS = os.environ["TEMPORAL_ADDRESS"]
QUEUE = "errands"
WAITING = "waiting"
LIMIT = timedelta(seconds=10)
"""Of one try; a try whose worker was killed is found out then."""


@activity.defn
def look_up(order: int) -> dict[str, Any]:
    return shop_calls.look_up(order)


@activity.defn
def refund(order: int, amount: float) -> None:
    shop_calls.refund(order, amount)


@activity.defn
def write_letter(order: int, to: str) -> None:
    shop_calls.write_letter(order, to)


@workflow.defn
class ErrandWorkflow:
    def __init__(self) -> None:
        self._approved = False

    @workflow.run
    async def run(self, order: int) -> str:
        found = await workflow.execute_activity(look_up, order, start_to_close_timeout=LIMIT)
        workflow.upsert_memo({WAITING: f"Refund {found['paid']} to {found['customer']}?"})
        await workflow.wait_condition(lambda: self._approved)
        await workflow.execute_activity(refund, args=[order, found["paid"]], start_to_close_timeout=LIMIT)
        await workflow.execute_activity(write_letter, args=[order, found["customer"]], start_to_close_timeout=LIMIT)
        return "refunded"

    @workflow.signal
    def approve(self) -> None:
        self._approved = True


async def work() -> None:
    client = await Client.connect(ADDRESS)
    with ThreadPoolExecutor(max_workers=4) as threads:
        worker = Worker(
            client,
            task_queue=QUEUE,
            workflows=[ErrandWorkflow],
            activities=[look_up, refund, write_letter],
            activity_executor=threads,
        )
        async with worker:
            say("ready")
            await asyncio.Event().wait()


class WorkflowsDesk:
    def __init__(self, client: Client) -> None:
        self._client = client

    async def begin(self, order: int) -> None:
        await self._client.start_workflow(ErrandWorkflow.run, order, id=f"order-{order}", task_queue=QUEUE)

    async def standing(self, order: int) -> str:
        found = await self._client.get_workflow_handle(f"order-{order}").describe()
        if found.status == WorkflowExecutionStatus.RUNNING:
            return "waiting" if WAITING in await found.memo() else "running"
        return found.status.name.lower() if found.status else "running"

    async def approve(self, order: int) -> None:
        await self._client.get_workflow_handle_for(ErrandWorkflow.run, f"order-{order}").signal(ErrandWorkflow.approve)


async def answer() -> None:
    await serve(WorkflowsDesk(await Client.connect(ADDRESS)))


if __name__ == "__main__":
    asyncio.run({"worker": work, "desk": answer}[sys.argv[1]]())
