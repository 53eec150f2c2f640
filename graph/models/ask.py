"""One call of a chat model: what came of it, in one neutral form, or what kind of trouble there was."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from pydantic import JsonValue

from state.failures import Failure, FailureKind
from state.messages import flatten

_CUT: Final = frozenset({"length", "max_tokens"})
_FILTERED: Final = frozenset({"content_filter", "refusal"})
_KEY_REFUSED: Final = frozenset({401, 403})


class ModelTrouble(Exception):
    """A model did not answer. `kind` says what follows, by the failure table."""

    def __init__(self, kind: FailureKind, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class Answer(NamedTuple):
    """A model's turn."""

    message: AIMessage
    """With calls only where the whole turn can be used; ids are present and tell the calls apart."""
    failures: Sequence[Failure]
    model: str
    """Which model answered."""
    record: dict[str, JsonValue]
    """The message as it came, for the trace."""
    input_tokens: int | None
    output_tokens: int | None
    cost_usd: float | None


async def ask(
    model: BaseChatModel, messages: Sequence[BaseMessage], tools: Sequence[Mapping[str, Any]], *, call_id: str
) -> Answer:
    """Call the model with these tools.

    Raises:
        ModelTrouble: it did not answer.
    """
    bound = model.bind_tools([dict(schema) for schema in tools]) if tools else model
    try:
        message = await bound.ainvoke(list(messages))
    except json.JSONDecodeError as error:
        raise ModelTrouble("model_error", f"the model's server sent something that is not JSON: {error}") from None
    except Exception as error:
        if (trouble := _trouble(error)) is None:
            raise
        raise trouble from None
    return _answer(message, call_id)


def _trouble(error: Exception) -> ModelTrouble | None:
    """What a client library's exception means; None for what is not the model's (a bug of ours)."""
    if not any(cls.__module__.split(".")[0] in {"openai", "httpx"} for cls in type(error).__mro__):
        return None
    status = getattr(error, "status_code", None)
    kind: FailureKind = "model_key_refused" if status in _KEY_REFUSED else "model_error"
    return ModelTrouble(kind, f"{type(error).__name__}: {error}")


def _answer(message: AIMessage, call_id: str) -> Answer:
    usage = message.usage_metadata
    failures = list(_failures(message))
    return Answer(
        message=_usable(message, call_id, keep_calls=not failures),
        failures=failures,
        model=str(message.response_metadata.get("model_name") or ""),
        record=flatten(message),
        input_tokens=usage["input_tokens"] if usage else None,
        output_tokens=usage["output_tokens"] if usage else None,
        cost_usd=None,
    )


def _failures(message: AIMessage) -> Sequence[Failure]:
    """What is wrong with a turn as a whole; no call of such a turn is made."""
    finish = str(message.response_metadata.get("finish_reason") or "")
    if finish in _CUT:
        detail = "your answer was cut off at the length limit; give it again, shorter"
        return [Failure(kind="truncated_output", detail=detail)]
    if finish in _FILTERED or message.additional_kwargs.get("refusal"):
        return [Failure(kind="refused", detail=str(message.additional_kwargs.get("refusal") or "the model refused"))]
    if message.invalid_tool_calls:
        told = "; ".join(f"{each['name']}: {each['error']}" for each in message.invalid_tool_calls)[:1024]
        return [Failure(kind="unparsable_output", detail=f"the arguments of your call are not valid JSON ({told})")]
    if not message.tool_calls and not message.text.strip():
        return [Failure(kind="empty_output", detail="your answer was empty; use a tool, or say what you found")]
    return []


def _usable(message: AIMessage, call_id: str, *, keep_calls: bool) -> AIMessage:
    """The turn as it is kept: no broken arguments that a server would refuse later, and calls with ids of their own."""
    calls = message.tool_calls if keep_calls else []
    identifiers = [call["id"] for call in calls]
    named = [
        {**call, "id": call["id"] if call["id"] and identifiers.count(call["id"]) == 1 else f"{call_id}-{place}"}
        for place, call in enumerate(calls)
    ]
    return AIMessage(
        content=message.text or ("" if named else "(nothing that can be used)"),
        tool_calls=named,
        id=call_id,
        response_metadata=message.response_metadata,
        usage_metadata=message.usage_metadata,
    )
