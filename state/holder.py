"""Who holds a run: one process, told apart from every other that ever had its number."""

from __future__ import annotations

import functools
import os
import signal
import socket
from pathlib import Path

from pydantic import BaseModel, ConfigDict


class Holder(BaseModel):
    """A process on a machine; equal only to itself, also after the machine has used its pid again."""

    model_config = ConfigDict(frozen=True)

    host: str
    boot: str
    """The machine's boot id: pids and start times mean something within one boot only."""
    pid: int
    started: str
    """The process's start time in clock ticks since boot."""
    label: str = ""
    """What the process is, for people: command line, worker, dev server."""

    def __str__(self) -> str:
        return f"{self.label or 'process'} {self.pid} on {self.host}"


def this_process(label: str = "") -> Holder:
    return Holder(host=socket.gethostname(), boot=_boot(), pid=os.getpid(), started=_started(os.getpid()), label=label)


def is_gone(holder: Holder) -> bool | None:
    """Whether the process has ended; None where that can't be seen from this machine."""
    if (holder.host, holder.boot) != (socket.gethostname(), _boot()):
        return None
    started = _started(holder.pid)
    return started == "" or started != holder.started


def is_frozen(holder: Holder) -> bool:
    """Whether the process is seen, on this machine, to be stopped by a signal."""
    return is_gone(holder) is False and _stat(holder.pid)[:1] in (["T"], ["t"])


def kill(holder: Holder) -> bool:
    """End a process on this machine that holds what it should not; whether it was told so. One that is gone, or not
    ours, is left alone."""
    if is_gone(holder) is not False or holder.pid == os.getpid():
        return False
    try:
        os.kill(holder.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return False
    return True


@functools.cache
def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _started(pid: int) -> str:
    """The process's start time, or "" where there is no such process (a zombie has ended too)."""
    fields = _stat(pid)
    return "" if not fields or fields[0] == "Z" else fields[19]


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat from the third on, the process's state; empty where there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return []
