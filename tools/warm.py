"""Processes that stay up between two calls of one attempt: a pure cache, never needed for a right answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Hashable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, TypeVar

T = TypeVar("T")
Make = Callable[[], AbstractAsyncContextManager[T]]


class Warm:
    """Keeps the last thing of each kind, under a key that names all that it depends on.

    Another key closes what was kept before. One caller at a time: the thing is lent, and given back.
    """

    def __init__(self) -> None:
        self._kept: dict[str, _Kept] = {}
        self._locks: dict[str, asyncio.Lock] = {}

    @asynccontextmanager
    async def lend(self, kind: str, key: Hashable, make: Make[T]) -> AsyncIterator[T]:
        """The kept thing, or a new one. When the borrower fails, it is closed: its state may be half a call."""
        lock = self._locks.setdefault(kind, asyncio.Lock())
        async with lock:
            kept = self._kept.get(kind)
            if kept is None or kept.key != key:
                await self._drop(kind)
                kept = self._kept[kind] = await _Kept.of(key, make)
            try:
                yield kept.thing
            except BaseException:
                await self._drop(kind)
                raise

    async def aclose(self) -> None:
        """Closes all that is kept. Idempotent."""
        for kind in list(self._kept):
            await self._drop(kind)

    async def _drop(self, kind: str) -> None:
        kept = self._kept.pop(kind, None)
        if kept is not None:
            await kept.close()


class _Kept:
    """A context that is entered and left in a task of its own, since calls come from different tasks."""

    def __init__(self, key: Hashable) -> None:
        self.key = key
        self.thing: Any = None
        self._done = asyncio.Event()
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._task: asyncio.Task[None] | None = None

    @classmethod
    async def of(cls, key: Hashable, make: Make[Any]) -> _Kept:
        kept = cls(key)
        kept._task = asyncio.create_task(kept._hold(make), name="kept warm")
        try:
            await asyncio.shield(kept._ready)
        except BaseException:
            await kept.close()
            raise
        return kept

    async def _hold(self, make: Make[Any]) -> None:
        try:
            async with make() as self.thing:
                self._ready.set_result(None)
                await self._done.wait()
        except BaseException as error:
            if self._ready.done():
                raise
            self._ready.set_exception(error)

    async def close(self) -> None:
        self._done.set()
        if self._task is not None:
            if not self._ready.done():
                self._task.cancel()
            await asyncio.wait({self._task})
            if not self._task.cancelled():
                self._task.exception()
        if self._ready.done():  # looked at: nobody else does who was cut off while it was made
            self._ready.exception()


@asynccontextmanager
async def lent(warm: Warm | None, kind: str, key: Hashable, make: Make[T]) -> AsyncIterator[T]:
    """From `warm`, or made for this call alone."""
    if warm is None:
        async with make() as thing:
            yield thing
        return
    async with warm.lend(kind, key, make) as thing:
        yield thing
