"""LangGraph's PostgreSQL saver, with each save fenced and each superstep in one transaction.

The attempt's epoch travels in `config["configurable"]`. A save that carries one is refused (`Fenced`) unless that
attempt still holds the run. A save that carries none comes from outside any attempt (`update_state`, a copy): it is
taken only while nobody holds the run, and raises the epoch so that whoever held it before stays out.

A task's writes are held back until the checkpoint that follows, so that a step is saved whole in one transaction,
but only where nothing can be lost by it: the writes of a scheduled node (`~__pregel_pull`). Those of a fanned-out
task, interrupts, errors and resume values go at once, and take what was held back with them.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Mapping, MutableMapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, cast

import psycopg
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
    get_checkpoint_id,
    get_serializable_checkpoint_metadata,
    writes_sort_key,
)
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.checkpoint.postgres.base import _aexecute, _keep_latest, _refuse_delta_threads
from langgraph.checkpoint.serde.types import ERROR, TASKS, _DeltaSnapshot
from psycopg import AsyncCursor
from psycopg.rows import DictRow, dict_row, tuple_row
from psycopg.types.json import Jsonb

from state.codec import CompactSerializer
from state.database import Database, SqlCall
from state.delta_history import Place, delta_history
from state.errors import DevfixError, Fenced, Unserializable
from state.patience import patiently
from state.runs import FENCED_SQLSTATE, Runs
from state.shared_rows import dump, grouped, load
from state.status import Standing, standing_of
from state.trace import Trace

EPOCH_KEY = "__devfix_epoch"
"""Where the attempt's number travels; the two underscores keep it out of the saved metadata."""

_PULL = "~__pregel_pull"
_FLUSH_AFTER_SECONDS = 0.05
"""A held-back write whose siblings still run is saved by itself after this long."""


class _Place(NamedTuple):
    thread: str
    namespace: str
    checkpoint: str
    epoch: int


class _Writes(NamedTuple):
    task_id: str
    task_path: str
    writes: Sequence[tuple[str, Any]]


class FencedSaver(AsyncPostgresSaver):
    """The public saver contract (conformance suite, copy_thread and delete_for_runs included), fenced.

    Raises, from every save: Fenced when another attempt holds the run, RunBusy for a save without an epoch while
    the run is held, Unserializable for a value that would not come back as it was.
    """

    def __init__(
        self,
        *,
        database: Database,
        runs: Runs,
        trace: Trace,
        saved: MutableMapping[tuple[str, int], int] | None = None,
    ) -> None:
        super().__init__(conn=cast("Any", None), serde=CompactSerializer())
        self._database = database
        self._runs = runs
        self._trace = trace
        self._saved = saved if saved is not None else {}
        self._held: defaultdict[_Place, list[_Writes]] = defaultdict(list)
        self._timers: dict[_Place, asyncio.TimerHandle] = {}
        self._flushing: dict[_Place, asyncio.Task[None]] = {}
        self._ran: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
        self._fanned: dict[str, tuple[str, set[str]]] = {}

    @property
    def unwrapped(self) -> FencedSaver:
        """This saver itself, also when asked through the dev server's wrapper, which hands on what it does not know."""
        return self

    # -- saving ---------------------------------------------------------------------------------------------------

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        where = config["configurable"]
        thread, namespace, parent = where["thread_id"], where.get("checkpoint_ns", ""), where.get("checkpoint_id")
        epoch = await self._epoch(config, thread)
        held = await self._take_held(_Place(thread, namespace, parent or "", epoch or 0))
        stored, blobs = self._split(checkpoint, new_versions)
        writes = self._write_rows(held, into=checkpoint)
        changed = [(name, new_versions[name], *self._dump([(name, value)])) for name, value in blobs.items()]
        saved_metadata = Jsonb(get_serializable_checkpoint_metadata(config, metadata))
        place = (thread, namespace, checkpoint["id"], parent)
        saving = SqlCall(
            _SAVE_CHECKPOINT, (*place, Jsonb(stored), saved_metadata, *_columns(writes, 6), *_columns(changed, 4))
        )
        if epoch is not None and namespace == "":
            nodes = self._nodes(thread, parent, checkpoint)
            facts = _step_facts(checkpoint, metadata, nodes, inside=EPOCH_KEY in where)
            step = SqlCall(_RECORD_STEP, (thread, epoch, checkpoint["id"], parent, *facts))
            await self._save(thread, epoch, step, saving)
            self._saved[thread, epoch] = self._saved.get((thread, epoch), 0) + 1
        else:
            await self._save(thread, epoch, *_fence(thread, epoch), saving)
        return {"configurable": {"thread_id": thread, "checkpoint_ns": namespace, "checkpoint_id": checkpoint["id"]}}

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        where = config["configurable"]
        thread, namespace, checkpoint = where["thread_id"], where.get("checkpoint_ns", ""), where["checkpoint_id"]
        if task_path.startswith(_PULL):
            self._ran[thread, checkpoint].add(task_path.split(", ")[1])
        if EPOCH_KEY in where and task_path.startswith(_PULL) and not any(w[0] in WRITES_IDX_MAP for w in writes):
            self._hold_back(
                _Place(thread, namespace, checkpoint, where[EPOCH_KEY]), _Writes(task_id, task_path, writes)
            )
            return
        epoch = await self._epoch(config, thread)
        tasks = await self._take_held(_Place(thread, namespace, checkpoint, epoch or 0))
        # Saved, what DevFix raises on purpose (the database was away) would be the task's result: the run would go on
        # from it, and never do the task, which may be what a person approved.
        if not any(channel == ERROR and isinstance(value, DevfixError) for channel, value in writes):
            tasks = [*tasks, _Writes(task_id, task_path, writes)]
        if tasks:
            await self._save_writes(thread, namespace, checkpoint, epoch, tasks)

    async def _save_writes(
        self, thread: str, namespace: str, checkpoint: str, epoch: int | None, tasks: Sequence[_Writes]
    ) -> None:
        rows = _columns(self._write_rows(tasks), 6)
        saving = SqlCall(_SAVE_WRITES, (thread, namespace, checkpoint, *rows))
        await self._save(thread, epoch, *_fence(thread, epoch), saving)

    async def _save(self, thread: str, epoch: int | None, *calls: SqlCall) -> None:
        """One statement, whole or not at all, with the calls that are to be recorded. Every row of a state is keyed, so
        a save whose commit got no answer is repeated."""
        try:
            with self._trace.due(thread, epoch or 0) as records:
                await patiently(lambda: self._database.call(*calls, *records))
        except psycopg.DatabaseError as error:
            if error.sqlstate != FENCED_SQLSTATE:
                raise
            raise Fenced(
                "another attempt holds this run now; nothing of this step was saved, and the other attempt goes on"
            ) from None

    async def _epoch(self, config: RunnableConfig, thread: str) -> int | None:
        """The attempt that this save belongs to, or a new one raised for it; None where no run is registered."""
        epoch = config["configurable"].get(EPOCH_KEY)
        return epoch if epoch is not None else await self._runs.seize(thread)

    # -- holding back ---------------------------------------------------------------------------------------------

    def _hold_back(self, place: _Place, task: _Writes) -> None:
        self._held[place].append(task)
        if place not in self._timers:
            loop = asyncio.get_running_loop()
            self._timers[place] = loop.call_later(_FLUSH_AFTER_SECONDS, self._flush_late, place)

    def _pop_held(self, place: _Place) -> list[_Writes]:
        if timer := self._timers.pop(place, None):
            timer.cancel()
        return self._held.pop(place, [])

    async def _take_held(self, place: _Place) -> list[_Writes]:
        """What is held back here, once a late save that is under way has succeeded; its error is raised here."""
        held = self._pop_held(place)
        if task := self._flushing.pop(place, None):
            await task
        return held

    def _flush_late(self, place: _Place) -> None:
        tasks = self._pop_held(place)
        save = self._save_writes(place.thread, place.namespace, place.checkpoint, place.epoch, tasks)
        former = self._flushing.get(place)

        async def in_order() -> None:
            if former is not None:
                await former
            await save

        self._flushing[place] = asyncio.create_task(in_order())

    async def finish(self, thread: str, epoch: int) -> None:
        """End an attempt's buffer: what is still held back is saved while the attempt still holds the run."""
        for place in [
            place for place in (*self._held, *self._flushing) if (place.thread, place.epoch) == (thread, epoch)
        ]:
            if tasks := await self._take_held(place):
                await self._save_writes(place.thread, place.namespace, place.checkpoint, epoch, tasks)

    # -- rows -----------------------------------------------------------------------------------------------------

    def _split(self, checkpoint: Checkpoint, new_versions: ChannelVersions) -> tuple[dict[str, Any], dict[str, Any]]:
        """The checkpoint as its JSON column takes it, and the changed values that need a row of their own."""
        inline, blobs = {}, {}
        for name, value in checkpoint["channel_values"].items():
            if isinstance(value, _DeltaSnapshot):
                inline[name] = True
            if _fits_json(value):
                inline[name] = value
            elif name in new_versions:
                blobs[name] = value
        return {**checkpoint, "channel_values": inline}, blobs

    def _write_rows(self, tasks: Iterable[_Writes], *, into: Checkpoint | None = None) -> list[tuple[Any, ...]]:
        """`into` is the checkpoint that already holds what these writes came to; they then take fewer rows."""
        rows: dict[tuple[str, int], tuple[Any, ...]] = {}
        for task in tasks:
            for index, row in enumerate(grouped(task.writes, into) if into else [[write] for write in task.writes]):
                place = WRITES_IDX_MAP.get(row[0][0], index)
                if place < 0 or (task.task_id, place) not in rows:  # as `save_writes` does with rows that are there
                    rows[task.task_id, place] = (task.task_id, task.task_path, place, row[0][0], *self._dump(row))
        return list(rows.values())

    def _load_writes(
        self, writes: list[tuple[bytes, bytes, bytes, bytes, bytes, bytes]] | None
    ) -> list[tuple[str, str, Any]]:
        rows = sorted(writes or [], key=lambda row: writes_sort_key(row[4].decode(), row[0].decode(), int(row[5])))
        return [
            (task.decode(), name, value)
            for task, channel, kind, data, *_ in rows
            for name, value in load(channel.decode(), kind.decode(), data, self.serde)
        ]

    def _dump(self, row: Sequence[tuple[str, Any]]) -> tuple[str, bytes]:
        try:
            return dump(row, self.serde)
        except Unserializable as error:
            if len(row) > 1:  # one of them; it is named
                for write in row:
                    self._dump([write])
            raise Unserializable(f"the state's field {row[0][0]} can't be saved: {error}; nothing was saved") from None

    def get_next_version(self, current: Any, channel: None) -> str:
        """Grows, is unique across forks, and is a third as long as the parent's: each step stores dozens."""
        number = int(str(current).split(".")[0], 16) + 1 if current is not None else 1
        return f"{number:08x}.{random.getrandbits(40):010x}"

    def _nodes(self, thread: str, parent: str | None, checkpoint: Checkpoint) -> list[str]:
        """Which nodes this superstep ran; a fanned-out task's path has no name, so its `Send` is remembered."""
        ran = self._ran.pop((thread, parent or ""), set())
        sent_at, sent_to = self._fanned.pop(thread, ("", set()))
        self._remember_sends(thread, checkpoint)
        return sorted(ran | sent_to if sent_at == parent else ran)

    def _remember_sends(self, thread: str, checkpoint: Checkpoint) -> None:
        if sends := checkpoint["channel_values"].get(TASKS):
            self._fanned[thread] = checkpoint["id"], {send.node for send in sends}

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """As the parent's, with less work for the database; see `state/delta_history.py`."""
        where, checkpoint = config["configurable"], get_checkpoint_id(config)
        if not channels or checkpoint is None:
            return await super().aget_delta_channel_history(config=config, channels=channels)
        place = Place(where["thread_id"], where.get("checkpoint_ns", ""), checkpoint)

        async def once() -> Mapping[str, DeltaChannelHistory]:
            async with (
                self._database.transaction() as connection,
                connection.cursor(binary=True, row_factory=tuple_row) as cursor,
            ):
                return await delta_history(cursor, place, channels, self.serde)

        return await patiently(once)

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        read = super().aget_tuple
        found = await patiently(lambda: read(config))
        if found is not None and EPOCH_KEY in config["configurable"]:
            self._remember_sends(config["configurable"]["thread_id"], found.checkpoint)
        return found

    # -- the rest of the contract ---------------------------------------------------------------------------------

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy every checkpoint, value and write under another thread id; the source stays as it is."""
        await self._runs.seize(target_thread_id)
        async with self._database.transaction() as connection:
            for table, columns in _COPIED.items():
                statement = (
                    f"INSERT INTO {table} (thread_id, {columns}) SELECT %s, {columns} FROM {table} "  # noqa: S608
                    "WHERE thread_id = %s ON CONFLICT DO NOTHING"
                )
                await connection.execute(statement, (target_thread_id, source_thread_id))

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete the checkpoints, with their writes, that carry these (LangGraph server) run ids in their metadata."""
        async with self._database.transaction() as connection:
            await connection.execute(
                "WITH gone AS (DELETE FROM checkpoints WHERE metadata ->> 'run_id' = ANY(%s) "
                "RETURNING thread_id, checkpoint_ns, checkpoint_id) "
                "DELETE FROM checkpoint_writes w USING gone WHERE w.thread_id = gone.thread_id "
                "AND w.checkpoint_ns = gone.checkpoint_ns AND w.checkpoint_id = gone.checkpoint_id",
                (list(run_ids),),
            )

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """As the parent's, which opens a transaction inside the one that its cursor is in here already."""
        if strategy != "keep_latest" or isinstance(thread_ids, str):
            await super().aprune(thread_ids, strategy=strategy)
            return
        async with self._cursor() as cursor:
            await _aexecute(cursor, _refuse_delta_threads([str(thread) for thread in thread_ids]))
        for thread in thread_ids:
            async with (
                self._database.transaction(opening=self._database.search_path) as connection,
                connection.cursor(binary=True, row_factory=dict_row) as cursor,
            ):
                await _aexecute(cursor, _keep_latest(str(thread)))

    @asynccontextmanager
    async def _cursor(self, *, pipeline: bool = False) -> AsyncIterator[AsyncCursor[DictRow]]:
        """The parent's door to the database, for all that it reads and deletes: a transaction in our schema."""
        async with (
            self._database.transaction() as connection,
            connection.cursor(binary=True, row_factory=dict_row) as cursor,
        ):
            yield cursor


_COPIED: Mapping[str, str] = {
    "checkpoints": "checkpoint_ns, checkpoint_id, parent_checkpoint_id, type, checkpoint, metadata",
    "checkpoint_blobs": "checkpoint_ns, channel, version, type, blob",
    "checkpoint_writes": "checkpoint_ns, checkpoint_id, task_id, idx, channel, type, blob, task_path",
}


_RECORD_STEP = "record_step(%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)"
_HOLD_RUN = "hold_run(%s, %s)"
_WRITES = "%s::text[], %s::text[], %s::int[], %s::text[], %s::text[], %b::bytea[]"
_CHANGED = "%s::text[], %s::text[], %s::text[], %b::bytea[]"
_SAVE_WRITES = f"save_writes(%s, %s, %s, {_WRITES})"
_SAVE_CHECKPOINT = f"save_checkpoint(%s, %s, %s, %s, %s, %s, {_WRITES}, {_CHANGED})"


def _fence(thread: str, epoch: int | None) -> list[SqlCall]:
    """The fence, where there is an attempt to be held to it."""
    return [SqlCall(_HOLD_RUN, (thread, epoch))] if epoch is not None else []


def _columns(rows: Sequence[tuple[Any, ...]], width: int) -> list[list[Any] | None]:
    """What the columns of these rows hold, for `unnest`; None each where there is no row."""
    return [[row[place] for row in rows] or None for place in range(width)]


def _fits_json(value: Any) -> bool:
    """Whether PostgreSQL's jsonb gives this primitive back as it was (no NUL, no surrogate, no NaN)."""
    if value is None or type(value) in (bool, int):
        return True
    if type(value) is float:
        return math.isfinite(value)
    return type(value) is str and len(value) < 256 and "\0" not in value and value.isprintable()


def _step_facts(
    checkpoint: Checkpoint, metadata: CheckpointMetadata, nodes: Sequence[str], *, inside: bool
) -> tuple[str, Sequence[str], str, str | None, str | None, float, int]:
    values = checkpoint["channel_values"]
    standing = standing_of(values.get("status"), values.get("reason"))
    if standing.status == "running" and not inside:  # an edited run is nobody's until somebody goes on with it
        standing = Standing("queued", "released")
    snapshot = values.get("snapshot")
    return (
        metadata.get("source", "loop"),
        nodes,
        standing.status,
        standing.reason,
        snapshot if isinstance(snapshot, str) else None,
        float(values.get("cost_usd") or 0),
        int(values.get("tokens") or 0),
    )
