"""The trace: each model and tool call, recorded before anything acts on what came of it. Append-only.

What came of a call is acted on once its step is saved, so the record travels in the statement that saves the step.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime
from typing import Any, Literal, Protocol

from pydantic import BaseModel, ConfigDict, JsonValue

from state.codec import CompactSerializer
from state.database import Database, SqlCall
from state.ids import short
from state.patience import patiently

CallKind = Literal["model", "tool"]

_CODEC = CompactSerializer()
_RECORD_CALL = f"record_call({', '.join(['%s'] * 14)})"


class Call(BaseModel):
    """One call of a model or a tool, with what came of it."""

    model_config = ConfigDict(frozen=True)

    run_id: str
    epoch: int
    step: int
    kind: CallKind
    name: str
    """The model that answered, or the tool."""
    call_id: str
    request: dict[str, JsonValue]
    """A model's history is not repeated here at each call: it is in the checkpoints; this names how much of it."""
    result: dict[str, JsonValue] | None
    error: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cost_usd: float | None = None
    """None where it is unknown, which is not zero."""
    started_at: datetime
    ended_at: datetime

    @property
    def seconds(self) -> float:
        return (self.ended_at - self.started_at).total_seconds()


class Trace(Protocol):
    """What every trace promises."""

    async def record(self, call: Call) -> None:
        """At once: a call that came to nothing, while its node goes on."""

    def record_with_step(self, call: Call) -> None:
        """With the next save of the call's attempt: both are there, or neither. Nothing can fail here."""

    def due(self, run_id: str, epoch: int) -> AbstractContextManager[Sequence[SqlCall]]:
        """What a save of this attempt, in the body, takes along; one that fails leaves it due."""

    async def finish(self, run_id: str, epoch: int) -> None:
        """What no save of the attempt took along is recorded by itself."""

    async def of(self, run_id: str) -> list[Call]:
        """A run's calls, oldest first."""


class PostgresTrace:
    """The trace in table `trace`."""

    def __init__(self, *, database: Database) -> None:
        self._database = database
        self._due: defaultdict[tuple[str, int], list[Call]] = defaultdict(list)

    async def record(self, call: Call) -> None:
        await patiently(lambda: self._database.call(_recording(call)))

    def record_with_step(self, call: Call) -> None:
        self._due[call.run_id, call.epoch].append(call)

    async def finish(self, run_id: str, epoch: int) -> None:
        if calls := self._due.pop((run_id, epoch), None):
            await self._database.call(*map(_recording, calls))

    @contextmanager
    def due(self, run_id: str, epoch: int) -> Iterator[Sequence[SqlCall]]:
        calls = self._due.pop((run_id, epoch), [])
        try:
            yield [_recording(call) for call in calls]
        except BaseException:
            self._due[run_id, epoch][:0] = calls
            raise

    async def of(self, run_id: str) -> list[Call]:
        async with self._database.transaction() as connection:
            cursor = await connection.execute("SELECT * FROM trace WHERE run_id = %s ORDER BY id", (run_id,))
            return [_call(row) for row in await cursor.fetchall()]


def _recording(call: Call) -> SqlCall:
    row = (
        call.run_id,
        call.epoch,
        call.step,
        call.kind,
        call.name,
        call.call_id,
        _dump(call.request),
        _dump(call.result),
        call.error,
        call.input_tokens,
        call.output_tokens,
        call.cost_usd,
        call.started_at,
        call.ended_at,
    )
    return SqlCall(_RECORD_CALL, row)


def _dump(value: Mapping[str, JsonValue] | None) -> bytes | None:
    return None if value is None else _CODEC.dumps(dict(value))


def _call(row: Mapping[str, Any]) -> Call:
    def load(name: str) -> Any:
        of = f"the {name} of call {row['call_id']} at step {row['step']} of run {short(row['run_id'])}"
        return None if row[name] is None else _CODEC.loads(bytes(row[name]), of)

    return Call.model_validate({**row, "request": load("request") or {}, "result": load("result")})
