"""One call of a chat model: what came of it, in one neutral form, or what kind of trouble there was."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, cast

from langchain_core.exceptions import ModelAuthenticationError, ModelError, ModelPermissionDeniedError
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, InvalidToolCall, message_chunk_to_message
from langchain_core.messages.ai import add_ai_message_chunks
from pydantic import JsonValue

from state.failures import Failure, FailureKind
from state.messages import flatten, revive

_CUT: Final = ("length", "max_tokens", "max_output_tokens")
_FILTERED: Final = ("content_filter", "refusal")
_KEY_REFUSED: Final = frozenset({401, 403})
_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")
"""What every provider takes back as the name of a call."""
_ID: Final = re.compile(r"[A-Za-z0-9_.:-]{1,40}")
_OURS: Final = ("model-", "opening", "evidence-", "escalation-")
"""How ids begin that DevFix gives itself."""
_MOST_TOKENS: Final = 10**12
_ECHO: Final = 400
"""Characters of a broken call that the model is shown."""


class ModelTrouble(Exception):
    """A model did not answer. `kind` says what follows, by the failure table."""

    def __init__(self, kind: FailureKind, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class Answer(NamedTuple):
    """A model's turn."""

    message: AIMessage
    """With calls only where the whole turn can be used; ids are present and tell the calls of the history apart."""
    failures: Sequence[Failure]
    model: str
    """Which model answered; empty where it does not say."""
    record: dict[str, JsonValue]
    """The message as it came, for the trace."""
    input_tokens: int | None
    output_tokens: int | None


async def ask(
    model: BaseChatModel, messages: Sequence[BaseMessage], tools: Sequence[Mapping[str, Any]], *, call_id: str
) -> Answer:
    """Call the model with these tools. `call_id` becomes the id of its message, and the beginning of those call ids
    that the model leaves out or uses twice.

    Raises:
        ModelTrouble: it did not answer. Nothing else that may be raised is taken for the model's trouble.
    """
    bound = model.bind_tools([dict(schema) for schema in tools]) if tools else model
    try:
        chunks = [chunk async for chunk in bound.astream(list(messages))]
    except ModelError as error:
        raise ModelTrouble(trouble_of(error), f"{type(error).__name__}: {error}") from None
    if not chunks:
        raise ModelTrouble("model_error", "the model ended its answer before it began")
    return _answer(_whole(chunks), call_id, _known_ids(messages))


def read_again(record: Mapping[str, Any], messages: Sequence[BaseMessage], *, call_id: str) -> Answer:
    """A recorded answer, read as it was when it came."""
    return _answer(cast("AIMessage", revive(record)), call_id, _known_ids(messages))


def trouble_of(error: Exception, *, status: int | None = None) -> FailureKind:
    """The kind of failure that an error in a model's answer is; `status` is the HTTP status, where there is one."""
    refused = isinstance(error, (ModelAuthenticationError, ModelPermissionDeniedError)) or status in _KEY_REFUSED
    return "model_key_refused" if refused else "model_error"


def _whole(chunks: Sequence[AIMessage]) -> AIMessage:
    """The message of a stream, its arguments read strictly: LangChain completes JSON that was cut, and a call that
    was cut must not be made."""
    first, *rest = chunks
    if not isinstance(first, AIMessageChunk):
        return first
    chunk = add_ai_message_chunks(first, *cast("list[AIMessageChunk]", rest))
    broken = [invalid for invalid in map(_broken, chunk.tool_call_chunks) if invalid is not None]
    message = cast("AIMessage", message_chunk_to_message(chunk))
    return message.model_copy(update={"tool_calls": [], "invalid_tool_calls": broken}) if broken else message


def _broken(call: Mapping[str, Any]) -> InvalidToolCall | None:
    args = call["args"] or "{}"
    try:
        error = None if isinstance(json.loads(args, parse_constant=_no_constant), dict) else "not a JSON object"
    except ValueError as trouble:
        error = str(trouble)
    if error is None:
        return None
    return InvalidToolCall(type="invalid_tool_call", name=call["name"], args=args, id=call["id"], error=error)


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


def _known_ids(messages: Sequence[BaseMessage]) -> frozenset[str]:
    """The ids of the calls so far: some servers begin to count anew at each turn."""
    turns = (message for message in messages if isinstance(message, AIMessage))
    return frozenset(str(call["id"]) for turn in turns for call in turn.tool_calls)


def _answer(message: AIMessage, call_id: str, known: frozenset[str]) -> Answer:
    usage = message.usage_metadata
    failures = list(_failures(message))
    return Answer(
        message=_usable(message, call_id, known, keep_calls=not failures),
        failures=failures,
        model=str(message.response_metadata.get("model_name") or ""),
        record=flatten(message),
        input_tokens=_counted(usage["input_tokens"]) if usage else None,
        output_tokens=_counted(usage["output_tokens"]) if usage else None,
    )


def _counted(tokens: int) -> int | None:
    """A number that no turn can have is none: a budget must not shrink by it, nor the trace refuse it."""
    return tokens if 0 <= tokens <= _MOST_TOKENS else None


def _failures(message: AIMessage) -> Sequence[Failure]:
    """What is wrong with a turn as a whole; no call of such a turn is made."""
    finish = _finish(message)
    if finish is None or any(word in finish for word in _CUT):
        detail = "your answer was cut off before its end; give it again, shorter"
        return [Failure(kind="truncated_output", detail=detail)]
    if any(word in finish for word in _FILTERED) or message.additional_kwargs.get("refusal"):
        why = message.additional_kwargs.get("refusal") or message.text or "no reason was given"
        return [Failure(kind="refused", detail=f"the model refused: {str(why)[:1000]}")]
    if broken := "; ".join(_complaints(message)):
        return [Failure(kind="unparsable_output", detail=f"none of your calls was made: {broken[:1000]}")]
    if not message.tool_calls and not message.text.strip():
        return [Failure(kind="empty_output", detail="your answer was empty; use a tool, or say what you found")]
    return []


def _finish(message: AIMessage) -> str | None:
    """Why the model stopped; None where a server that always says so did not: the stream ended early."""
    told = message.response_metadata
    if told.get("status") == "incomplete":
        return str((told.get("incomplete_details") or {}).get("reason") or _CUT[0])
    reason = told.get("finish_reason") or told.get("stop_reason") or told.get("status")
    return None if reason is None and "model_provider" in told else str(reason or "")


def _complaints(message: AIMessage) -> Iterator[str]:
    for broken in message.invalid_tool_calls:
        name, args, error = broken["name"], str(broken["args"])[:_ECHO], str(broken["error"])[:_ECHO]
        yield f"the arguments of {name} are not a JSON object ({error}); you sent {args!r}"
    for call in message.tool_calls:
        if not _NAME.fullmatch(call["name"]):
            yield f"{call['name'][:64]!r} is not the name of a tool"


def _usable(message: AIMessage, call_id: str, known: frozenset[str], *, keep_calls: bool) -> AIMessage:
    """The turn as it is kept: no broken arguments that a server would refuse later, and calls with ids of their own."""
    calls = message.tool_calls if keep_calls else []
    given = [call["id"] for call in calls]
    named = [
        {**call, "id": call["id"] if given.count(call["id"]) == 1 and _is_usable(call["id"], known) else ours}
        for call, ours in ((call, f"{call_id}-{place}") for place, call in enumerate(calls))
    ]
    return AIMessage(
        content=str(message.text) if message.text.strip() or named else "(nothing that can be used)",
        tool_calls=named,
        id=call_id,
        response_metadata=message.response_metadata,
        usage_metadata=message.usage_metadata,
    )


def _is_usable(identifier: str | None, known: frozenset[str]) -> bool:
    if not identifier or identifier in known or identifier.startswith(_OURS):
        return False
    return _ID.fullmatch(identifier) is not None
