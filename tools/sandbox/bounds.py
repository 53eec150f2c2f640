"""The limits that the kernel holds by itself, set from outside on a process that waits; all below inherit them."""

from __future__ import annotations

import math
import os
import platform
import resource
import secrets
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tools.sandbox.model import Limits

_MB = 1024 * 1024
_NAMESPACED_NPROC = (5, 14)
"""Since this kernel RLIMIT_NPROC counts per user namespace; before, it counts all that the user runs."""
_GROUP_PREFIX = "devfix-"
_GROUP_AGE = 60.0
"""Seconds; a younger empty group may be somebody's that has not moved in yet."""


def bind(pid: int, limits: Limits, *, running: int = 0) -> Path | None:
    """Set the resource limits of a process. For root, RLIMIT_NPROC binds nothing, so it gets a control group of
    its own where there is a place for one (version 1, writeable), which is returned; `release` it at the end.

    `running` is what this user runs besides, where RLIMIT_NPROC counts it.
    """
    with suppress(ProcessLookupError):
        for kind, value in _resource_limits(limits, running).items():
            hard = resource.prlimit(pid, kind)[1]
            bound = value if hard == resource.RLIM_INFINITY else min(value, hard)
            resource.prlimit(pid, kind, (bound, bound))
        return _enclose(pid, limits.processes) if os.geteuid() == 0 else None
    return None


def _resource_limits(limits: Limits, running: int) -> Mapping[int, int]:
    """RLIMIT_DATA bounds what a process fills; the address space may be wider, since runtimes such as Node
    reserve more than they use."""
    found = {
        resource.RLIMIT_DATA: limits.memory_mb * _MB,
        resource.RLIMIT_AS: 4 * limits.memory_mb * _MB,
        resource.RLIMIT_FSIZE: limits.file_mb * _MB,
        resource.RLIMIT_NOFILE: 4096,
        resource.RLIMIT_CORE: 0,
    }
    if math.isfinite(limits.timeout):
        found[resource.RLIMIT_CPU] = int(limits.timeout * (os.cpu_count() or 1)) + 5
    if running or _kernel() >= _NAMESPACED_NPROC:
        found[resource.RLIMIT_NPROC] = limits.processes + running
    return found


def _kernel() -> tuple[int, ...]:
    return tuple(int(part) for part in platform.release().split("-")[0].split(".")[:2] if part.isdigit())


def running_threads(user: int) -> int:
    """How much of RLIMIT_NPROC a user has used up."""
    total = 0
    for name in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):
            if os.stat(f"/proc/{name}").st_uid == user:
                total += len(os.listdir(f"/proc/{name}/task"))
    return total


def _enclose(pid: int, processes: int) -> Path | None:
    base = _group_base()
    if base is None:
        return None
    _sweep(base)
    group = base / f"{_GROUP_PREFIX}{secrets.token_hex(8)}"
    try:
        group.mkdir()
        (group / "pids.max").write_text(str(processes))
        (group / "cgroup.procs").write_text(str(pid))
    except OSError:
        release(group)
        return None  # the watch does it, a little later
    return group


def _group_base() -> Path | None:
    """This process's own group of the pids controller."""
    with suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if "pids" in controllers.split(","):
                base = Path("/sys/fs/cgroup/pids", path.lstrip("/"))
                return base if os.access(base, os.W_OK) else None
    return None


def _sweep(base: Path) -> None:
    """Groups that a killed process left; one that is in use can't be removed."""
    for group in base.glob(f"{_GROUP_PREFIX}*"):
        with suppress(OSError):
            if time.time() - group.stat().st_mtime > _GROUP_AGE:
                group.rmdir()


def release(group: Path | None) -> None:
    """Remove a group whose processes are dead."""
    if group is not None:
        with suppress(OSError):
            group.rmdir()
