"""The fault campaign's chat endpoint, which the tests share, and what each provider asks of a conversation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scripts.bench.faults.conversation import complaints
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
    """No provider would refuse it."""
    assert not list(complaints(body))
