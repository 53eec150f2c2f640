"""Several writes of one task in one row of `checkpoint_writes`: a row costs 350 bytes of keys and index.

What delta channels are rebuilt from needs a row under its channel's name. The other writes (to channels whose value
the checkpoint itself holds, and to the edges) are kept for people who look back, and share the first such row.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from langgraph.checkpoint.base import Checkpoint
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.types import _DeltaSnapshot

from state.codec import CompactSerializer

_SHARED = "shared:"
"""Before the type of such a row; its value is the list of all its (channel, value) pairs."""

Write = tuple[str, Any]


def grouped(writes: Sequence[Write], checkpoint: Checkpoint) -> list[list[Write]]:
    """A finished task's writes, by the rows that they take; each row goes under its first write's channel."""
    values = checkpoint["channel_values"]
    kept: list[Write] = []
    apart: list[list[Write]] = []
    for channel, value in writes:
        held = channel in values and not isinstance(values[channel], _DeltaSnapshot)
        if held or channel.startswith("branch:"):
            kept.append((channel, value))
        else:
            apart.append([(channel, value)])
    if not kept:
        return apart
    first, *others = apart or [[]]
    return [[*first, *kept], *others]


def dump(row: Sequence[Write], serde: SerializerProtocol) -> tuple[str, bytes]:
    """The row's type and bytes. Raises Unserializable."""
    if len(row) == 1:
        return serde.dumps_typed(row[0][1])
    kind, data = serde.dumps_typed([list(write) for write in row])
    return _SHARED + kind, data


def packed(kind: str, data: bytes, serde: CompactSerializer) -> bytes:
    """The row's value or values as they are stored, not compressed."""
    return serde.decompressed((kind.removeprefix(_SHARED), data))


def load(channel: str, kind: str, data: bytes, serde: SerializerProtocol) -> Iterable[Write]:
    """The writes of a row."""
    if not kind.startswith(_SHARED):
        return [(channel, serde.loads_typed((kind, data)))]
    return [(name, value) for name, value in serde.loads_typed((kind.removeprefix(_SHARED), data))]
