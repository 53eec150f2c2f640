"""The errand on LangGraph with its own PostgreSQL saver, as its documentation has it.

LangGraph has no workers: somebody has to invoke a thread again after a crash. The worker here does so with the threads
that it is told of on stdin, whatever they stand at.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any, TypedDict

import shop_calls
from desk import say, serve
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, RetryPolicy, interrupt

DATABASE = os.environ["DATABASE_URL"]


class Errand(TypedDict, total=False):
    order: int
    customer: str
    paid: float
    approved: bool


def look_up(state: Errand) -> Errand:
    found = shop_calls.look_up(state["order"])
    return {"customer": found["customer"], "paid": found["paid"]}


def approval(state: Errand) -> Errand:
    return {"approved": interrupt(f"Refund {state['paid']} to {state['customer']}?")}


def refund(state: Errand) -> Errand:
    shop_calls.refund(state["order"], state["paid"])
    return {}


def write_letter(state: Errand) -> Errand:
    shop_calls.write_letter(state["order"], state["customer"])
    return {}


def graph(saver: PostgresSaver) -> Any:
    built = StateGraph(Errand)
    built.add_node("look_up", look_up, retry_policy=RetryPolicy())
    built.add_node("approval", approval)
    built.add_node("refund", refund, retry_policy=RetryPolicy())
    built.add_node("write_letter", write_letter, retry_policy=RetryPolicy())
    built.add_edge(START, "look_up")
    built.add_edge("look_up", "approval")
    built.add_conditional_edges("approval", lambda state: "refund" if state["approved"] else END, ["refund", END])
    built.add_edge("refund", "write_letter")
    built.add_edge("write_letter", END)
    return built.compile(checkpointer=saver)


def thread(order: int) -> dict[str, Any]:
    return {"configurable": {"thread_id": f"order-{order}"}}


def go_on(compiled: Any, order: int, *, approved: bool) -> None:
    """From wherever the thread stands, until it has ended or waits for an answer that is not there yet.

    It has ended when there are no tasks: `next` is empty, too, while a node's result is saved and the step is not.
    """
    while True:
        state = compiled.get_state(thread(order))
        if not state.values:
            given: Any = {"order": order}
        elif state.interrupts and approved:
            given = Command(resume=True)
        elif state.interrupts or not state.tasks:
            return
        else:
            given = None
        compiled.invoke(given, thread(order), durability="sync")


def work() -> None:
    with PostgresSaver.from_conn_string(DATABASE) as saver:
        saver.setup()
        compiled = graph(saver)
        say("ready")
        for line in sys.stdin:
            told = json.loads(line)
            go_on(compiled, told["order"], approved=told["approved"])


class ThreadsDesk:
    """Reads threads; beginning and answering them is telling a worker."""

    def __init__(self, saver: PostgresSaver) -> None:
        self._graph = graph(saver)

    async def standing(self, order: int) -> str:
        state = self._graph.get_state(thread(order))
        if state.interrupts:
            return "waiting"
        return "completed" if state.values and not state.tasks else "running"


def answer() -> None:
    with PostgresSaver.from_conn_string(DATABASE) as saver:
        saver.setup()
        asyncio.run(serve(ThreadsDesk(saver)))


if __name__ == "__main__":
    {"worker": work, "desk": answer}[sys.argv[1]]()
