"""Waiting out a database that hung up: a restart, a failover, an idle connection that was dropped."""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, ParamSpec, TypeVar

import psycopg

from state.errors import DatabaseUnavailable, DatabaseUnwritable

Result = TypeVar("Result")
Arguments = ParamSpec("Arguments")

PATIENCE_SECONDS = 30.0
_LOST = (
    psycopg.OperationalError,
    psycopg.InterfaceError,
    psycopg.errors.IdleInTransactionSessionTimeout,
    psycopg.errors.TransactionTimeout,
    DatabaseUnavailable,
)
_HUNG_UP = ("08", "57P", "25P03", "25P04")
"""How the codes begin by which a server says that it ends the connection; the last two for a transaction that takes too
long."""


async def patiently(operation: Callable[[], Awaitable[Result]], *, seconds: float = PATIENCE_SECONDS) -> Result:
    """Do it, and again on a new connection while the database is away.

    The operation must be such that twice is once: when the server hangs up, nobody knows whether it committed.

    Raises:
        DatabaseUnavailable: the database did not come back in time.
    """
    until = time.monotonic() + seconds
    pause = 0.05
    while True:
        try:
            return await operation()
        except _LOST as error:
            if not is_lost(error):
                raise
            if time.monotonic() + pause > until:
                raise DatabaseUnavailable(
                    f"the database has been away for {seconds:.0f} s ({_first_line(error)}); everything up to the last "
                    "saved step is kept: start the database, then `devfix resume`"
                ) from None
        await asyncio.sleep(pause)
        pause = min(pause * 2, 1.0)


def patient(
    method: Callable[Arguments, Coroutine[Any, Any, Result]],
) -> Callable[Arguments, Coroutine[Any, Any, Result]]:
    """The method, done patiently. For what a run does in mid-flight; a command that has just begun fails at once."""

    @functools.wraps(method)
    async def patiently_done(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        return await patiently(lambda: method(*args, **kwargs))

    return patiently_done


def is_lost(error: BaseException) -> bool:
    """Whether the server hung up: told apart from an error of the statement, and from a server that keeps nothing (a
    full disk)."""
    if isinstance(error, DatabaseUnwritable) or not isinstance(error, _LOST):
        return False
    state = getattr(error, "sqlstate", None)
    return state is None or state.startswith(_HUNG_UP)


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0]
