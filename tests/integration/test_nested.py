"""Subgraphs over our saver and DurableGraph: pauses, answers, crashes and going back, at any depth."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, TypedDict, cast

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, Send, StateSnapshot, interrupt

from graph.durable import DurableGraph
from scripts.bootstrap import Application
from tests.helpers.app import application_on
from tests.helpers.notes import letters, post
from tools.execution import effect_key
from tools.registry import ToolContext

CONFIG: RunnableConfig = {"configurable": {"thread_id": "t"}}


class Seen(TypedDict, total=False):
    seen: Annotated[list[Any], operator.add]
    name: str


class Found(TypedDict, total=False):
    seen: Annotated[list[Any], operator.add]


@pytest.fixture
def counts() -> Counter[str]:
    return Counter()


def durable(application: Application, graph: StateGraph[Any, Any, Any, Any]) -> DurableGraph:
    return DurableGraph.of(graph.compile(checkpointer=application.saver()), application.services)


def nested(inner: StateGraph[Any, Any, Any, Any], depth: int = 1) -> StateGraph[Any, Any, Any, Any]:
    """The graph as a node of another, so many times."""
    for _ in range(depth):
        outer: StateGraph[Any, Any, Any, Any] = StateGraph(Seen)
        outer.add_node("inner", inner.compile())
        outer.add_edge(START, "inner")
        outer.add_edge("inner", END)
        inner = outer
    return inner


def line(**nodes: Any) -> StateGraph[Any, Any, Any, Any]:
    graph: StateGraph[Any, Any, Any, Any] = StateGraph(Seen)
    names = list(nodes)
    for name in names:
        graph.add_node(name, nodes[name])
    for former, following in zip([START, *names], [*names, END], strict=True):
        graph.add_edge(former, following)
    return graph


def counting(counts: Counter[str], name: str) -> Any:
    async def node(state: Seen) -> Seen:
        counts[name] += 1
        return {"seen": [name]}

    return node


def asking(counts: Counter[str]) -> Any:
    async def node(state: Seen) -> Seen:
        counts["asked"] += 1
        return {"seen": [interrupt("well?")]}

    return node


async def pause(graph: DurableGraph) -> StateSnapshot:
    """The newest that has not been answered since."""
    newest, *_ = [each async for each in graph.aget_state_history(CONFIG) if each.interrupts]
    return newest


@pytest.mark.parametrize("depth", [1, 3])
async def test_b07_what_was_done_before_a_pause_in_a_subgraph_is_not_done_again(
    application: Application, tmp_path: Path, depth: int
) -> None:
    """The node that wrote and then asked runs again from its start; the ledger gives it the receipt."""
    sink, services = tmp_path / "letters", application.services

    async def write_and_ask(state: Seen) -> Seen:
        context = cast("Any", ToolContext)(
            run_id="t",
            call_id="c",
            key=effect_key("t", "c"),
            work={"letters": str(sink)},
            workspace=None,
            sandbox=None,
            artifacts=services.artifacts,
            snapshots=services.snapshots,
            settings=services.settings,
        )
        epoch = services.attempt("t").epoch
        performed = await services.execution.perform(post, {"to": "ada", "text": "x"}, context, epoch=epoch)
        return {"seen": [performed.result.content, interrupt("well?")]}

    graph = durable(application, nested(line(work=write_and_ask), depth))
    await graph.ainvoke({"seen": []}, CONFIG)
    assert str((await services.runs.get("t")).standing) == "waiting: approval"
    ended = await graph.ainvoke(Command(resume="yes"), CONFIG)
    assert ended["seen"][-1] == "yes"
    assert len(letters(sink)) == 1


@pytest.mark.parametrize("depth", [1, 2, 3])
async def test_b15_a_nested_question_is_answered_once_in_a_new_process(
    application: Application, database_url: str, tmp_path: Path, counts: Counter[str], depth: int
) -> None:
    """One resume completes it, and what ran before it in the subgraph does not run again."""
    inner = line(before=counting(counts, "before"), ask=asking(counts), after=counting(counts, "after"))
    await durable(application, nested(inner, depth)).ainvoke({"seen": []}, CONFIG)
    another = application_on(database_url, tmp_path)
    graph = durable(another, nested(inner, depth))
    assert len((await graph.aget_state(CONFIG)).interrupts) == 1
    ended = await graph.ainvoke(Command(resume="yes"), CONFIG)
    assert ended["seen"] == ["before", "yes", "after"]
    assert counts == {"before": 1, "asked": 2, "after": 1}
    assert str((await another.services.runs.get("t")).standing) == "completed: done"
    await another.services.close()


@pytest.mark.parametrize(
    "answer",
    [
        {"decisions": [{"type": "approve"}]},
        {"decisions": [{"type": "edit", "edited_action": {"name": "post", "args": {"to": "bob"}}}]},
        {"decisions": [{"type": "reject", "message": "no"}]},
    ],
)
@pytest.mark.parametrize("depth", [0, 1, 3])
async def test_b21_every_decision_arrives_at_any_depth(
    application: Application, counts: Counter[str], answer: Mapping[str, Any], depth: int
) -> None:
    """In the shape that the API and Studio send, whole."""
    graph = durable(application, nested(line(ask=asking(counts)), depth))
    await graph.ainvoke({"seen": []}, CONFIG)
    assert (await graph.ainvoke(Command(resume=answer), CONFIG))["seen"] == [answer]


async def test_b22_of_parallel_subgraphs_only_the_one_that_asks_runs_again(
    application: Application, counts: Counter[str]
) -> None:
    """The other two keep their results, and their order."""

    async def work(state: Seen) -> Seen:
        name = state["name"]
        counts[name] += 1
        return {"seen": [f"{name}: {interrupt('well?')}" if name == "b" else name]}

    task: StateGraph[Any, Any, Any, Any] = StateGraph(Seen, output_schema=Found)
    task.add_node("work", work)
    task.add_edge(START, "work")
    outer: StateGraph[Any, Any, Any, Any] = StateGraph(Seen)
    outer.add_node("task", task.compile())
    outer.add_conditional_edges(START, lambda state: [Send("task", {"name": name, "seen": []}) for name in "abc"])
    outer.add_edge("task", END)
    graph = durable(application, outer)
    await graph.ainvoke({"seen": []}, CONFIG)
    ended = await graph.ainvoke(Command(resume="yes"), CONFIG)
    assert ended["seen"] == ["a", "b: yes", "c"]
    assert counts == {"a": 1, "b": 2, "c": 1}


async def test_b16_a_saved_point_stays_as_it_is_however_often_it_is_resumed(
    application: Application, counts: Counter[str]
) -> None:
    """Two resumes of one pause see the same history, and the pause itself reads as before."""
    histories: list[list[Any]] = []

    async def after(state: Seen) -> Seen:
        histories.append(list(state["seen"]))
        return {"seen": ["after"]}

    graph = durable(application, line(before=counting(counts, "before"), ask=asking(counts), after=after))
    await graph.ainvoke({"seen": ["given"]}, CONFIG)
    saved = await pause(graph)
    for answer in ("one", "two"):
        await graph.ainvoke(Command(resume=answer), saved.config)
    assert histories == [["given", "before", "one"], ["given", "before", "two"]]
    again = await graph.aget_state(saved.config)
    assert (again.values, again.next) == (saved.values, saved.next)


@pytest.mark.parametrize("depth", [0, 1])
async def test_b91_going_back_before_a_question_asks_it_again(
    application: Application, counts: Counter[str], depth: int
) -> None:
    """The old answer is not used, and the subgraph begins as it was then."""
    inner = line(before=counting(counts, "before"), ask=asking(counts), after=counting(counts, "after"))
    graph = durable(application, nested(inner, depth))
    await graph.ainvoke({"seen": []}, CONFIG)
    await graph.ainvoke(Command(resume="old"), CONFIG)
    history = [each async for each in graph.aget_state_history(CONFIG)]
    first = "inner" if depth else "before"
    start = next(each for each in history if each.next == (first,))
    again = await graph.ainvoke(None, start.config)
    assert "__interrupt__" in again
    assert str((await application.services.runs.get("t")).standing) == "waiting: approval"
    ended = await graph.ainvoke(Command(resume="new"), CONFIG)
    assert ended["seen"] == ["before", "new", "after"]


@pytest.mark.parametrize("depth", [0, 1])
async def test_b92_an_answer_to_an_old_pause_goes_on_from_there(
    application: Application, counts: Counter[str], depth: int
) -> None:
    """Not from the newest state of the branch that was left."""
    inner = line(ask=asking(counts), middle=counting(counts, "middle"), again=asking(counts))
    graph = durable(application, nested(inner, depth))
    await graph.ainvoke({"seen": []}, CONFIG)
    first = await pause(graph)
    await graph.ainvoke(Command(resume="old"), CONFIG)
    await graph.ainvoke(Command(resume="old too"), CONFIG)
    await graph.ainvoke(Command(resume="new"), first.config)
    assert str((await application.services.runs.get("t")).standing) == "waiting: approval"
    ended = await graph.ainvoke(Command(resume="new too"), CONFIG)
    assert ended["seen"] == ["new", "middle", "new too"]
