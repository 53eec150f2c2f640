"""Waiting that a cancellation does not cut short: what was begun is finished or undone, then it goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def finish(work: Coroutine[Any, Any, T]) -> T:
    """Await `work` to its end even when the caller is cancelled meanwhile; the cancellation follows then."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as error:
            if task.cancelled():
                raise
            cancelled = error
    if cancelled is not None:
        task.exception()
        raise cancelled
    return task.result()


async def made(work: Coroutine[Any, Any, T], *, undo: Callable[[T], Coroutine[Any, Any, None]]) -> T:
    """Make a thing that has to be given back; when the caller is cancelled meanwhile, it is made and undone."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await finish(_undone(task, undo))
        raise


async def _undone(task: asyncio.Future[T], undo: Callable[[T], Coroutine[Any, Any, None]]) -> None:
    await asyncio.wait({task})
    if not task.cancelled() and task.exception() is None:
        await undo(task.result())


async def in_thread(make: Callable[[], T], *, undo: Callable[[T], None]) -> T:
    """`made`, for what blocks."""
    return await made(asyncio.to_thread(make), undo=lambda thing: asyncio.to_thread(undo, thing))
