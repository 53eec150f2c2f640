"""A person's folder, held open: files are looked at and replaced without ever walking through a link.

Each path is walked one component at a time, each opened relative to its parent, so that neither a link that was
there before nor one that is swapped in meanwhile can lead outside.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal, NamedTuple

from state.errors import EffectRefused
from tools.unified import EXECUTABLE, FILE, LINK, Mode, Version

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

Kind = Literal["nothing", "file", "link", "folder", "other", "blocked"]
"""blocked: something on the way to the path is a link or a file."""


class Seen(NamedTuple):
    """What a path holds at this moment."""

    kind: Kind
    version: Version | None = None
    status: os.stat_result | None = None

    @property
    def identity(self) -> tuple[str, int, int, int]:
        status = self.status
        return (self.kind, status.st_ino, status.st_mtime_ns, status.st_size) if status else (self.kind, 0, 0, 0)


class OpenFolder:
    """See the module. Methods raise OSError where the system refuses."""

    def __init__(self, descriptor: int) -> None:
        self._root = descriptor

    def see(self, path: str) -> Seen:
        """The content, too, of a file or a link."""
        with self.nearest(path) as (parent, rest):
            if len(rest) == 1:
                return _see(parent, rest[0])
            # The walk ended early: at something that is not there, or at something in the way.
            return Seen("nothing" if _see_kind(parent, rest[0]) == "nothing" else "blocked")

    def below(self, path: str) -> Iterator[str]:
        """Everything in a folder, folders themselves included."""
        with self.nearest(f"{path}/.") as (folder, rest):
            names = sorted(os.listdir(folder)) if rest == ["."] else []
        for name in names:
            yield f"{path}/{name}"
            if self.see(f"{path}/{name}").kind == "folder":
                yield from self.below(f"{path}/{name}")

    def read_only(self, path: str) -> str | None:
        """What keeps this process from replacing the path, if anything; None where nothing is known to.

        What counts is what the process may do, not the bits: root may write into a copy of a read-only tree.
        """
        with self.nearest(path) as (parent, rest):
            folder = "/".join(path.split("/")[: -len(rest)]) or "the folder itself"
            if not os.access(".", os.W_OK | os.X_OK, dir_fd=parent, effective_ids=True):
                return folder
            with suppress(FileNotFoundError):
                status = os.stat(rest[0], dir_fd=parent, follow_symlinks=False)
                writable = os.access(rest[0], os.W_OK, dir_fd=parent, effective_ids=True)
                if stat.S_ISREG(status.st_mode) and not writable:
                    return path
        return None

    def place_beside(self, path: str, name: str) -> str:
        """Where to prepare the path's content: in its folder, or where that will be made."""
        with self.nearest(path) as (_, rest):
            return "/".join([*path.split("/")[: -len(rest)], name])

    def prepare(self, path: str, version: Version, like: os.stat_result | None) -> None:
        """Write what shall be renamed later; safe on disk at return. `like`: whose owner and permissions it takes."""
        with self._parent(path) as (parent, name):
            with suppress(FileNotFoundError):
                os.unlink(name, dir_fd=parent)
            if version.mode == LINK:
                os.symlink(version.data, os.fsencode(name), dir_fd=parent)
                return
            permissions = 0o777 if version.mode == EXECUTABLE else 0o666
            with os.fdopen(os.open(name, _CREATE, permissions, dir_fd=parent), "wb") as file:
                file.write(version.data)
                file.flush()
                _take_after(file.fileno(), version, like, os.fstat(parent))
                os.fsync(file.fileno())

    def rename(self, source: str, target: str) -> None:
        with self._parent(source) as (source_parent, source_name), self._parent(target) as (parent, name):
            os.rename(source_name, name, src_dir_fd=source_parent, dst_dir_fd=parent)
            os.fsync(parent)

    def remove(self, path: str) -> None:
        with self._parent(path) as (parent, name):
            os.unlink(name, dir_fd=parent)
            os.fsync(parent)

    def discard(self, path: str) -> None:
        """Remove, if it is still there."""
        with suppress(FileNotFoundError):
            self.remove(path)

    def make_folder(self, path: str) -> None:
        with self._parent(path) as (parent, name), suppress(FileExistsError):
            os.mkdir(name, dir_fd=parent)
            if os.geteuid() == 0:
                owner = os.fstat(parent)
                os.chown(name, owner.st_uid, owner.st_gid, dir_fd=parent, follow_symlinks=False)

    def remove_folder(self, path: str) -> None:
        """Only when it is empty, or stays."""
        with suppress(OSError), self._parent(path) as (parent, name):
            os.rmdir(name, dir_fd=parent)

    @contextmanager
    def nearest(self, path: str) -> Iterator[tuple[int, list[str]]]:
        """The innermost real folder on the way to the path, and the components that are left (one at least)."""
        rest = path.split("/")
        folder = os.dup(self._root)
        try:
            while len(rest) > 1:
                try:
                    inner = os.open(rest[0], _FOLDER | os.O_NOFOLLOW, dir_fd=folder)
                except (FileNotFoundError, NotADirectoryError):
                    break
                os.close(folder)
                folder = inner
                rest = rest[1:]
            yield folder, rest
        finally:
            os.close(folder)

    @contextmanager
    def _parent(self, path: str) -> Iterator[tuple[int, str]]:
        with self.nearest(path) as (folder, rest):
            if len(rest) > 1:
                raise FileNotFoundError(2, os.strerror(2), path)
            yield folder, rest[0]


@contextmanager
def open_folder(root: Path) -> Iterator[OpenFolder]:
    """Raises EffectRefused: it is not there, or no folder, or not to be entered."""
    try:
        descriptor = os.open(root, _FOLDER)
    except OSError as problem:
        raise EffectRefused(f"{root}: {problem.strerror}; nothing was written, and the patch is kept") from problem
    try:
        yield OpenFolder(descriptor)
    finally:
        os.close(descriptor)


def _see(parent: int, name: str) -> Seen:
    try:
        status = os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return Seen("nothing")
    kind = _kind(status.st_mode)
    if kind == "link":
        return Seen(kind, Version(LINK, os.readlink(os.fsencode(name), dir_fd=parent)), status)
    if kind != "file":
        return Seen(kind, None, status)
    with os.fdopen(os.open(name, _READ, dir_fd=parent), "rb") as file:
        status = os.fstat(file.fileno())
        mode: Mode = EXECUTABLE if status.st_mode & 0o100 else FILE
        return Seen(kind, Version(mode, file.read()), status)


def _see_kind(parent: int, name: str) -> Kind:
    try:
        return _kind(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return "nothing"


def _kind(mode: int) -> Kind:
    if stat.S_ISLNK(mode):
        return "link"
    if stat.S_ISDIR(mode):
        return "folder"
    return "file" if stat.S_ISREG(mode) else "other"


def _take_after(file: int, version: Version, like: os.stat_result | None, folder: os.stat_result) -> None:
    if like is not None and stat.S_ISREG(like.st_mode):
        os.fchmod(file, _permissions(stat.S_IMODE(like.st_mode), version))
    if os.geteuid() == 0:
        owner = like or folder
        os.fchown(file, owner.st_uid, owner.st_gid)


def _permissions(before: int, version: Version) -> int:
    """As before, but executable or not as the version says: for whoever may read."""
    was = EXECUTABLE if before & 0o100 else FILE
    if was == version.mode:
        return before
    return before | (before & 0o444) >> 2 if version.mode == EXECUTABLE else before & ~0o111
