"""What steps store, and how long the newest state takes to load: ours beside LangGraph's saver."""

from __future__ import annotations

from collections.abc import Sequence

import psycopg
from psycopg import sql
from pydantic import BaseModel, ConfigDict

from scripts.bench.loop import Bench, ours, plain, server_url
from scripts.bench.machine import Machine, machine
from scripts.bench.spread import Spread, ratio
from scripts.bootstrap import build
from state.agent_state import DELTA_SNAPSHOT_EVERY
from state.settings import Settings

TABLES = ("checkpoints", "checkpoint_blobs", "checkpoint_writes", "steps")
TRACE = "trace"
LANGGRAPH_DEFAULT = 100
"""DeltaChannel's own snapshot frequency."""
LOADS = 5


class Stored(BaseModel):
    """One run of so many steps."""

    model_config = ConfigDict(frozen=True)

    saver: str
    steps: int
    snapshot_every: int
    raw_bytes: int
    stored_bytes: int
    stored_to_raw: float
    tables: dict[str, int]
    trace_bytes: int
    """The record of a call in each step, which the peer does not keep; not in `stored_bytes`."""
    load_ms: Spread
    """`aget_state` of the newest checkpoint."""


class StorageFigures(BaseModel):
    """Bytes on disk: `pg_total_relation_size` (table, indexes and TOAST) after VACUUM, of a run alone in its schema."""

    model_config = ConfigDict(frozen=True)

    figure: str = "storage"
    machine: Machine
    bytes_a_step: int
    text: str = "words of random letters, which PostgreSQL's compression does not make smaller"
    measure: str = "pg_total_relation_size after VACUUM, indexes and TOAST included"
    ours: list[Stored]
    peer: str = "AsyncPostgresSaver, the same graph, DeltaChannel at its default frequency"
    peers: list[Stored]
    ratio: float
    """Ours by the peer's, at the most steps that both were measured at."""
    target_stored_to_raw: float = 3.0


async def measure(
    settings: Settings,
    *,
    steps: Sequence[int] = (400, 2000, 4000),
    peer_steps: Sequence[int] = (400, 2000),
    size: int = 2048,
    every: int = DELTA_SNAPSHOT_EVERY,
) -> StorageFigures:
    """Each run in a new schema, one after another. Raises DatabaseUnavailable."""
    application = build(settings, label="bench")
    mine = [await _ours(settings, number, size, every) for number in steps]
    peers = [await _peer(settings, number, size) for number in peer_steps]
    facts = await machine(application.database)
    await application.services.close()
    return StorageFigures(machine=facts, bytes_a_step=size, ours=mine, peers=peers, ratio=compared(mine, peers))


def compared(mine: Sequence[Stored], peers: Sequence[Stored]) -> float:
    """The ratio at the most steps that both have; each one's bytes by its own raw bytes where they share none."""
    common = {each.steps for each in mine} & {each.steps for each in peers}
    if not common:
        return ratio(mine[0].stored_to_raw, peers[0].stored_to_raw)
    most = max(common)
    of = {id(group): next(each for each in group if each.steps == most) for group in (mine, peers)}
    return ratio(of[id(mine)].stored_bytes, of[id(peers)].stored_bytes)


async def _ours(settings: Settings, steps: int, size: int, every: int) -> Stored:
    async with ours(settings) as bench:
        return await _stored(settings, bench, steps, size, every)


async def _peer(settings: Settings, steps: int, size: int) -> Stored:
    async with plain(settings) as bench:
        return await _stored(settings, bench, steps, size, LANGGRAPH_DEFAULT)


async def _stored(settings: Settings, bench: Bench, steps: int, size: int, every: int) -> Stored:
    run = await bench.run(steps, size, every=every)
    tables = await _sizes(await server_url(settings), bench.schema)
    loads = [await bench.load(run.config, every=every) for _ in range(LOADS)]
    if {messages for _, messages in loads} != {steps}:
        raise RuntimeError(f"{bench.name} gave {loads[0][1]} of {steps} messages back")
    trace_bytes = tables.pop(TRACE, 0)
    raw, stored = steps * size, sum(tables.values())
    return Stored(
        saver=bench.name,
        steps=steps,
        snapshot_every=every,
        raw_bytes=raw,
        stored_bytes=stored,
        stored_to_raw=ratio(stored, raw),
        tables=tables,
        trace_bytes=trace_bytes,
        load_ms=Spread.of([milliseconds for milliseconds, _ in loads], digits=1),
    )


async def _sizes(url: str, schema: str) -> dict[str, int]:
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        sizes = {}
        for table in (*TABLES, TRACE):
            name = sql.Identifier(schema, table)
            cursor = await connection.execute("SELECT to_regclass(%s) IS NULL", (f"{schema}.{table}",))
            if (await cursor.fetchone()) == (True,):
                continue
            await connection.execute(sql.SQL("VACUUM {}").format(name))
            cursor = await connection.execute("SELECT pg_total_relation_size(%s::regclass)", (f"{schema}.{table}",))
            row = await cursor.fetchone()
            sizes[table] = int(row[0]) if row else 0
        return sizes
