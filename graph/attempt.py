"""One process's hold on a run: its epoch, its heartbeat, the word that it is cancelled or was overtaken."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TypeVar

from langgraph.runtime import RunControl

from state.errors import DevfixError
from state.runs import Claim, Runs
from tools.warm import Warm

_log = logging.getLogger(__name__)
_Result = TypeVar("_Result")


class Stopped(Exception):
    """The attempt was stopped from outside, and what it awaited has been cancelled."""


class Attempt:
    """One process's hold on a run, from claim to settlement."""

    def __init__(
        self,
        run_id: str,
        claim: Claim,
        *,
        control: RunControl,
        runs: Runs,
        saved: Mapping[tuple[str, int], int],
        heartbeat_seconds: float,
    ) -> None:
        self.run_id = run_id
        self.claim = claim
        self.control = control
        self.stopped = False
        self.cancelled_by: str | None = None
        self.overtaken = False
        self.unknown: list[str] = []
        """Effects of a dead attempt whose outcome nobody knows."""
        self.warm = Warm()
        """Processes that stay up between two calls; they end with the attempt."""
        self.under_way: dict[str, str] = {}
        """The calls that it makes now, or made when it was cut off: what each is, by its id."""
        self._runs = runs
        self._saved = saved
        self._heartbeat_seconds = heartbeat_seconds
        self._lap = time.monotonic()
        self._awaiting: asyncio.Timeout | None = None

    @property
    def epoch(self) -> int:
        return self.claim.epoch

    @property
    def step(self) -> int:
        """The number of the run's last saved step."""
        return self.claim.step + self._saved.get((self.run_id, self.epoch), 0)

    def lap(self) -> float:
        """Seconds of active time since the last call: what a node adds to the state's `active_seconds`."""
        now = time.monotonic()
        seconds, self._lap = now - self._lap, now
        return seconds

    @contextmanager
    def making(self, call_id: str, what: str) -> Iterator[None]:
        """While the body makes this call. One that is cut off stays noted, for the report to name it."""
        self.under_way[call_id] = what
        try:
            yield
        except Exception:
            del self.under_way[call_id]
            raise
        del self.under_way[call_id]

    async def unless_stopped(self, begin: Callable[[], Awaitable[_Result]]) -> _Result:
        """What it begins, awaited in the task that asks. Raises Stopped, with nothing begun, where the attempt was
        stopped before; when it is stopped meanwhile, once what was begun has been cancelled."""
        if self.stopped:
            raise Stopped
        awaiting = asyncio.timeout(None)
        try:
            async with awaiting:
                self._awaiting = awaiting
                return await begin()
        except Exception as error:
            if not awaiting.expired():
                raise
            if not isinstance(error, TimeoutError):
                _log.warning("run %s: while it was being stopped: %s: %s", self.run_id, type(error).__name__, error)
            raise Stopped from error
        finally:
            self._awaiting = None

    def stop(self) -> None:
        """Cancel what it awaits, and begin nothing any more."""
        self.stopped = True
        if self._awaiting is not None and not self._awaiting.expired():
            self._awaiting.reschedule(0.0)

    async def keep_alive(self) -> None:
        """Beat until the attempt ends, is cancelled by a person, or is overtaken by another."""
        while not self.stopped:
            await asyncio.sleep(self._heartbeat_seconds)
            try:
                beat = await self._runs.beat(self.run_id, self.epoch)
            except DevfixError as error:
                _log.warning("run %s: no heartbeat: %s", self.run_id, error)
                continue
            self.overtaken = not beat.held
            self.cancelled_by = beat.cancel_requested_by
            if self.overtaken or self.cancelled_by:
                self.stop()
