"""What the model is sent: the job's prompt, then the history, in an order that every provider accepts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage

from state.messages import revive

INTERRUPTED = "This call was interrupted; its outcome is unknown. Look before you repeat it."
DEVFIX = "devfix"
"""Where a message of DevFix's own keeps the facts that the model does not need."""


def render(prompt: str, records: Sequence[Mapping[str, Any]]) -> list[BaseMessage]:
    """The conversation: each call is answered right behind the message that made it, whatever came in between."""
    messages = [_bare(revive(record)) for record in records]
    results = {each.tool_call_id: each for each in messages if isinstance(each, ToolMessage)}
    rendered: list[BaseMessage] = [SystemMessage(prompt)]
    for message in messages:
        if isinstance(message, ToolMessage):
            continue
        rendered.append(message)
        if isinstance(message, AIMessage):
            rendered += [_result(call, results) for call in message.tool_calls]
    return rendered


def _result(call: Mapping[str, Any], results: Mapping[str, ToolMessage]) -> ToolMessage:
    identifier = str(call["id"])
    return results.get(identifier) or ToolMessage(
        INTERRUPTED, tool_call_id=identifier, name=call["name"], status="error"
    )


def _bare(message: BaseMessage) -> BaseMessage:
    """The message without what is kept for people and for the job only."""
    if isinstance(message, AIMessage) and (message.invalid_tool_calls or message.additional_kwargs):
        # Of a state that was edited from outside: no provider takes back what it could not read, or another's fields.
        return message.model_copy(update={"invalid_tool_calls": [], "additional_kwargs": {}})
    if isinstance(message, ToolMessage) and message.artifact is not None:
        return message.model_copy(update={"artifact": None})
    if isinstance(message, HumanMessage) and DEVFIX in message.additional_kwargs:
        return message.model_copy(update={"additional_kwargs": {}})
    return message


def open_calls(records: Sequence[Mapping[str, Any]]) -> list[str]:
    """The ids of the last turn's calls that have no result yet."""
    answered = {record.get("tool_call_id") for record in records if record.get("type") == "tool"}
    for record in reversed(records):
        if record.get("type") == "ai":
            return [str(call["id"]) for call in record.get("tool_calls") or () if call["id"] not in answered]
    return []


def from_devfix(text: str, *, identifier: str, **facts: Any) -> HumanMessage:
    """A word of DevFix's own, such as the evidence that it gathered itself."""
    return HumanMessage(text, id=identifier, additional_kwargs={DEVFIX: facts})
