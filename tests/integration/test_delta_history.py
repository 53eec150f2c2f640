"""What delta channels are rebuilt from: every checkpoint of a thread, however it branched, loads as it was."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Annotated, Any

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.channels import DeltaChannel
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.types import Overwrite, Send
from typing_extensions import TypedDict

from graph.durable import DurableGraph
from scripts.bootstrap import Application
from state import delta_history
from state.messages import APPEND, append_records

Graph = CompiledStateGraph[Any, Any, Any, Any]
CONFIG: RunnableConfig = {"configurable": {"thread_id": "t"}, "recursion_limit": 500}


def branching(*, every: int) -> StateGraph[Any, Any, Any, Any]:
    """Steps that write to one of two lists, sometimes from fanned-out tasks, sometimes overwriting all."""
    words = DeltaChannel(append_records, list, snapshot_frequency=every)
    notes = DeltaChannel(append_records, list, snapshot_frequency=every + 1)
    # Not a class: LangGraph reads annotations as a module's, where the two channels have no meaning.
    state = TypedDict(  # noqa: UP013
        "state",
        {"turn": int, "last": int, "words": Annotated[list[Any], words], "notes": Annotated[list[Any], notes]},
        total=False,
    )

    async def work(given: Any) -> dict[str, Any]:
        turn = given.get("turn", 0) + 1
        written: dict[str, Any] = {"turn": turn}
        if turn % 3:
            written["words"] = {APPEND: [f"word {turn}", {"id": "same", "text": "x" * turn}]}
        if turn % 4 == 0:
            written["notes"] = Overwrite([f"all of {turn}"]) if turn % 8 == 0 else {APPEND: [f"note {turn}"]}
        return written

    async def side(given: Any) -> dict[str, Any]:
        return {"words": {APPEND: [f"side {given['number']} of {given['turn']}"]}}

    def following(given: Any) -> Any:
        if given["turn"] >= given["last"]:
            return END
        if given["turn"] % 5 == 0:
            return [Send("side", {"number": number, "turn": given["turn"]}) for number in (1, 2)]
        return "work"

    graph: StateGraph[Any, Any, Any, Any] = StateGraph(state)
    graph.add_node("work", work)
    graph.add_node("side", side)
    graph.add_edge(START, "work")
    graph.add_conditional_edges("work", following)
    graph.add_edge("side", "work")
    return graph


async def branched(graph: Graph, seed: int) -> list[Mapping[str, Any]]:
    """What each checkpoint of a thread with several branches holds, newest first."""
    chance = random.Random(seed)
    await graph.ainvoke({"turn": 0, "last": 22}, CONFIG)
    for _ in range(3):
        at = chance.choice([each.config async for each in graph.aget_state_history(CONFIG)])
        await graph.aupdate_state(at, {"last": 30, "words": {APPEND: ["edited"]}}, as_node="work")
        await graph.ainvoke(None, CONFIG)
    return [each.values async for each in graph.aget_state_history(CONFIG)]


@pytest.mark.parametrize(("every", "page", "batch"), [(1, 4096, 256), (4, 7, 2), (1000, 4096, 256), (1000, 3, 1)])
async def test_b63_each_checkpoint_of_a_branched_thread_loads_as_it_was(
    application: Application, monkeypatch: pytest.MonkeyPatch, every: int, page: int, batch: int
) -> None:
    """As LangGraph's own saver in memory has it, with a stored value at each step or none, in pages of any size."""
    monkeypatch.setattr(delta_history, "_PAGE", page)
    monkeypatch.setattr(delta_history, "_BATCH", batch)
    plain = branching(every=every).compile(checkpointer=InMemorySaver())
    expected = await branched(plain, seed=every + page)
    graph = branching(every=every).compile(checkpointer=application.saver())
    loaded = await branched(DurableGraph.of(graph, application.services), seed=every + page)
    assert loaded == expected
    assert len(loaded) > 60
    assert max(len(values.get("words", [])) for values in loaded) > 10
