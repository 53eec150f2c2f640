"""What delta channels are rebuilt from: the newest value stored before a checkpoint, and the writes since.

As `AsyncPostgresSaver.aget_delta_channel_history`, which asks for each checkpoint on the way whether a value is stored
beside it. Here the stored values are asked for first (there are few), and the writes are read as one range of their
index, so a long history loads in a fraction of the time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from langgraph.checkpoint.base import DeltaChannelHistory, PendingWrite
from langgraph.checkpoint.serde.base import SerializerProtocol
from psycopg import AsyncCursor, sql
from psycopg.rows import TupleRow

from state.shared_rows import load

_PAGE = 4096
"""Checkpoints that are read at a time on the way back."""
_BATCH = 256
"""Writes in one row of an answer."""


class Place(NamedTuple):
    """A checkpoint."""

    thread: str
    namespace: str
    checkpoint: str


@dataclass
class _Chain:
    """A channel's way back from the checkpoint: newest first, up to the one that holds a value."""

    following: str | None
    checkpoints: list[str] = field(default_factory=list)
    version: str | None = None
    """Under which a value is stored as a blob."""
    inline: Any = None
    """A primitive that stands in the checkpoint itself."""
    ended: bool = False


async def delta_history(
    cursor: AsyncCursor[TupleRow], place: Place, channels: Sequence[str], serde: SerializerProtocol
) -> dict[str, DeltaChannelHistory]:
    """For each channel, its seed if there is one, and the writes of all ancestors since, oldest first."""
    stored = await _stored_versions(cursor, place, channels)
    chains = await _chains(cursor, place, channels, stored)
    writes = await _writes(cursor, place, chains, serde)
    histories: dict[str, DeltaChannelHistory] = {}
    for channel, chain in chains.items():
        histories[channel] = {"writes": writes[channel]}
        if chain.version is not None:
            histories[channel]["seed"] = await _blob(cursor, place, channel, chain.version, serde)
        elif chain.inline is not None:
            histories[channel]["seed"] = chain.inline
    return histories


async def _stored_versions(
    cursor: AsyncCursor[TupleRow], place: Place, channels: Sequence[str]
) -> Mapping[str, list[str]]:
    await cursor.execute(
        "SELECT channel, version FROM checkpoint_blobs "
        "WHERE thread_id = %s AND checkpoint_ns = %s AND channel = ANY(%s) AND type <> 'empty'",
        (place.thread, place.namespace, list(channels)),
    )
    stored: dict[str, list[str]] = {channel: [] for channel in channels}
    for channel, version in await cursor.fetchall():
        stored[channel].append(version)
    return stored


async def _chains(
    cursor: AsyncCursor[TupleRow], place: Place, channels: Sequence[str], stored: Mapping[str, list[str]]
) -> dict[str, _Chain]:
    """Checkpoint ids grow with time, so all ancestors lie below the checkpoint; branches beside them are passed by."""
    query = _page_query(len(channels))
    seeds = [value for channel in channels for value in (channel, stored[channel], channel, channel)]
    chains: dict[str, _Chain] = {}
    below, inclusive = place.checkpoint, True
    while True:
        await cursor.execute(query, (*seeds, place.thread, place.namespace, below, inclusive, below, _PAGE))
        page = {row[0]: row for row in await cursor.fetchall()}
        if not chains:
            parent = page[place.checkpoint][1] if place.checkpoint in page else None
            chains = {channel: _Chain(parent) for channel in channels}
        for number, chain in enumerate(chains.values()):
            _walk(chain, page, 2 + 2 * number)
        if len(page) < _PAGE or all(chain.ended for chain in chains.values()):
            return chains
        below, inclusive = min(page), False


def _page_query(channels: int) -> sql.Composed:
    """For each channel the version where a blob of it is stored, and the primitive that is stored inline."""
    columns = sql.SQL(", ").join(
        sql.SQL(
            "CASE WHEN (checkpoint #>> ARRAY['channel_versions', %s]) = ANY(%s) "
            "THEN checkpoint #>> ARRAY['channel_versions', %s] END, checkpoint #> ARRAY['channel_values', %s]"
        )
        for _ in range(channels)
    )
    return sql.SQL(
        "SELECT checkpoint_id, parent_checkpoint_id, {} FROM checkpoints WHERE thread_id = %s AND checkpoint_ns = %s "
        "AND (checkpoint_id < %s OR (%s AND checkpoint_id = %s)) ORDER BY checkpoint_id DESC LIMIT %s"
    ).format(columns)


def _walk(chain: _Chain, page: Mapping[str, TupleRow], column: int) -> None:
    """On to the first checkpoint that holds a value, to the root, or to the end of the page."""
    while not chain.ended and chain.following is not None and chain.following in page:
        row = page[chain.following]
        chain.checkpoints.append(chain.following)
        chain.version, chain.inline, chain.following = row[column], row[column + 1], row[1]
        chain.ended = chain.version is not None or chain.inline is not None
    chain.ended = chain.ended or chain.following is None


async def _writes(
    cursor: AsyncCursor[TupleRow], place: Place, chains: Mapping[str, _Chain], serde: SerializerProtocol
) -> dict[str, list[PendingWrite]]:
    """Rows come by the hundred as arrays, in order: one large answer is read in a few pieces, small ones one by one."""
    passed = {channel: set(chain.checkpoints) for channel, chain in chains.items()}
    everything = set().union(*passed.values())
    writes: dict[str, list[PendingWrite]] = {channel: [] for channel in chains}
    if not everything:
        return writes
    await cursor.execute(
        "SELECT array_agg(checkpoint_id ORDER BY n), array_agg(channel ORDER BY n), array_agg(task_id ORDER BY n), "
        "array_agg(type ORDER BY n), array_agg(blob ORDER BY n) "
        "FROM (SELECT *, n / %s AS part FROM (SELECT *, row_number() OVER "
        '(ORDER BY checkpoint_id COLLATE "C", task_path COLLATE "C", task_id COLLATE "C", idx) AS n '
        "FROM checkpoint_writes "
        "WHERE thread_id = %s AND checkpoint_ns = %s AND checkpoint_id BETWEEN %s AND %s AND channel = ANY(%s)"
        ") AS numbered) AS parted GROUP BY part ORDER BY part",
        (_BATCH, place.thread, place.namespace, min(everything), max(everything), list(chains)),
    )
    for batch in await cursor.fetchall():
        for checkpoint, channel, task, kind, blob in zip(*batch, strict=True):
            if checkpoint in passed[channel]:
                writes[channel] += [
                    (task, name, value) for name, value in load(channel, kind, blob, serde) if name == channel
                ]
    return writes


async def _blob(
    cursor: AsyncCursor[TupleRow], place: Place, channel: str, version: str, serde: SerializerProtocol
) -> Any:
    await cursor.execute(
        "SELECT type, blob FROM checkpoint_blobs "
        "WHERE thread_id = %s AND checkpoint_ns = %s AND channel = %s AND version = %s",
        (place.thread, place.namespace, channel, version),
    )
    found = await cursor.fetchone()
    return serde.loads_typed(found) if found else None
