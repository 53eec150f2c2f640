"""What each provider asks of a conversation that it is sent."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_ID: Final = re.compile(r"[A-Za-z0-9_.:-]{1,40}")
_SHOWN: Final = 80


def complaints(body: Mapping[str, Any]) -> Iterator[str]:
    """Why a provider would refuse the body of a request: each call has a name, an id of its own and an object as its
    arguments, and is answered right behind its turn; nothing is empty; the two sides take turns."""
    messages: Sequence[Mapping[str, Any]] = body["messages"]
    roles = [message["role"] for message in messages]
    if any(former == role == "user" for former, role in pairwise(roles)):
        yield "two words of the user stand in a row"
    seen: set[str] = set()
    waiting: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            if message["tool_call_id"] not in waiting:
                yield f"nobody asked for the result of {message['tool_call_id']!r}"
            else:
                waiting.remove(message["tool_call_id"])
            continue
        if waiting:
            yield f"unanswered: {waiting}"
        if not message.get("content") and not message.get("tool_calls"):
            yield f"an empty word of the {message['role']}"
        waiting = [call["id"] for call in message.get("tool_calls") or ()]
        for call in message.get("tool_calls") or ():
            yield from _of_call(call, seen)
            seen.add(call["id"])
    if waiting:
        yield f"unanswered: {waiting}"


def _of_call(call: Mapping[str, Any], seen: set[str]) -> Iterator[str]:
    identifier, function = str(call["id"]), call["function"]
    if call["id"] in seen:
        yield f"two calls have the id {identifier!r}"
    if not _ID.fullmatch(identifier):
        yield f"{identifier[:_SHOWN]!r} is no id"
    if not _NAME.fullmatch(function["name"]):
        yield f"{function['name'][:_SHOWN]!r} is no name"
    try:
        is_object = isinstance(json.loads(function["arguments"]), dict)
    except ValueError:
        is_object = False
    if not is_object:
        yield f"{function['arguments'][:_SHOWN]!r} is no object"
