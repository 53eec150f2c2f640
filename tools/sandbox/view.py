"""What a command sees of the workspace: the workspace itself, or a throw-away view of it.

A view is an overlay (the workspace below, an empty folder beside it taking the writes) where the kernel and
bwrap allow it, else a copy. The folder lies on the disk, not in memory, and is removed afterwards; one that a
killed process left behind is removed by the next.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tools.scratch import Scratch, remove_tree, scratch_folder
from tools.workspace import DEPENDENCY_FOLDERS

MOUNTED_FOLDERS = (".git", *DEPENDENCY_FOLDERS)
"""Top-level names of the original that a command sees, read-only, over the workspace."""

_PREFIX = ".devfix-view-"


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


def _scratch(root: Path) -> Scratch:
    """A fresh folder on the workspace's own file system."""
    return scratch_folder(root.parent if os.access(root.parent, os.W_OK) else Path(tempfile.gettempdir()), _PREFIX)


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
