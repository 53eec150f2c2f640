"""What a command sees of the workspace: the workspace itself, or a throw-away view of it.

A view is an overlay (the workspace below, an empty folder beside it taking the writes) where the kernel and
bwrap allow it, else a copy. The folder lies on the disk, not in memory, and is removed afterwards; one that a
killed process left behind is removed by the next.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.workspace import DEPENDENCY_FOLDERS

MOUNTED_FOLDERS = (".git", *DEPENDENCY_FOLDERS)
"""Top-level names of the original that a command sees, read-only, over the workspace."""

_PREFIX = ".devfix-view-"
_SWEEP_AGE = 60.0
"""Seconds; a younger folder may belong to a process that has not locked it yet."""


@dataclass(frozen=True, kw_only=True)
class View:
    """The folder that a command works in, before it is mounted where the command sees it."""

    lower: Path
    """The content at the start."""
    upper: Path | None
    """Takes the writes; None when they go to `lower` itself."""
    scratch: Path
    """A folder on the same file system, removed at the end."""
    lock: int
    baseline: int
    """Bytes on the disk at the start, in the folder that is written."""
    mount_points: tuple[Path, ...] = ()
    """Names that a mount may add to the workspace itself, removed at the end where they stayed empty."""

    real: Path
    """`lower` without links."""

    @property
    def written(self) -> Path:
        """The folder on the host that grows."""
        return self.upper or self.lower

    def close(self) -> None:
        for place in self.mount_points:
            with suppress(OSError):
                if place.is_dir() and not place.is_symlink():
                    place.rmdir()
                elif place.is_symlink() or place.stat().st_size == 0:
                    place.unlink()
        remove_tree(self.scratch)
        os.close(self.lock)


def itself(root: Path) -> View:
    """The workspace: what the command writes stays."""
    scratch, lock = _scratch(root)
    places = (root / name for name in MOUNTED_FOLDERS)
    absent = tuple(place for place in places if not os.path.lexists(place))
    baseline = disk_usage(root)
    return View(
        lower=root, upper=None, scratch=scratch, lock=lock, baseline=baseline, real=root.resolve(), mount_points=absent
    )


def overlay(root: Path) -> View:
    """The workspace below, writes beside it."""
    scratch, lock = _scratch(root)
    for name in ("upper", "work"):
        (scratch / name).mkdir()
    return View(lower=root, upper=scratch / "upper", scratch=scratch, lock=lock, baseline=0, real=root.resolve())


def copy(root: Path) -> View:
    """A copy of the whole workspace."""
    scratch, lock = _scratch(root)
    try:
        tree = scratch / "tree"
        shutil.copytree(root, tree, symlinks=True, ignore=_not_copied(root))
    except BaseException:
        remove_tree(scratch)
        os.close(lock)
        raise
    return View(lower=tree, upper=None, scratch=scratch, lock=lock, baseline=disk_usage(tree), real=tree.resolve())


def _not_copied(root: Path) -> Callable[[str, list[str]], list[str]]:
    def ignore(folder: str, names: list[str]) -> list[str]:
        top = Path(folder) == root
        return [
            name
            for name in names
            if (top and name in DEPENDENCY_FOLDERS) or _special(os.lstat(os.path.join(folder, name)).st_mode)
        ]

    return ignore


def _special(mode: int) -> bool:
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode))


def _scratch(root: Path) -> tuple[Path, int]:
    """A fresh folder on the workspace's own file system, locked as long as this process lives."""
    parent = root.parent if os.access(root.parent, os.W_OK) else Path(tempfile.gettempdir())
    _sweep(parent)
    scratch = parent / f"{_PREFIX}{secrets.token_hex(8)}"
    scratch.mkdir(mode=0o700)
    return scratch, _lock(scratch)


def _lock(scratch: Path) -> int:
    lock = os.open(scratch, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return lock


def _sweep(parent: Path) -> None:
    for left in parent.glob(f"{_PREFIX}*"):
        try:
            if time.time() - left.lstat().st_mtime < _SWEEP_AGE:
                continue
            lock = _lock(left)
        except OSError:
            continue  # in use
        remove_tree(left)
        os.close(lock)


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


def disk_usage(root: Path, *, enough: int | None = None) -> int:
    """Bytes on the disk below a folder; stops counting beyond `enough`."""
    total, waiting = 0, [os.fspath(root)]
    while waiting:
        with suppress(OSError), os.scandir(waiting.pop()) as scan:
            for entry in scan:
                with suppress(OSError):
                    total += entry.stat(follow_symlinks=False).st_blocks * 512
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                if enough is not None and total > enough:
                    return total
    return total
