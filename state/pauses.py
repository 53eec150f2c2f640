"""Pauses: models that nobody asks for a while, because one of their servers' answers was that it is too much.

Shared by all runs and workers. When a pause is over, one of those who waited asks first, on trial; the others go on
once it has been heard. So a server that says "later" to one run is not asked by ten.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from psycopg import sql

from state.database import Database
from state.patience import patient

LONGEST_SECONDS: Final = 300.0
"""A pause ends after so long, whatever a server says: the next one that asks is told again."""
TRIAL_SECONDS: Final = 10.0
"""Whoever asks on trial has so long to be heard, before the next one may."""
POLL_SECONDS: Final = 0.5


_TURN: Final = sql.SQL(
    "WITH trial AS (UPDATE {0} SET trial_until = clock_timestamp() + make_interval(secs => %s::float8) "
    "WHERE model = %s AND until <= clock_timestamp() "
    "AND (trial_until IS NULL OR trial_until <= clock_timestamp()) RETURNING model) "
    "SELECT extract(epoch FROM until - clock_timestamp())::float8 AS seconds, "
    "EXISTS (SELECT FROM trial) AS trial FROM {0} WHERE model = %s"
)


class Turn(NamedTuple):
    """Whether a model may be asked."""

    seconds: float
    """How long to wait before asking again for a turn; 0 where the model may be asked now."""
    trial: bool = False
    """The pause was over just now, and nobody else asks until this call was heard."""


class Pauses:
    """The pauses in table `pauses`."""

    def __init__(self, *, database: Database) -> None:
        self._database = database
        self._turn = _TURN.format(sql.Identifier(database.schema, "pauses")).as_bytes()

    @patient
    async def turn(self, model: str) -> Turn:
        """Ask for a turn. Whoever gets one on trial says what came of it, by `pause` or `over`."""
        async with self._database.connection() as connection:  # one statement: one round trip before each call
            cursor = await connection.execute(self._turn, (TRIAL_SECONDS, model, model))
            row = await cursor.fetchone()
        if row is None or row["trial"]:
            return Turn(0.0, trial=row is not None)
        return Turn(row["seconds"] if row["seconds"] > 0 else POLL_SECONDS)

    @patient
    async def pause(self, model: str, seconds: float | None, *, first: float) -> None:
        """Nobody asks the model for so many seconds; without a number, for `first` seconds, and twice as long each time
        that it was too much again. Those who ask at the same time make one pause."""
        async with self._database.transaction() as connection:
            await connection.execute(
                "INSERT INTO pauses AS known (model, until) "
                "VALUES (%(model)s, clock_timestamp() + make_interval(secs => least(%(given)s, %(longest)s)::float8)) "
                "ON CONFLICT (model) DO UPDATE SET trial_until = NULL, "
                "strikes = CASE WHEN known.until > clock_timestamp() THEN known.strikes ELSE known.strikes + 1 END, "
                "until = greatest(known.until, clock_timestamp() + make_interval(secs => "
                "least(CASE WHEN %(told)s THEN %(given)s ELSE %(given)s * 2 ^ least(known.strikes, 10) END, "
                "%(longest)s)::float8))",
                {
                    "model": model,
                    "told": seconds is not None,
                    "given": first if seconds is None else seconds,
                    "longest": LONGEST_SECONDS,
                },
            )

    @patient
    async def over(self, model: str) -> None:
        """The model was heard again; a pause that has begun meanwhile stays."""
        async with self._database.transaction() as connection:
            await connection.execute("DELETE FROM pauses WHERE model = %s AND until <= clock_timestamp()", (model,))
