"""The outbox: what DevFix itself tells people of a run, from the run's settlement to the receipt.

A letter is put in the transaction that settles the run, so there is one whenever the run stands so, and none else. It
is sent like any effect, through `tools.execution`, with the outbox as the ledger: the row is the intent, a sender takes
it under a new epoch, and a sender that was overtaken is fenced. It is not the run's own ledger, because the run goes on
meanwhile, and an answered question must not turn a message that was sent into one of unknown outcome.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, JsonValue

from state.codec import CompactSerializer
from state.connection import Connection
from state.database import Database
from state.errors import Fenced, Unserializable
from state.holder import Holder, is_gone, this_process
from state.ids import short
from state.ledger import Effect, EffectState, Intent, Receipt
from state.patience import patient
from state.runs import Former

LetterState = Literal["due", "sending", "settled", "unknown", "given_up", "stale"]
"""given_up: it could not be sent for a day. stale: what it tells was over before it could be told."""

FIRST_PAUSE_SECONDS = 5.0
LONGEST_PAUSE_SECONDS = 900.0
LAST_TRY_SECONDS = 24 * 3600.0

_CODEC = CompactSerializer()
_sending: set[str] = set()
"""Keys of the letters that this process is at. A row names its sender by the process, so this is the process's too."""


class Notice(NamedTuple):
    """One message to put, told by one tool."""

    run_id: str
    call_id: str
    """The same for the same event and the same channel, so that it is put once."""
    standing: str
    step: int
    tool: str
    arguments: Mapping[str, JsonValue]
    key: str


class Letter(BaseModel):
    """A row of the outbox."""

    model_config = ConfigDict(frozen=True)

    run_id: str
    call_id: str
    standing: str
    step: int
    tool: str
    arguments: dict[str, JsonValue]
    key: str
    state: LetterState
    epoch: int
    tries: int
    missed: bool
    """A try failed and the other side knew nothing of it; it is asked once more before the next."""
    trouble: str | None
    receipt: Receipt | None
    put_at: datetime
    claimed_at: datetime | None
    settled_at: datetime | None

    @property
    def at(self) -> datetime:
        return self.settled_at or self.claimed_at or self.put_at


class Taken(NamedTuple):
    """A letter that this process sends now."""

    letter: Letter
    former: Former | None
    """Who had begun to send it and went away, and under the epoch before; None for one that is certainly not sent."""


class Outbox:
    """Letters in table `outbox`."""

    def __init__(self, *, database: Database) -> None:
        self._database = database

    async def put(self, connection: Connection, notices: Sequence[Notice]) -> None:
        """In the caller's transaction. One that was put before is left as it is."""
        for notice in notices:
            await connection.execute(
                "INSERT INTO outbox (run_id, call_id, standing, step, tool, arguments, key) "
                "VALUES (%s, %s, %s, %s, %s, %s, %s) ON CONFLICT DO NOTHING",
                (
                    notice.run_id,
                    notice.call_id,
                    notice.standing,
                    notice.step,
                    notice.tool,
                    _CODEC.dumps(dict(notice.arguments)),
                    notice.key,
                ),
            )

    @patient
    async def take(self, label: str, tools: Collection[str], *, lease_seconds: float) -> Taken | None:
        """A letter for one of these tools that is due, or whose sender is gone; None where there is none.

        Nobody else gets it. A sender that has been at it for `lease_seconds`, longer than any sending takes, is gone or
        frozen. One that can't be read is given up, with the reason, and keeps no other from being sent.
        """
        async with self._database.transaction() as connection:
            while rows := await self._open(connection, list(tools), lease_seconds):
                row = next((row for row in rows if row["state"] == "due" or self._is_abandoned(row)), None)
                if row is None:
                    return None
                cursor = await connection.execute(
                    "UPDATE outbox SET state = 'sending', epoch = epoch + 1, holder = %s, "
                    "claimed_at = clock_timestamp() WHERE run_id = %s AND call_id = %s RETURNING *",
                    (this_process(label).model_dump_json(), row["run_id"], row["call_id"]),
                )
                try:
                    taken = _letter(await cursor.fetchone())
                except Unserializable as error:
                    await connection.execute(
                        "UPDATE outbox SET state = 'given_up', trouble = %s, settled_at = clock_timestamp() "
                        "WHERE run_id = %s AND call_id = %s",
                        (str(error), row["run_id"], row["call_id"]),
                    )
                    continue
                _sending.add(taken.key)
                former = Holder.model_validate(row["holder"]) if row["state"] == "sending" else None
                return Taken(taken, Former(former, ended=self._is_ours(former)) if former else None)
        return None

    async def _open(self, connection: Connection, tools: list[str], lease: float) -> list[Mapping[str, Any]]:
        cursor = await connection.execute(
            "SELECT *, false AS overdue FROM outbox WHERE state = 'due' AND due_at <= clock_timestamp() "
            "AND tool = ANY(%s) ORDER BY due_at LIMIT 1 FOR UPDATE SKIP LOCKED",
            (tools,),
        )
        if due := await cursor.fetchall():
            return list(due)
        cursor = await connection.execute(
            "SELECT *, claimed_at < clock_timestamp() - make_interval(secs => %s) AS overdue FROM outbox "
            "WHERE state = 'sending' AND tool = ANY(%s) ORDER BY claimed_at LIMIT 100 FOR UPDATE SKIP LOCKED",
            (lease, tools),
        )
        return list(await cursor.fetchall())

    def _is_abandoned(self, row: Mapping[str, Any]) -> bool:
        former = Holder.model_validate(row["holder"])
        if self._is_ours(former):
            return row["key"] not in _sending
        return bool(is_gone(former)) or row["overdue"]

    @staticmethod
    def _is_ours(former: Holder) -> bool:
        mine = this_process()
        return (former.host, former.boot, former.pid, former.started) == (mine.host, mine.boot, mine.pid, mine.started)

    @staticmethod
    def let_go(letter: Letter) -> None:
        """This process is not at it any more, whatever came of it."""
        _sending.discard(letter.key)

    @patient
    async def settle(self, letter: Letter, receipt: Receipt) -> None:
        await self._change(letter, "state = 'settled', receipt = %s", _CODEC.dumps(receipt))

    @patient
    async def doubt(self, letter: Letter) -> None:
        """Nobody can know whether it arrived: it is not sent again by itself."""
        await self._change(letter, "state = 'unknown'")

    @patient
    async def drop(self, letter: Letter) -> None:
        """What it tells is over."""
        await self._change(letter, "state = 'stale'")

    @patient
    async def give_back(self, letter: Letter, *, missed: bool = False) -> None:
        """It was not sent: due again after a pause that grows, and given up after a day. `missed`: as far as the other
        side knew."""
        pause = min(FIRST_PAUSE_SECONDS * 2**letter.tries, LONGEST_PAUSE_SECONDS)
        await self._change(
            letter,
            "tries = tries + 1, missed = missed OR %s, due_at = clock_timestamp() + make_interval(secs => %s), "
            "state = CASE WHEN put_at < clock_timestamp() - make_interval(secs => %s) THEN 'given_up' ELSE 'due' END",
            missed,
            pause,
            LAST_TRY_SECONDS,
        )

    @patient
    async def explain(self, letter: Letter, trouble: str) -> None:
        """Why it was not sent, or why nobody knows."""
        async with self._database.transaction() as connection:
            await connection.execute(
                "UPDATE outbox SET trouble = %s WHERE run_id = %s AND call_id = %s AND epoch = %s",
                (trouble, letter.run_id, letter.call_id, letter.epoch),
            )

    async def _change(self, letter: Letter, what: str, *values: Any) -> None:
        """Raises Fenced where another sender has taken the letter over."""
        async with self._database.transaction() as connection:
            cursor = await connection.execute(
                f"UPDATE outbox SET {what}, settled_at = clock_timestamp() "  # noqa: S608 - constants of this module
                "WHERE run_id = %s AND call_id = %s AND epoch = %s AND state = 'sending'",
                (*values, letter.run_id, letter.call_id, letter.epoch),
            )
            if cursor.rowcount:
                return
            cursor = await connection.execute(
                "SELECT epoch FROM outbox WHERE run_id = %s AND call_id = %s", (letter.run_id, letter.call_id)
            )
            row = await cursor.fetchone()
        if row is None or row["epoch"] != letter.epoch:
            raise Fenced(f"another process sends {letter.call_id} of run {short(letter.run_id)}; nothing was changed")

    async def of(self, run_id: str) -> list[Letter]:
        """A run's letters, oldest first."""
        async with self._database.transaction() as connection:
            cursor = await connection.execute(
                "SELECT * FROM outbox WHERE run_id = %s ORDER BY put_at, call_id", (run_id,)
            )
            return [_shown(row) for row in await cursor.fetchall()]

    async def troubled(self) -> list[Letter]:
        """What was not sent as it should: tried and still due, given up, or of unknown outcome."""
        async with self._database.transaction() as connection:
            cursor = await connection.execute(
                "SELECT * FROM outbox WHERE state IN ('unknown', 'given_up') OR (state = 'due' AND tries > 0) "
                "ORDER BY put_at DESC LIMIT 20"
            )
            return [_shown(row) for row in await cursor.fetchall()]


class LetterLedger:
    """The ledger of one letter, and the register of who sent it: what `tools.execution` needs of either."""

    def __init__(self, outbox: Outbox, taken: Taken) -> None:
        self._outbox = outbox
        self._letter, self._former = taken

    async def claim(self, intent: Intent, *, epoch: int) -> Effect | None:
        if self._former is None and self._letter.missed:
            return self._effect("absent", None)
        return self._effect("claimed", None) if self._former else None

    async def alike(self, intent: Intent) -> Effect | None:
        return None

    async def settle(self, run_id: str, call_id: str, receipt: Receipt, *, epoch: int) -> Effect:
        await self._outbox.settle(self._letter, receipt)
        return self._effect("settled", receipt)

    async def doubt(self, run_id: str, call_id: str, *, epoch: int) -> Effect:
        await self._outbox.doubt(self._letter)
        return self._effect("unknown", None)

    async def missed(self, run_id: str, call_id: str, *, epoch: int) -> Effect:
        await self._outbox.give_back(self._letter, missed=True)
        return self._effect("absent", None)

    async def retake(self, run_id: str, call_id: str, *, epoch: int) -> Effect:
        """The letter was taken under an epoch of its own already."""
        return self._effect("claimed", None)

    async def release(self, run_id: str, call_id: str, *, epoch: int) -> None:
        await self._outbox.give_back(self._letter)

    async def of(self, run_id: str) -> list[Effect]:
        return []

    async def attempt(self, run_id: str, epoch: int) -> Former:
        """Who began to send it."""
        return self._former or Former(this_process(), ended=True)

    def _effect(self, state: EffectState, receipt: Receipt | None) -> Effect:
        letter = self._letter
        return Effect(
            run_id=letter.run_id,
            call_id=letter.call_id,
            tool=letter.tool,
            digest="",
            key=letter.key,
            epoch=letter.epoch - 1,
            state=state,
            receipt=receipt,
            claimed_at=letter.at,
            settled_at=None,
        )


def _letter(row: Mapping[str, Any] | None) -> Letter:
    assert row is not None  # noqa: S101 - of a row that is locked
    of = f"the message {row['call_id']} of run {short(row['run_id'])}"
    receipt = None if row["receipt"] is None else _CODEC.loads(bytes(row["receipt"]), of)
    arguments = _CODEC.loads(bytes(row["arguments"]), of)
    return Letter.model_validate({**row, "receipt": receipt, "arguments": arguments})


def _shown(row: Mapping[str, Any]) -> Letter:
    """For people: of one that can't be read, all but what it says."""
    try:
        return _letter(row)
    except Unserializable as error:
        return Letter.model_validate({**row, "receipt": None, "arguments": {}, "trouble": str(error)})
