"""Folders for a while: locked by the process that uses one, and removed by the next where that process was killed."""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
import stat
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

_SWEEP_AGE = 60.0
"""Seconds; a younger folder may belong to a process that has not locked it yet."""


class Scratch(NamedTuple):
    """A folder of this process's own."""

    path: Path
    lock: int

    def close(self) -> None:
        remove_tree(self.path)
        os.close(self.lock)


def scratch_folder(parent: Path, prefix: str) -> Scratch:
    """A new folder, locked as long as this process lives; what killed processes left there under the prefix goes."""
    sweep(parent, prefix)
    path = parent / f"{prefix}{secrets.token_hex(8)}"
    path.mkdir(mode=0o700)
    return Scratch(path, _lock(path))


def sweep(parent: Path, prefix: str) -> None:
    """Remove this user's folders that nobody has locked. The parent may be open to everybody."""
    for left in parent.glob(f"{prefix}*"):
        try:
            if not is_left(left, stat.S_IFDIR, age=_SWEEP_AGE):
                continue
            lock = _lock(left)
        except OSError:
            continue  # in use, or gone
        Scratch(left, lock).close()


def is_left(path: Path, kind: int, *, age: float) -> bool:
    """Whether it is of this kind, no link, this user's own, and older than so many seconds."""
    found = path.lstat()
    own = stat.S_IFMT(found.st_mode) == kind and found.st_uid == os.geteuid()
    return own and time.time() - found.st_mtime > age


def remove_tree(root: Path) -> None:
    """Remove a folder whatever the modes of what lies in it; what can't be removed is left to the next sweep."""

    def retry(function: Callable[..., Any], path: str, _: object) -> None:
        with suppress(OSError):
            os.chmod(os.path.dirname(path), 0o700)
            if not os.path.islink(path):
                os.chmod(path, 0o700)
            if function in {os.rmdir, os.unlink}:
                function(path)
            else:
                shutil.rmtree(path, ignore_errors=True)

    if sys.version_info >= (3, 12):
        shutil.rmtree(root, onexc=retry)
    else:
        shutil.rmtree(root, onerror=retry)


def _lock(folder: Path) -> int:
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise
    return lock
