"""One call of a chat model: what came of it, in one neutral form, or what kind of trouble there was."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Final, NamedTuple, cast

from langchain_core.exceptions import ModelError
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, ToolCall
from pydantic import JsonValue

from graph.models.stream import Pieces, whole
from graph.models.text_calls import written_calls
from graph.models.trouble import ModelTrouble, trouble_of
from state.failures import Failure, FailureKind
from state.messages import flatten

Heard = Callable[[str], Awaitable[None]]
"""Is told each piece of an answer's text as it comes; of pieces that hold none, "" """
Tools = Sequence[Mapping[str, Any]]
"""Schemas, in the form that chat models take."""

_CUT: Final = ("length", "max_tokens", "max_output_tokens", "context_window", "incomplete", "abort", "cancel", "error")
_FILTERED: Final = ("content_filter", "refusal", "safety", "recitation", "blocklist", "prohibited")
_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")
"""What every provider takes back as the name of a call."""
_ID: Final = re.compile(r"[A-Za-z0-9_.:-]{1,40}")
_OURS: Final = ("model-", "opening", "evidence-", "escalation-")
"""How ids begin that DevFix gives itself."""
_MOST_TOKENS: Final = 10**12
_ECHO: Final = 960
"""Bytes of a broken answer that the model is shown, with what is wrong with it."""
_LONGEST: Final = 8_000_000
"""Characters of an answer: a server that never ends one must not fill the memory."""
_MOST_PIECES: Final = 100_000
"""Pieces of an answer other than of its text, each of which takes some kilobytes."""
_KEPT: Final = ("model_name", "finish_reason", "stop_reason")
"""What the history keeps of what a server says about its answer."""


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
    model: BaseChatModel,
    messages: Sequence[BaseMessage],
    tools: Tools,
    *,
    call_id: str,
    seconds: float | None = None,
    heard: Heard | None = None,
) -> Answer:
    """Call the model with these tools. `call_id` becomes the id of its message, and the beginning of those call ids
    that the model leaves out or uses twice. After so many seconds the answer has to have ended.

    Raises:
        ModelTrouble: it did not answer. Nothing else that may be raised is taken for the model's trouble.
    """
    bound = model.bind_tools([dict(schema) for schema in tools]) if tools else model
    deadline = asyncio.timeout(seconds)
    try:
        async with deadline:
            chunks = await _listen(bound.astream(list(messages)), heard)
    except ModelError as error:
        raise trouble_of(error) from None
    except TimeoutError:
        if not deadline.expired():
            raise
        told = f"the answer had not ended after {seconds:g} s"
        raise ModelTrouble("model_error", told, unanswered=True) from None
    if not chunks:
        raise ModelTrouble("model_error", "the model ended its answer before it began")
    return _answer(_capped(whole(chunks), getattr(model, "max_tokens", None)), call_id, _known_ids(messages), tools)


async def _listen(stream: AsyncIterator[AIMessage], heard: Heard | None) -> list[AIMessage]:
    pieces, size = Pieces(), 0
    async with aclosing(cast("Any", stream)):
        async for chunk in stream:
            pieces.add(chunk)
            text = chunk.content if isinstance(chunk.content, str) else chunk.text
            size += len(text) + sum(len(call["args"] or "") for call in getattr(chunk, "tool_call_chunks", ()))
            if size > _LONGEST or pieces.count > _MOST_PIECES:
                raise ModelTrouble("model_error", f"the answer had not ended after {size} characters")
            if heard is not None:
                await heard(text)
    return pieces.chunks


def _capped(message: AIMessage, cap: int | None) -> AIMessage:
    """An answer just as long as it may be was cut, whatever its server says."""
    usage = message.usage_metadata
    if cap is None or usage is None or usage["output_tokens"] < cap:
        return message
    return message.model_copy(update={"response_metadata": {**message.response_metadata, "finish_reason": _CUT[0]}})


def _known_ids(messages: Sequence[BaseMessage]) -> frozenset[str]:
    """The ids of the calls so far: some servers begin to count anew at each turn."""
    turns = (message for message in messages if isinstance(message, AIMessage))
    return frozenset(str(call["id"]) for turn in turns for call in turn.tool_calls)


def _answer(message: AIMessage, call_id: str, known: frozenset[str], tools: Tools) -> Answer:
    usage = message.usage_metadata
    read = _read(message, tools)
    return Answer(
        message=_usable(message, read, call_id, known),
        failures=list(read.failures),
        model=str(message.response_metadata.get("model_name") or ""),
        record=flatten(message),
        input_tokens=_counted(usage["input_tokens"]) if usage else None,
        output_tokens=_counted(usage["output_tokens"]) if usage else None,
    )


def _counted(tokens: int) -> int | None:
    """A number that no turn can have is none: a budget must not shrink by it, nor the trace refuse it."""
    return tokens if 0 <= tokens <= _MOST_TOKENS else None


class _Reading(NamedTuple):
    """What a turn says: words and calls, or what is wrong with it as a whole; no call of such a turn is made."""

    text: str
    calls: Sequence[ToolCall] = ()
    failures: Sequence[Failure] = ()


def _read(message: AIMessage, tools: Tools) -> _Reading:
    text = str(message.text)
    if unfinished := _unfinished(message):
        return _Reading(text, failures=[unfinished])
    complaints, calls = list(_complaints(message)), message.tool_calls
    if not complaints and not calls and (written := written_calls(text, _arguments(tools))) is not None:
        calls = written.calls
        complaints = [written.complaint] if written.complaint else []
        text = text if complaints else written.text
    if complaints:
        broken = _clipped("; ".join(complaints), _ECHO)
        return _Reading(text, failures=[_failure("unparsable_output", f"none of your calls was made: {broken}")])
    if not calls and not text.strip():
        return _Reading(text, failures=[_failure("empty_output", "your answer was empty; use a tool, or say why not")])
    return _Reading(text, calls)


def _failure(kind: FailureKind, detail: str) -> Failure:
    return Failure(kind=kind, detail=detail)


def _unfinished(message: AIMessage) -> Failure | None:
    """The failure of a turn that its model did not bring to an end, or did not want to give."""
    finish = _finish(message)
    refusal = message.additional_kwargs.get("refusal")
    if refusal or any(word in (finish or "") for word in _FILTERED):
        why = _clipped(str(refusal or message.text or "no reason was given"), _ECHO)
        return _failure("refused", f"the model refused: {why}")
    if finish is None or any(word in finish for word in _CUT):
        return _failure("truncated_output", "your answer was cut off before its end; give it again, shorter")
    return None


def _finish(message: AIMessage) -> str | None:
    """Why the model stopped; None where a server that always says so did not: the stream ended early."""
    told = message.response_metadata
    if told.get("status") == "incomplete":
        return str((told.get("incomplete_details") or {}).get("reason") or _CUT[0])
    reason = told.get("finish_reason") or told.get("stop_reason") or told.get("status")
    return None if reason is None and "model_provider" in told else str(reason or "").lower()


def _complaints(message: AIMessage) -> Iterator[str]:
    for broken in message.invalid_tool_calls:
        name, args, error = broken["name"], _clipped(str(broken["args"]), _ECHO // 2), str(broken["error"])
        yield f"the arguments of {name} are not a JSON object ({_clipped(error, _ECHO // 3)}); you sent {args!r}"
    for call in message.tool_calls:
        if not _NAME.fullmatch(call["name"]):
            yield f"{call['name'][:64]!r} is not the name of a tool"


def _arguments(tools: Tools) -> dict[str, Mapping[str, Any]]:
    functions = [tool.get("function") or {} for tool in tools]
    return {str(each.get("name")): each.get("parameters") or {} for each in functions}


def _clipped(text: str, limit: int) -> str:
    """The beginning of a text, in so many bytes."""
    data = text.encode("utf-8", "replace")
    return data.decode() if len(data) <= limit else f"{data[:limit].decode('utf-8', 'ignore')}…"


def _usable(message: AIMessage, read: _Reading, call_id: str, known: frozenset[str]) -> AIMessage:
    """The turn as it is kept: what any provider takes back, whichever one it came from. No broken arguments, and calls
    with ids of their own."""
    given = [call["id"] for call in read.calls]
    named = [
        {**call, "id": call["id"] if given.count(call["id"]) == 1 and _is_usable(call["id"], known) else ours}
        for call, ours in ((call, f"{call_id}-{place}") for place, call in enumerate(read.calls))
    ]
    told = {name: value for name, value in message.response_metadata.items() if name in _KEPT}
    return AIMessage(
        content=read.text if read.text.strip() or named else "(nothing that can be used)",
        tool_calls=named,
        id=call_id,
        response_metadata=told,
        usage_metadata=message.usage_metadata,
    )


def _is_usable(identifier: str | None, known: frozenset[str]) -> bool:
    if not identifier or identifier in known or identifier.startswith(_OURS):
        return False
    return _ID.fullmatch(identifier) is not None
