"""What servers send, in the form that langchain-openai reads: many leave things out or send them in another type.

langchain-openai drops calls without an index, says nothing of a `function_call`, and breaks at the rest.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def mended(chunk: Mapping[str, Any]) -> dict[str, Any]:
    """One chunk of a stream, as langchain-openai takes it."""
    choices = [{**choice, "delta": _delta(choice.get("delta") or {})} for choice in chunk.get("choices") or ()]
    return {**chunk, "choices": choices, "usage": _usage(chunk.get("usage"))}


def error_in(chunk: Mapping[str, Any]) -> str | None:
    """What a chunk says that is an error by itself, as some servers send it within a success."""
    said = chunk.get("message")
    return said if not chunk.get("choices") and not chunk.get("usage") and isinstance(said, str) else None


def _delta(delta: Mapping[str, Any]) -> dict[str, Any]:
    calls = [_call(call) for call in delta.get("tool_calls") or ()]
    if isinstance(old := delta.get("function_call"), Mapping):
        calls.append(_call({"index": 0, "function": old}))
    content = delta.get("content")
    return {
        **delta,
        "role": "assistant",
        "content": content if content is None or isinstance(content, (str, list)) else str(content),
        "function_call": None,
        "tool_calls": calls or None,
    }


def _call(call: Mapping[str, Any]) -> dict[str, Any]:
    function, identifier = call.get("function") or {}, call.get("id")
    return {
        "index": call.get("index"),
        "id": None if identifier is None else str(identifier),
        "function": {"name": function.get("name"), "arguments": _text(function.get("arguments"))},
    }


def _text(arguments: Any) -> str | None:
    return arguments if arguments is None or isinstance(arguments, str) else json.dumps(arguments)


def _usage(usage: Any) -> dict[str, Any] | None:
    """None where it counts nothing that can be counted."""
    if not isinstance(usage, Mapping):
        return None
    counts = {name: value for name, value in usage.items() if not isinstance(value, Mapping)}
    details = {name: _counts(value) for name, value in usage.items() if isinstance(value, Mapping)}
    needed = (counts.get("prompt_tokens"), counts.get("completion_tokens"))
    return {**_counts(counts), **details} if all(isinstance(each, int) for each in needed) else None


def _counts(values: Mapping[str, Any]) -> dict[str, int]:
    return {name: value for name, value in values.items() if isinstance(value, int)}
