"""What the model is sent is valid for every provider, whatever was killed in between."""

from __future__ import annotations

from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

from graph.prompts import INTERRUPTED, from_devfix, open_calls, render
from state.messages import flatten


def turn(*identifiers: str) -> AIMessage:
    return AIMessage("", id="a", tool_calls=[{"id": each, "name": "x", "args": {}} for each in identifiers])


def test_b26_a_call_without_a_result_is_answered_as_interrupted() -> None:
    """A provider refuses a history with an open call."""
    records = [
        flatten(HumanMessage("go", id="h")),
        flatten(turn("1", "2")),
        flatten(ToolMessage("r", tool_call_id="2")),
    ]
    assert open_calls(records) == ["1"]
    rendered = render("prompt", records)
    assert [message.content for message in rendered[3:]] == [INTERRUPTED, "r"]


def test_results_stand_behind_their_calls_in_call_order() -> None:
    """Also where a word of DevFix's own was recorded in between."""
    records = [
        flatten(turn("1", "2")),
        flatten(ToolMessage("second", tool_call_id="2")),
        flatten(from_devfix("evidence", identifier="e", name="run_tests", facts={"secret": 1})),
        flatten(ToolMessage("first", tool_call_id="1", artifact={"facts": 1})),
    ]
    rendered = render("prompt", records)
    assert [message.content for message in rendered[2:]] == ["first", "second", "evidence"]
    assert rendered[2].artifact is None  # type: ignore[union-attr]
    assert rendered[4].additional_kwargs == {}
