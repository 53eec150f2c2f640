"""Messages come back with every field; lists of records append and replace by id."""

from __future__ import annotations

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage

from state.errors import Unserializable
from state.messages import append_records, flatten, revive

MESSAGES: list[BaseMessage] = [
    SystemMessage("be kind", id="s"),
    HumanMessage([{"type": "text", "text": "hi"}], id="h", name="ada", additional_kwargs={"k": {"v": [1, None]}}),
    AIMessage(
        "so",
        id="a",
        tool_calls=[{"id": "1", "name": "x", "args": {"p": "\ud800"}, "type": "tool_call"}],
        invalid_tool_calls=[{"id": "2", "name": "y", "args": "{", "error": "cut", "type": "invalid_tool_call"}],
        usage_metadata={
            "input_tokens": 3,
            "output_tokens": 4,
            "total_tokens": 7,
            "input_token_details": {"cache_read": 1},
        },
        response_metadata={"finish_reason": "stop", "logprobs": None},
    ),
    ToolMessage("r\0", tool_call_id="1", name="x", status="error", artifact={"n": 1.5}, id="t"),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: message.type)
def test_every_field_comes_back(message: BaseMessage) -> None:
    """invalid_tool_calls and usage too, which LangChain's own dictionaries lose."""
    again = revive(flatten(message))
    assert again == message
    assert again.model_dump() == message.model_dump()


def test_the_flat_form_is_what_studio_shows() -> None:
    """type and content at the top, nothing that is empty."""
    assert flatten(HumanMessage("hi", id="h")) == {"type": "human", "content": "hi", "id": "h"}


def test_an_unknown_kind_is_refused() -> None:
    """Not quietly turned into another."""
    from langchain_core.messages import RemoveMessage

    with pytest.raises(Unserializable):
        flatten(RemoveMessage(id="x"))
    with pytest.raises(ValueError, match="unknown type"):
        revive({"type": "letter", "content": ""})


def test_the_reducer_is_associative_over_batches() -> None:
    """DeltaChannel replays writes in larger batches than they were made in."""
    writes = [
        {"append": [{"id": "a", "n": 1}]},
        [{"id": "b"}],
        {"append": [{"id": "a", "n": 2}]},
        {"append": [{"n": 3}]},
    ]
    at_once = append_records([], writes)
    one_by_one: list[object] = []
    for write in writes:
        one_by_one = append_records(one_by_one, [write])
    assert at_once == one_by_one == [{"id": "a", "n": 2}, {"id": "b"}, {"n": 3}]


def test_message_objects_from_studio_are_flattened() -> None:
    """update_state sends objects."""
    assert append_records(None, [[HumanMessage("hi", id="1")]]) == [{"type": "human", "content": "hi", "id": "1"}]
