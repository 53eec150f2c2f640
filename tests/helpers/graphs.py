"""Small graphs over the real saver, for what the agent's own graph has no place for."""

from __future__ import annotations

import operator
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, TypedDict

from langgraph.channels import DeltaChannel
from langgraph.graph import END, START, StateGraph

from graph.durable import DurableGraph
from scripts.bootstrap import Application
from state.messages import append_records

Node = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]


class Counted(TypedDict, total=False):
    value: Any
    status: str
    reason: str
    seen: Annotated[list[Any], operator.add]
    log: Annotated[list[Any], DeltaChannel(append_records, list, snapshot_frequency=1000)]


def chain(application: Application, **nodes: Node) -> DurableGraph:
    """These nodes one after another, durable."""
    graph = StateGraph(Counted)
    names = list(nodes)
    for name in names:
        graph.add_node(name, nodes[name])
    for former, following in zip([START, *names], [*names, END], strict=True):
        graph.add_edge(former, following)
    return DurableGraph.of(graph.compile(checkpointer=application.saver()), application.services)


def side_by_side(application: Application, **nodes: Node) -> DurableGraph:
    """These nodes in one superstep, durable."""
    graph = StateGraph(Counted)
    for name, node in nodes.items():
        graph.add_node(name, node)
        graph.add_edge(START, name)
        graph.add_edge(name, END)
    return DurableGraph.of(graph.compile(checkpointer=application.saver()), application.services)


def loop(application: Application, node: Node, *, times: int) -> DurableGraph:
    """One node, again and again, durable."""
    graph = StateGraph(Counted)
    graph.add_node("work", node)
    graph.add_edge(START, "work")
    graph.add_conditional_edges("work", lambda state: "work" if len(state["log"]) % times else END, ["work", END])
    return DurableGraph.of(graph.compile(checkpointer=application.saver()), application.services)
