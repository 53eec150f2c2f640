"""Approvals: one row a gated call. The rows are the truth; the first answer wins and is used once."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Literal, Protocol

from pydantic import BaseModel, ConfigDict, JsonValue

from state.codec import CompactSerializer
from state.connection import Connection
from state.database import Database
from state.errors import AlreadyDecided, CallNotFound, Refused
from state.ids import short
from state.patience import patient
from state.queue import Queue

Verdict = Literal["approve", "edit", "reject", "respond"]
Kind = Literal["call", "escalation"]

_CODEC = CompactSerializer()
_TIME = "%Y-%m-%d %H:%M:%S %Z"
MOST_CHARACTERS = 8_000_000
"""Of an answer; as much as of a model's."""


def digest_of(tool: str, arguments: Mapping[str, Any]) -> str:
    """What an approval and an effect are bound to: the tool with its exact arguments."""
    text = json.dumps([tool, arguments], sort_keys=True, ensure_ascii=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


class Question(BaseModel):
    """One thing that a person is asked."""

    model_config = ConfigDict(frozen=True)

    call_id: str
    kind: Kind = "call"
    tool: str
    arguments: dict[str, JsonValue]
    """What the model asked for."""
    bound: dict[str, JsonValue] = {}
    """What DevFix fixed besides: exactly what will be done."""
    allowed: tuple[Verdict, ...] = ("approve", "edit", "reject", "respond")

    @property
    def digest(self) -> str:
        return digest_of(self.tool, {**self.arguments, "bound": self.bound})


class Decision(BaseModel):
    """A person's answer."""

    model_config = ConfigDict(frozen=True)

    type: Verdict
    message: str | None = None
    """Why it was rejected, or what the person answers in place of the tool."""
    arguments: dict[str, JsonValue] | None = None
    """The edited arguments."""
    again: bool = False
    """With approve or edit: do it once more, although an equal effect has happened (its receipt is given else)."""


class Approval(BaseModel):
    """A question with its answer, if there is one."""

    model_config = ConfigDict(frozen=True)

    run_id: str
    question: Question
    position: int
    asked_at: datetime
    expires_at: datetime | None
    """None: it waits for as long as it takes."""
    decision: Decision | None = None
    decided_by: str | None = None
    decided_at: datetime | None = None

    @property
    def granted(self) -> dict[str, JsonValue] | None:
        """The arguments with which the call may be made, those that the person saw or wrote; None where it may not."""
        if self.decision is None or self.decision.type in {"reject", "respond"}:
            return None
        return self.question.arguments if self.decision.type == "approve" else self.decision.arguments

    def covers(self, arguments: Mapping[str, Any], bound: Mapping[str, Any], *, again: bool) -> bool:
        """Whether just this was granted: neither other arguments, nor anything else bound to them."""
        if self.decision is None or self.granted is None:
            return False
        granted = digest_of(self.question.tool, {**self.granted, "bound": self.question.bound})
        same = digest_of(self.question.tool, {**arguments, "bound": dict(bound)}) == granted
        return same and (self.decision.again or not again)

    def expired(self, now: datetime) -> bool:
        return self.decision is None and self.expires_at is not None and now >= self.expires_at


class Approvals(Protocol):
    """What every approval store promises."""

    async def ask(self, run_id: str, questions: Sequence[Question], *, ttl_seconds: float | None) -> list[Approval]:
        """Put the questions, once each, and give back their rows in the same order, answered ones too.

        They expire after `ttl_seconds`, with None never. Raises Refused when a call id is known with other arguments.
        """

    async def decide(self, run_id: str, call_id: str, decision: Decision, *, by: str, wake: bool = False) -> Approval:
        """Record the answer. Raises CallNotFound, AlreadyDecided (who, what, when), Refused (not allowed, late).

        `wake`: a worker goes on with the run when nothing that it waits for is open any more.
        """

    async def of(self, run_id: str) -> list[Approval]:
        """All of a run's questions, oldest first."""

    async def answered(self, run_id: str) -> bool:
        """Whether all that the run was asked last has an answer, or has expired."""


def known_or_refused(row: Approval, question: Question) -> Approval:
    """Raises Refused where a call id comes back with other arguments than the person was shown."""
    if row.question.digest != question.digest:
        raise Refused(
            f"the call {question.call_id} was put to a person with other arguments; its answer does not cover these"
        )
    return row


def answerable(row: Approval | None, run_id: str, call_id: str, decision: Decision, now: datetime) -> Approval:
    """The row, if this answer may be given to it now."""
    if row is None:
        raise CallNotFound(
            f"run {short(run_id)} has no pending approval {call_id}; "
            f"`devfix show {short(run_id)}` lists what it waits for"
        )
    if row.decision is not None:
        raise AlreadyDecided(
            f"{row.decided_by} already decided {call_id}: {row.decision.type}, at {row.decided_at:{_TIME}}; "
            "nothing was changed"
        )
    if row.expired(now):
        raise AlreadyDecided(f"the approval {call_id} expired at {row.expires_at:{_TIME}}; nothing was changed")
    if decision.type not in row.question.allowed:
        raise Refused(f"{decision.type} is not an answer to {call_id}; it takes {', '.join(row.question.allowed)}")
    if decision.type == "edit" and decision.arguments is None:
        raise Refused(f"an edit of {call_id} needs the edited arguments")
    _refuse_too_long(decision)
    return row


def _refuse_too_long(decision: Decision) -> None:
    given = {"the answer's message": decision.message or ""}
    for name, value in (decision.arguments or {}).items():
        given[f"the edited argument {name[:64]}"] = value if isinstance(value, str) else json.dumps(value)
    for what, text in given.items():
        if len(text) > MOST_CHARACTERS:
            raise Refused(f"{what} has {len(text)} characters, and {MOST_CHARACTERS} are the most; nothing was decided")


class PostgresApprovals:
    """Approvals in table `approvals`."""

    def __init__(self, *, database: Database, queue: Queue) -> None:
        self._database = database
        self._queue = queue

    @patient
    async def ask(self, run_id: str, questions: Sequence[Question], *, ttl_seconds: float | None) -> list[Approval]:
        async with self._database.transaction() as connection:
            for position, question in enumerate(questions):
                await connection.execute(
                    "INSERT INTO approvals (run_id, call_id, kind, position, tool, arguments, bound, digest, allowed, "
                    "expires_at) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, "
                    "clock_timestamp() + make_interval(secs => %s::float8)) "
                    "ON CONFLICT (run_id, call_id) DO NOTHING",
                    (
                        run_id,
                        question.call_id,
                        question.kind,
                        position,
                        question.tool,
                        _CODEC.dumps(question.arguments),
                        _CODEC.dumps(question.bound),
                        question.digest,
                        list(question.allowed),
                        ttl_seconds,
                    ),
                )
            awaited = [question.call_id for question in questions]
            await connection.execute(
                "UPDATE approvals SET awaited = NOT awaited WHERE run_id = %s AND awaited <> (call_id = ANY(%s))",
                (run_id, awaited),
            )
        rows = {row.question.call_id: row for row in await self.of(run_id)}
        return [known_or_refused(rows[question.call_id], question) for question in questions]

    async def decide(self, run_id: str, call_id: str, decision: Decision, *, by: str, wake: bool = False) -> Approval:
        async with self._database.transaction() as connection:
            cursor = await connection.execute(
                "SELECT *, clock_timestamp() AS now FROM approvals WHERE run_id = %s AND call_id = %s FOR UPDATE",
                (run_id, call_id),
            )
            row = await cursor.fetchone()
            answerable(
                _approval(row) if row else None, run_id, call_id, decision, row["now"] if row else datetime.now(UTC)
            )
            cursor = await connection.execute(
                "UPDATE approvals SET decision = %s, content = %s, decided_by = %s, decided_at = clock_timestamp() "
                "WHERE run_id = %s AND call_id = %s AND decision IS NULL RETURNING *",
                (decision.type, _CODEC.dumps(decision.model_dump()), by, run_id, call_id),
            )
            decided = await cursor.fetchone()
            if wake and decided is not None:
                # Answers to two calls of a turn, given at once, must not each take the other for open.
                await connection.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", (run_id,))
                if await _nothing_open(connection, run_id):
                    await self._queue.enqueue(connection, run_id)
        if decided is None:  # the row is locked since it was read
            raise AlreadyDecided(f"somebody else decided {call_id} first; nothing was changed")
        return _approval(decided)

    @patient
    async def answered(self, run_id: str) -> bool:
        async with self._database.transaction() as connection:
            return await _nothing_open(connection, run_id)

    @patient
    async def of(self, run_id: str) -> list[Approval]:
        async with self._database.transaction() as connection:
            cursor = await connection.execute(
                "SELECT * FROM approvals WHERE run_id = %s ORDER BY asked_at, position", (run_id,)
            )
            return [_approval(row) for row in await cursor.fetchall()]


async def _nothing_open(connection: Connection, run_id: str) -> bool:
    cursor = await connection.execute("SELECT is_answered(%s) AS answered", (run_id,))
    row = await cursor.fetchone()
    return row is not None and bool(row["answered"])


def _approval(row: Mapping[str, Any]) -> Approval:
    def load(name: str) -> Any:
        of = f"{name} of the question {row['call_id']} of run {short(row['run_id'])}"
        return None if row[name] is None else _CODEC.loads(bytes(row[name]), of)

    content = load("content")
    question = Question(
        call_id=row["call_id"],
        kind=row["kind"],
        tool=row["tool"],
        arguments=load("arguments"),
        bound=load("bound"),
        allowed=tuple(row["allowed"]),
    )
    return Approval(
        run_id=row["run_id"],
        question=question,
        position=row["position"],
        asked_at=row["asked_at"],
        expires_at=row["expires_at"],
        decision=None if content is None else Decision.model_validate(content),
        decided_by=row["decided_by"],
        decided_at=row["decided_at"],
    )
