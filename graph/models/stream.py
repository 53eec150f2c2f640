"""The pieces of a stream, put together into the message that they are."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, cast

from langchain_core.messages import AIMessage, AIMessageChunk, InvalidToolCall, message_chunk_to_message
from langchain_core.messages.ai import add_ai_message_chunks
from langchain_core.messages.tool import ToolCallChunk

from graph.models.strict_json import strictly

_SAID: Final = ("model_name", "finish_reason", "system_fingerprint", "service_tier")
_AROUND: Final = 60
"""Characters on each side of the place where JSON breaks that the model is shown."""


def whole(chunks: Sequence[AIMessage]) -> AIMessage:
    """The message of a stream, its arguments read strictly: LangChain completes JSON that was cut, and a call that
    was cut must not be made."""
    if not isinstance(chunks[0], AIMessageChunk):
        return chunks[0]
    chunk = add_ai_message_chunks(*_told_apart(cast("Sequence[AIMessageChunk]", chunks)))
    chunk.response_metadata |= _told_once(chunks)
    broken = [invalid for invalid in map(_broken, chunk.tool_call_chunks) if invalid is not None]
    message = cast("AIMessage", message_chunk_to_message(chunk))
    return message.model_copy(update={"tool_calls": [], "invalid_tool_calls": broken}) if broken else message


def _told_once(chunks: Sequence[AIMessage]) -> dict[str, Any]:
    """What several chunks say in the same words, which LangChain puts one behind the other."""
    told = [chunk.response_metadata for chunk in chunks]
    words = {name: {each[name] for each in told if isinstance(each.get(name), str)} for name in _SAID}
    return {name: each.pop() for name, each in words.items() if len(each) == 1}


def _broken(call: Mapping[str, Any]) -> InvalidToolCall | None:
    args = call["args"] or "{}"
    if (error := _error(args)) is None:
        return None
    return InvalidToolCall(type="invalid_tool_call", name=call["name"], args=args, id=call["id"], error=error)


def _error(args: str) -> str | None:
    """Why the text is no JSON object; None where it is one."""
    try:
        return None if isinstance(strictly(args), dict) else "not a JSON object"
    except json.JSONDecodeError as error:
        return f"{error}, near {args[max(0, error.pos - _AROUND) : error.pos + _AROUND]!r}"
    except (ValueError, RecursionError) as error:
        return str(error)


def _told_apart(chunks: Sequence[AIMessageChunk]) -> Iterator[AIMessageChunk]:
    """Each call under an index of its own, its id and name told once: some servers give no index, or the same one to
    all calls of a turn, or tell id and name with every piece."""
    calls: list[ToolCallChunk] = []
    places: dict[object, int] = {}
    for chunk in chunks:
        if not chunk.tool_call_chunks:
            yield chunk
            continue
        pieces: list[ToolCallChunk] = []
        for piece in chunk.tool_call_chunks:
            place = places.get(piece["index"])
            if place is None or _begins(piece, calls[place]):
                places[piece["index"]] = place = len(calls)
                calls.append(ToolCallChunk(name=None, args="", id=None, index=place, type="tool_call_chunk"))
            pieces.append(_news(piece, calls[place]))
        yield chunk.model_copy(update={"tool_call_chunks": pieces})


def _begins(piece: ToolCallChunk, call: ToolCallChunk) -> bool:
    """Whether the piece is the first of another call."""
    if piece["id"] and call["id"]:
        return piece["id"] != call["id"]
    return bool(piece["name"]) and (piece["index"] is None or bool(call["args"] and _error(call["args"]) is None))


def _news(piece: ToolCallChunk, call: ToolCallChunk) -> ToolCallChunk:
    """What the piece adds to the call, which takes it in."""
    name = piece["name"] if piece["name"] != call["name"] else None
    identifier = piece["id"] if piece["id"] != call["id"] else None
    call["name"] = (call["name"] or "") + (name or "")
    call["id"] = call["id"] or identifier
    call["args"] = (call["args"] or "") + (piece["args"] or "")
    return {**piece, "name": name, "id": identifier, "index": call["index"]}
