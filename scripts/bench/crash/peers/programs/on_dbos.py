"""The errand on DBOS, as its documentation has it: a workflow of steps, a queue, an event, a message.

A process that starts recovers the workflows that the last one of the same executor left.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading

import shop_calls
from dbos import DBOS, DBOSClient, DBOSConfig
from desk import say, serve

DATABASE = os.environ["DATABASE_URL"]
QUEUE = "errands"
QUESTION = "question"
APPROVAL = "approval"
DAY_SECONDS = 24 * 60 * 60


@DBOS.step(retries_allowed=True)
def look_up(order: int) -> dict[str, object]:
    return shop_calls.look_up(order)


@DBOS.step(retries_allowed=True)
def refund(order: int, amount: float) -> None:
    shop_calls.refund(order, amount)


@DBOS.step(retries_allowed=True)
def write_letter(order: int, to: str) -> None:
    shop_calls.write_letter(order, to)


@DBOS.workflow()
def errand(order: int) -> str:
    found = look_up(order)
    DBOS.set_event(QUESTION, f"Refund {found['paid']} to {found['customer']}?")
    if not DBOS.recv(APPROVAL, timeout_seconds=DAY_SECONDS):
        return "not approved"
    refund(order, float(str(found["paid"])))
    write_letter(order, str(found["customer"]))
    return "refunded"


def work() -> None:
    config: DBOSConfig = {"name": "errands", "system_database_url": DATABASE}
    DBOS(config=config)
    DBOS.launch()
    DBOS.register_queue(QUEUE)
    say("ready")
    threading.Event().wait()


class WorkflowsDesk:
    def __init__(self, client: DBOSClient) -> None:
        self._client = client

    async def begin(self, order: int) -> None:
        name = {"workflow_name": "errand", "queue_name": QUEUE, "workflow_id": f"order-{order}"}
        await self._client.enqueue_async(name, order)

    async def standing(self, order: int) -> str:
        handle = await self._client.retrieve_workflow_async(f"order-{order}")
        status = (await handle.get_status()).status
        if status == "SUCCESS":
            return "completed"
        if status not in {"PENDING", "ENQUEUED"}:
            return status.lower()
        asked = await self._client.get_event_async(f"order-{order}", QUESTION, timeout_seconds=0)
        return "waiting" if asked else "running"

    async def approve(self, order: int) -> None:
        await self._client.send_async(f"order-{order}", True, APPROVAL)


if __name__ == "__main__":
    if sys.argv[1] == "worker":
        work()
    else:
        asyncio.run(serve(WorkflowsDesk(DBOSClient(system_database_url=DATABASE))))
