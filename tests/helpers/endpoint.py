"""The fault campaign's chat endpoint, which the tests share."""

from scripts.bench.faults.endpoint import (
    Answer,
    Chunks,
    Endpoint,
    Held,
    Reply,
    Trickle,
    calling,
    chunk,
    endpoint,
    saying,
)

__all__ = ["Answer", "Chunks", "Endpoint", "Held", "Reply", "Trickle", "calling", "chunk", "endpoint", "saying"]
