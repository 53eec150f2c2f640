"""The watch over what no resource limit can hold: disk, number of processes, memory of all together.

RLIMIT_NPROC does not bind the real root, RLIMIT_DATA binds each process alone, and there is no quota on a
folder. So the tree is looked at several times a second and stopped when it is beyond its limits; a fast writer
overshoots by what it writes in between.
"""

from __future__ import annotations

import asyncio
from itertools import islice
from typing import TYPE_CHECKING

from tools.sandbox.processes import own_memory
from tools.sandbox.view import disk_usage

if TYPE_CHECKING:
    from tools.sandbox.child import Child
    from tools.sandbox.model import Limits
    from tools.sandbox.view import View

_PERIOD = 0.1
"""Seconds between two looks, at least; a look that takes long makes the period longer."""
_MB = 1024 * 1024


async def exceeded(child: Child, view: View, limits: Limits) -> str:
    """Return, with the reason as a sentence, when the tree is beyond a limit; never otherwise."""
    loop = asyncio.get_running_loop()
    while True:
        began = loop.time()
        reason = await asyncio.to_thread(_look, child, view, limits)
        if reason is not None:
            return reason
        await asyncio.sleep(max(_PERIOD, 5 * (loop.time() - began)))


def _look(child: Child, view: View, limits: Limits) -> str | None:
    members = list(islice(child.members(), limits.processes + 1))  # a fork bomb is not counted to its end
    if len(members) > limits.processes:
        return f"it ran more than {limits.processes} processes at once and was stopped"
    if sum(map(own_memory, members)) > limits.memory_mb * _MB:
        return f"its processes used more than {limits.memory_mb:,} MB of memory and were stopped"
    allowed = view.baseline + limits.disk_mb * _MB
    if disk_usage(view.written, enough=allowed) > allowed:
        return f"it wrote more than {limits.disk_mb:,} MB and was stopped"
    return None
