"""The trace: each model and tool call, recorded before anything acts on what came of it. Append-only."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal, Protocol

from pydantic import BaseModel, ConfigDict, JsonValue

from state.codec import ExactSerializer
from state.database import Database
from state.patience import patiently

CallKind = Literal["model", "tool"]

_CODEC = ExactSerializer()
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

    async def record(self, call: Call) -> None: ...

    async def find(self, run_id: str, call_id: str) -> Call | None:
        """The last record of this call that has a result."""

    async def of(self, run_id: str) -> list[Call]:
        """A run's calls, oldest first."""


class PostgresTrace:
    """The trace in table `trace`."""

    def __init__(self, *, database: Database) -> None:
        self._database = database

    async def record(self, call: Call) -> None:
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

        await patiently(lambda: self._database.call((_RECORD_CALL, row)))

    async def find(self, run_id: str, call_id: str) -> Call | None:
        async with self._database.transaction() as connection:
            cursor = await connection.execute(
                "SELECT * FROM trace WHERE run_id = %s AND call_id = %s AND result IS NOT NULL "
                "ORDER BY id DESC LIMIT 1",
                (run_id, call_id),
            )
            row = await cursor.fetchone()
        return None if row is None else _call(row)

    async def of(self, run_id: str) -> list[Call]:
        async with self._database.transaction() as connection:
            cursor = await connection.execute("SELECT * FROM trace WHERE run_id = %s ORDER BY id", (run_id,))
            return [_call(row) for row in await cursor.fetchall()]


def _dump(value: Mapping[str, JsonValue] | None) -> bytes | None:
    return None if value is None else _CODEC.dumps_typed(dict(value))[1]


def _call(row: Mapping[str, Any]) -> Call:
    def load(name: str) -> Any:
        return None if row[name] is None else _CODEC.loads_typed(("devfix", bytes(row[name])))

    return Call.model_validate({**row, "request": load("request") or {}, "result": load("result")})


class MemoryTrace:
    """The same promise in one process's memory."""

    def __init__(self) -> None:
        self.calls: list[Call] = []

    async def record(self, call: Call) -> None:
        self.calls.append(call)

    async def find(self, run_id: str, call_id: str) -> Call | None:
        found = [call for call in self.calls if (call.run_id, call.call_id) == (run_id, call_id) and call.result]
        return found[-1] if found else None

    async def of(self, run_id: str) -> list[Call]:
        return [call for call in self.calls if call.run_id == run_id]
