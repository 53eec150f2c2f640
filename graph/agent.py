"""The agent: all nodes and edges on one screen."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from copy import copy
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.errors import NodeError
from langgraph.graph import END, START, StateGraph
from langgraph.types import Checkpointer, Command

from graph import routing
from graph.durable import DurableGraph
from graph.nodes.act import act
from graph.nodes.approval import approval
from graph.nodes.plan import plan
from graph.nodes.review import review
from graph.nodes.tool_execute import tool_execute
from graph.services import Services
from graph.update import Update, changed, read, read_as, update
from state.agent_state import Channels, RunInput, RunInputChannels, StartChannels, Task
from state.errors import DevfixError
from state.failures import Failure

RECURSION_LIMIT = 100_000
"""LangGraph's own limit ends a run with a bare exception; DevFix's step limit ends it with a status and a report."""

Node = Callable[..., Awaitable[Update]]


def build_agent(services: Services, *, checkpointer: Checkpointer = None) -> DurableGraph:
    """START → plan → act → tools, approval or review; review is the join that says retry, escalate or stop."""
    graph = StateGraph(Channels, input_schema=RunInputChannels)

    graph.add_node("plan", _on_state(plan, services), input_schema=StartChannels)
    graph.add_node("act", _on_state(act, services), error_handler=_to_review)
    graph.add_node("tool_execute", _on_task(services), error_handler=_to_review)
    graph.add_node("approval", _on_state(approval, services))
    graph.add_node("review", _on_state(review, services))

    graph.add_edge(START, "plan")
    graph.add_edge("plan", "act")
    graph.add_conditional_edges("act", routing.after_act, ["tool_execute", "approval", "review"])
    graph.add_edge("tool_execute", "review")
    graph.add_conditional_edges("approval", routing.after_approval, ["tool_execute", "review", END])
    graph.add_conditional_edges("review", routing.after_review, ["tool_execute", "approval", "act", "plan", END])

    compiled = graph.compile(checkpointer=checkpointer, name="devfix")
    durable = DurableGraph.of(compiled, services)
    durable.config = {"recursion_limit": RECURSION_LIMIT}
    return durable


def _on_state(node: Node, services: Services) -> Callable[..., Awaitable[Mapping[str, Any]]]:
    """Raw channels in, checked; the node's update out, with the number of the step that will save it."""

    async def run(raw: dict[str, Any], config: RunnableConfig) -> Mapping[str, Any]:
        run_id = str(config["configurable"]["thread_id"])
        given = {name: value for name, value in raw.items() if name in RunInput.model_fields}
        step = services.attempt(run_id).step  # what was saved from outside, or before a fork, does not count in `raw`
        state = read({**raw, "run_id": run_id, "input": given, "step": step})
        written = await node(state, services=services)
        return changed(raw, {**written, **update(run_id=run_id, step=step + 1)})

    return run


def _on_task(services: Services) -> Callable[..., Awaitable[Mapping[str, Any]]]:
    """A fanned-out task: what `Send` carries in, and writes to channels with a reducer out."""

    async def run(raw: dict[str, Any]) -> Mapping[str, Any]:
        task = read_as(Task, raw)
        step = services.attempt(task.run_id).step
        written = await tool_execute(task.model_copy(update={"step": step}), services=services)
        return {**written, **update(step=step + 1)}

    return run


def _to_review(state: dict[str, Any], error: NodeError) -> Command[Any]:
    """A node broke: review reads of it as a failure. What DevFix raises on purpose is not a node's failure."""
    if isinstance(error.error, DevfixError):
        # Not the same object: LangGraph holds that one for handled, and would save the step without the node's writes.
        raise copy(error.error) from error.error
    detail = f"{error.node} failed: {type(error.error).__name__}: {error.error}"
    failure = Failure(kind="internal", detail=detail, step=int(state.get("step") or 0))
    return Command(goto="review", update=update(failures=[failure]))
