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


class Pieces:
    """The chunks of a stream as they come; of text that comes in a row, the text alone: a chunk takes a kilobyte."""

    def __init__(self) -> None:
        self._chunks: list[AIMessage] = []
        self._texts: list[str] = []
        """What follows the last chunk."""

    @property
    def count(self) -> int:
        """How many chunks are kept."""
        return len(self._chunks)

    def add(self, chunk: AIMessage) -> None:
        if self._chunks and _is_bare(chunk) and _is_bare(self._chunks[-1]):
            self._texts.append(str(chunk.content))
            return
        self._put_together()
        self._chunks.append(chunk)

    @property
    def chunks(self) -> list[AIMessage]:
        """All of them, neighbouring texts in one."""
        self._put_together()
        return self._chunks

    def _put_together(self) -> None:
        if self._texts:
            last = self._chunks[-1]
            self._chunks[-1] = last.model_copy(update={"content": "".join([str(last.content), *self._texts])})
            self._texts = []


def _is_bare(chunk: AIMessage) -> bool:
    """Whether the chunk is text, and tells nothing else."""
    told = (chunk.additional_kwargs, chunk.response_metadata, chunk.usage_metadata, chunk.tool_calls)
    is_piece = isinstance(chunk, AIMessageChunk) and not chunk.tool_call_chunks and chunk.chunk_position is None
    return is_piece and isinstance(chunk.content, str) and not any(told)


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
