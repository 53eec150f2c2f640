"""The ledger: an effect's intent before it is performed, its receipt as soon as it has been."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, NamedTuple, Protocol

import psycopg
from pydantic import BaseModel, ConfigDict, JsonValue

from state.codec import CompactSerializer
from state.database import Database, SqlCall
from state.errors import DevfixError, EffectRefused, Fenced
from state.patience import patient, patiently
from state.runs import FENCED_SQLSTATE

EffectState = Literal["claimed", "settled", "unknown", "absent"]
"""claimed: begun; settled: it has happened; unknown: a person has to find out; absent: it was tried and has not
happened, as far as the other side knows."""
Receipt = dict[str, JsonValue]

_CODEC = CompactSerializer()


class Intent(NamedTuple):
    """What is about to be done."""

    run_id: str
    call_id: str
    tool: str
    digest: str
    """Of the tool with its exact arguments."""
    arguments: Mapping[str, JsonValue]
    key: str
    """The idempotency key."""
    again: bool = False
    """A person said that the same effect shall happen once more."""


class Effect(BaseModel):
    """A row of the ledger."""

    model_config = ConfigDict(frozen=True)

    run_id: str
    call_id: str
    tool: str
    digest: str
    key: str
    epoch: int
    state: EffectState
    receipt: Receipt | None
    claimed_at: datetime
    settled_at: datetime | None

    @property
    def at(self) -> datetime:
        return self.settled_at or self.claimed_at


class Ledger(Protocol):
    """What every ledger promises."""

    async def claim(self, intent: Intent, *, epoch: int) -> Effect | None:
        """Record the intent: None where nobody has begun. Else what became of an earlier one, and nothing is recorded:
        the same call's, or an equal effect's of this run or of one that it branched from.

        Raises Fenced when the attempt does not hold the run, EffectRefused for a known call with other arguments and
        for a row that can't be read.
        """

    async def alike(self, intent: Intent) -> Effect | None:
        """What `claim` would find, without claiming."""

    async def settle(self, run_id: str, call_id: str, receipt: Receipt, *, epoch: int) -> Effect:
        """Store the receipt. Raises Fenced."""

    async def doubt(self, run_id: str, call_id: str, *, epoch: int) -> Effect:
        """Nobody can know whether it happened: `unknown` until a person decides."""

    async def missed(self, run_id: str, call_id: str, *, epoch: int) -> Effect:
        """It failed, and the other side knows nothing of it: `absent`, until it is tried again."""

    async def retake(self, run_id: str, call_id: str, *, epoch: int) -> Effect:
        """This attempt performs what another claimed, or tries again: from here on the row is its own."""

    async def release(self, run_id: str, call_id: str, *, epoch: int) -> None:
        """Take the intent back: the effect certainly did not happen and will not."""

    async def of(self, run_id: str) -> list[Effect]: ...


def matching(effect: Effect, intent: Intent) -> Effect:
    """Raises EffectRefused when a call's arguments are not those that were recorded for it."""
    if effect.call_id == intent.call_id and effect.digest != intent.digest:
        raise EffectRefused(
            f"the call {intent.call_id} ({intent.tool}) is in the ledger with other arguments; nothing was done"
        )
    return effect


class PostgresLedger:
    """The ledger in table `effects`; every claim and receipt is fenced by the run's epoch."""

    def __init__(self, *, database: Database) -> None:
        self._database = database

    async def claim(self, intent: Intent, *, epoch: int) -> Effect | None:
        arguments = _CODEC.dumps(dict(intent.arguments))
        call = SqlCall(
            "claim_effect(%s, %s, %s, %s, %s, %s, %s, %s)",
            (
                intent.run_id,
                epoch,
                intent.call_id,
                intent.tool,
                intent.digest,
                arguments,
                intent.key,
                intent.again,
            ),
        )
        rows = await self._rows(call)
        return matching(_effect(rows[0]), intent) if rows else None

    async def alike(self, intent: Intent) -> Effect | None:
        wanted = (intent.run_id, intent.call_id, intent.tool, intent.digest, intent.again)
        rows = await self._rows(SqlCall("known_effect(%s, %s, %s, %s, %s)", wanted))
        return _effect(rows[0]) if rows else None

    async def settle(self, run_id: str, call_id: str, receipt: Receipt, *, epoch: int) -> Effect:
        stored = _CODEC.dumps(receipt)
        return await self._change(run_id, call_id, epoch, ("claimed", "unknown", "absent"), "settled", stored)

    async def doubt(self, run_id: str, call_id: str, *, epoch: int) -> Effect:
        return await self._change(run_id, call_id, epoch, ("claimed",), "unknown")

    async def missed(self, run_id: str, call_id: str, *, epoch: int) -> Effect:
        return await self._change(run_id, call_id, epoch, ("claimed",), "absent")

    async def retake(self, run_id: str, call_id: str, *, epoch: int) -> Effect:
        return await self._change(run_id, call_id, epoch, ("claimed", "absent"), "claimed")

    async def _change(
        self,
        run_id: str,
        call_id: str,
        epoch: int,
        former: Sequence[EffectState],
        state: EffectState,
        receipt: bytes | None = None,
    ) -> Effect:
        given = (run_id, epoch, call_id, list(former), state, receipt)
        rows = await self._rows(SqlCall("change_effect(%s, %s, %s, %s, %s, %s)", given))
        return _effect(rows[0] if rows else None)

    async def release(self, run_id: str, call_id: str, *, epoch: int) -> None:
        await self._rows(SqlCall("release_effect(%s, %s, %s)", (run_id, epoch, call_id)))

    @patient
    async def of(self, run_id: str) -> list[Effect]:
        async with self._database.transaction() as connection:
            cursor = await connection.execute("SELECT * FROM effects WHERE run_id = %s ORDER BY claimed_at", (run_id,))
            return [_effect(row) for row in await cursor.fetchall()]

    async def _rows(self, call: SqlCall) -> list[dict[str, Any]]:
        try:
            return await patiently(lambda: self._database.rows(call))
        except psycopg.DatabaseError as error:
            if error.sqlstate != FENCED_SQLSTATE:
                raise
            raise Fenced("another attempt holds this run now; the effect was not begun here") from None


def _effect(row: Mapping[str, Any] | None) -> Effect:
    if row is None:
        raise EffectRefused("the effect is not in the ledger")
    try:
        receipt = None if row["receipt"] is None else _CODEC.loads(bytes(row["receipt"]), "its receipt")
        return Effect.model_validate({**row, "receipt": receipt})
    except (ValueError, DevfixError) as error:
        raise EffectRefused(
            f"the ledger's row of {row['tool']} ({row['call_id']}) can't be read by this version of DevFix: "
            f"{str(error).splitlines()[0]}; nothing was done"
        ) from None
