"""The ledger: an effect's intent before it is performed, its receipt as soon as it has been."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple, Protocol

import psycopg
from pydantic import BaseModel, ConfigDict, JsonValue

from state.codec import ExactSerializer
from state.database import Database
from state.errors import DevfixError, EffectRefused, Fenced
from state.patience import patient, patiently
from state.runs import FENCED_SQLSTATE

EffectState = Literal["claimed", "settled", "unknown", "absent"]
"""claimed: begun; settled: it has happened; unknown: a person has to find out; absent: it was tried and has not
happened, as far as the other side knows."""
Receipt = dict[str, JsonValue]

_CODEC = ExactSerializer()


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


class Claimed(NamedTuple):
    """What the ledger says to an intent."""

    effect: Effect
    fresh: bool
    """True: this claim made the row, so nobody has begun. False: the row was there, in the state that it says."""


class Ledger(Protocol):
    """What every ledger promises."""

    async def claim(self, intent: Intent, *, epoch: int) -> Claimed:
        """Record the intent, or find what became of an earlier one: the same call's, or an equal effect's of this run
        or of one that it branched from.

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

    async def claim(self, intent: Intent, *, epoch: int) -> Claimed:
        return await patiently(lambda: self._claim(intent, epoch))

    async def _claim(self, intent: Intent, epoch: int) -> Claimed:
        async with self._fenced(intent.run_id, epoch) as connection:
            if known := await _known(connection, intent):
                return Claimed(matching(known, intent), fresh=False)
            arguments = _CODEC.dumps_typed(dict(intent.arguments))[1]
            cursor = await connection.execute(
                "INSERT INTO effects (run_id, call_id, tool, digest, arguments, key, epoch, state) "
                "VALUES (%s, %s, %s, %s, %s, %s, %s, 'claimed') RETURNING *",
                (intent.run_id, intent.call_id, intent.tool, intent.digest, arguments, intent.key, epoch),
            )
            return Claimed(_effect(await cursor.fetchone()), fresh=True)

    @patient
    async def alike(self, intent: Intent) -> Effect | None:
        async with self._database.transaction() as connection:
            return await _known(connection, intent)

    async def settle(self, run_id: str, call_id: str, receipt: Receipt, *, epoch: int) -> Effect:
        return await self._change(
            run_id, call_id, epoch, "settled", _CODEC.dumps_typed(receipt)[1], "state <> 'settled'"
        )

    async def doubt(self, run_id: str, call_id: str, *, epoch: int) -> Effect:
        return await self._change(run_id, call_id, epoch, "unknown", None, "state = 'claimed'")

    async def missed(self, run_id: str, call_id: str, *, epoch: int) -> Effect:
        return await self._change(run_id, call_id, epoch, "absent", None, "state = 'claimed'")

    async def retake(self, run_id: str, call_id: str, *, epoch: int) -> Effect:
        return await self._change(run_id, call_id, epoch, "claimed", None, "state IN ('claimed', 'absent')")

    async def _change(
        self, run_id: str, call_id: str, epoch: int, state: EffectState, receipt: bytes | None, where: str
    ) -> Effect:
        async def once() -> Effect:
            async with self._fenced(run_id, epoch) as connection:
                await connection.execute(
                    "UPDATE effects SET state = %(state)s, receipt = %(receipt)s, epoch = %(epoch)s, "  # noqa: S608 - `where` is a constant
                    "settled_at = CASE WHEN %(state)s = 'claimed' THEN NULL ELSE clock_timestamp() END "
                    f"WHERE run_id = %(run)s AND call_id = %(call)s AND {where}",
                    {"state": state, "receipt": receipt, "epoch": epoch, "run": run_id, "call": call_id},
                )
                cursor = await connection.execute(
                    "SELECT * FROM effects WHERE run_id = %s AND call_id = %s", (run_id, call_id)
                )
                return _effect(await cursor.fetchone())

        return await patiently(once)

    async def release(self, run_id: str, call_id: str, *, epoch: int) -> None:
        async def once() -> None:
            async with self._fenced(run_id, epoch) as connection:
                await connection.execute(
                    "DELETE FROM effects WHERE run_id = %s AND call_id = %s AND state = 'claimed'", (run_id, call_id)
                )

        await patiently(once)

    @patient
    async def of(self, run_id: str) -> list[Effect]:
        async with self._database.transaction() as connection:
            cursor = await connection.execute("SELECT * FROM effects WHERE run_id = %s ORDER BY claimed_at", (run_id,))
            return [_effect(row) for row in await cursor.fetchall()]

    def _fenced(self, run_id: str, epoch: int) -> _Fenced:
        return _Fenced(self._database, run_id, epoch)


async def _known(connection: Any, intent: Intent) -> Effect | None:
    """The call's own row, else that of an equal effect, one that is settled before others."""
    cursor = await connection.execute(
        "WITH RECURSIVE line (run_id, parent) AS (SELECT run_id, parent FROM runs WHERE run_id = %(run)s UNION "
        "SELECT r.run_id, r.parent FROM runs r JOIN line ON r.run_id = line.parent) "
        "SELECT e.* FROM effects e JOIN line USING (run_id) WHERE (e.run_id = %(run)s AND e.call_id = %(call)s) "
        "OR (e.tool = %(tool)s AND e.digest = %(digest)s AND NOT %(again)s) "
        "ORDER BY (e.run_id = %(run)s AND e.call_id = %(call)s) DESC, e.state = 'settled' DESC, e.claimed_at LIMIT 1",
        {
            "run": intent.run_id,
            "call": intent.call_id,
            "tool": intent.tool,
            "digest": intent.digest,
            "again": intent.again,
        },
    )
    row = await cursor.fetchone()
    return _effect(row) if row else None


class _Fenced:
    """A transaction that only the run's present attempt gets."""

    def __init__(self, database: Database, run_id: str, epoch: int) -> None:
        self._transaction = database.transaction()
        self._run_id = run_id
        self._epoch = epoch

    async def __aenter__(self) -> Any:
        connection = await self._transaction.__aenter__()
        try:
            await connection.execute("SELECT hold_run(%s, %s)", (self._run_id, self._epoch))
        except psycopg.DatabaseError as error:
            await self._transaction.__aexit__(type(error), error, error.__traceback__)
            if error.sqlstate != FENCED_SQLSTATE:
                raise
            raise Fenced("another attempt holds this run now; the effect was not begun here") from None
        return connection

    async def __aexit__(self, *exception: Any) -> bool | None:
        return await self._transaction.__aexit__(*exception)


def _effect(row: Mapping[str, Any] | None) -> Effect:
    if row is None:
        raise EffectRefused("the effect is not in the ledger")
    try:
        receipt = None if row["receipt"] is None else _CODEC.loads_typed(("devfix", bytes(row["receipt"])))
        return Effect.model_validate({**row, "receipt": receipt})
    except (ValueError, DevfixError) as error:
        raise EffectRefused(
            f"the ledger's row of {row['tool']} ({row['call_id']}) can't be read by this version of DevFix: "
            f"{str(error).splitlines()[0]}; nothing was done"
        ) from None


class MemoryLedger:
    """The same promise in one process's memory; `epochs` holds each run's present attempt, `parents` what each run
    branched from."""

    def __init__(self) -> None:
        self.epochs: dict[str, int] = {}
        self.parents: dict[str, str] = {}
        self._rows: dict[tuple[str, str], Effect] = {}

    async def claim(self, intent: Intent, *, epoch: int) -> Claimed:
        self._hold(intent.run_id, epoch)
        if known := self._rows.get((intent.run_id, intent.call_id)) or self._alike(intent):
            return Claimed(matching(known, intent), fresh=False)
        effect = Effect(
            run_id=intent.run_id,
            call_id=intent.call_id,
            tool=intent.tool,
            digest=intent.digest,
            key=intent.key,
            epoch=epoch,
            state="claimed",
            receipt=None,
            claimed_at=datetime.now(UTC),
            settled_at=None,
        )
        self._rows[intent.run_id, intent.call_id] = effect
        return Claimed(effect, fresh=True)

    def _alike(self, intent: Intent) -> Effect | None:
        line = [intent.run_id]
        while (parent := self.parents.get(line[-1])) is not None:
            line.append(parent)
        wanted = (intent.tool, intent.digest)
        alike = [row for row in self._rows.values() if row.run_id in line and (row.tool, row.digest) == wanted]
        return min(alike, key=lambda row: row.state != "settled") if alike and not intent.again else None

    async def alike(self, intent: Intent) -> Effect | None:
        return self._rows.get((intent.run_id, intent.call_id)) or self._alike(intent)

    async def settle(self, run_id: str, call_id: str, receipt: Receipt, *, epoch: int) -> Effect:
        self._hold(run_id, epoch)
        if self._rows[run_id, call_id].state == "settled":
            return self._rows[run_id, call_id]
        return self._change(run_id, call_id, state="settled", receipt=receipt, epoch=epoch)

    async def doubt(self, run_id: str, call_id: str, *, epoch: int) -> Effect:
        self._hold(run_id, epoch)
        if self._rows[run_id, call_id].state != "claimed":
            return self._rows[run_id, call_id]
        return self._change(run_id, call_id, state="unknown", epoch=epoch)

    async def missed(self, run_id: str, call_id: str, *, epoch: int) -> Effect:
        self._hold(run_id, epoch)
        if self._rows[run_id, call_id].state != "claimed":
            return self._rows[run_id, call_id]
        return self._change(run_id, call_id, state="absent", epoch=epoch)

    async def retake(self, run_id: str, call_id: str, *, epoch: int) -> Effect:
        self._hold(run_id, epoch)
        if self._rows[run_id, call_id].state not in {"claimed", "absent"}:
            return self._rows[run_id, call_id]
        return self._change(run_id, call_id, state="claimed", epoch=epoch)

    async def release(self, run_id: str, call_id: str, *, epoch: int) -> None:
        self._hold(run_id, epoch)
        if (effect := self._rows.get((run_id, call_id))) and effect.state == "claimed":
            del self._rows[run_id, call_id]

    async def of(self, run_id: str) -> list[Effect]:
        return [row for row in self._rows.values() if row.run_id == run_id]

    def _hold(self, run_id: str, epoch: int) -> None:
        if self.epochs.get(run_id, epoch) != epoch:
            raise Fenced("another attempt holds this run now; the effect was not begun here")

    def _change(self, run_id: str, call_id: str, **fields: object) -> Effect:
        at = None if fields["state"] == "claimed" else datetime.now(UTC)
        changed = self._rows[run_id, call_id].model_copy(update={**fields, "settled_at": at})
        self._rows[run_id, call_id] = changed
        return changed
