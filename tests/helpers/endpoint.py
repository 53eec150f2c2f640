"""The fault campaign's chat endpoint, which the tests share, and what each provider asks of a conversation."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from scripts.bench.faults.endpoint import (
    Answer,
    Chunks,
    Endpoint,
    Hangup,
    Held,
    Reply,
    Trickle,
    calling,
    chunk,
    endpoint,
    saying,
)

__all__ = [
    "Answer",
    "Chunks",
    "Endpoint",
    "Hangup",
    "Held",
    "Reply",
    "Trickle",
    "assert_valid_for_every_provider",
    "calling",
    "chunk",
    "endpoint",
    "saying",
]


def assert_valid_for_every_provider(body: Mapping[str, Any]) -> None:
    """Each call has an id of its own and JSON arguments, and is answered right behind its turn; nothing is empty; the
    two sides take turns."""
    seen: set[str] = set()
    waiting: list[str] = []
    roles = [message["role"] for message in body["messages"]]
    assert not any(former == role == "user" for former, role in pairwise(roles))
    for message in body["messages"]:
        if message["role"] == "tool":
            waiting.remove(message["tool_call_id"])
            continue
        assert not waiting, f"unanswered: {waiting}"
        assert message.get("content") or message.get("tool_calls"), message
        for call in message.get("tool_calls") or ():
            assert isinstance(json.loads(call["function"]["arguments"]), dict)
            assert call["id"] not in seen
            seen.add(call["id"])
            waiting.append(call["id"])
    assert not waiting, f"unanswered: {waiting}"
