"""The workspace: an attempt's own copy of the repository, and the only door to its files from the host.

DevFix reads and writes here outside the sandbox, in a tree that hostile code may have filled with links. So a
path is walked one component at a time, each opened relative to its parent and never through a link; a link
inside the tree is followed by hand, and `..` only ever goes back to a folder that was walked through. Nothing
that is swapped in between can lead outside.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, NamedTuple

from state.errors import DevfixError
from state.folders import Beneath

READ_LIMIT = 64 * 1024 * 1024
"""Bytes; what `read` takes into memory at most."""

DEPENDENCY_FOLDERS = (".venv", "venv", "node_modules")
"""Top-level folders that a workspace does not carry: the sandbox shows the original's, read-only."""

_MAX_LINKS = 40


class WorkspaceError(DevfixError):
    """A path can't be read or written in the workspace; nothing was changed."""


class Entry(NamedTuple):
    """One name in the workspace."""

    path: str
    kind: str
    """file, link, or other (a pipe, a socket, a device)."""
    size: int


@dataclass(frozen=True)
class Workspace:
    """An attempt's copy of the repository. Paths are relative, with `/`, undecodable bytes as surrogates."""

    root: Path
    """The copy, on the host."""
    repository: Path
    """Where the original lives; at sandbox level 3 the workspace is seen at this path."""

    def read(self, path: str, *, limit: int = READ_LIMIT) -> bytes:
        """The whole file. Raises WorkspaceError: bad path, leads outside, no regular file, beyond `limit`."""
        with self.open(path) as file:
            size = os.fstat(file.fileno()).st_size
            if size > limit:
                raise WorkspaceError(f"{path} has {size:,} bytes, more than the {limit:,} that are read at once")
            return file.read(limit + 1)[:limit]

    def open(self, path: str) -> IO[bytes]:
        """A regular file, to be read. Raises WorkspaceError."""
        with self._located(path) as place, _explained(path):
            # O_NONBLOCK: opening a pipe would wait for a writer for ever
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            file = os.open(place.name, flags, dir_fd=place.folder)
        if not stat.S_ISREG(os.fstat(file).st_mode):
            os.close(file)
            raise WorkspaceError(f"{path} is not a regular file")
        return os.fdopen(file, "rb")

    def exists(self, path: str) -> bool:
        """Whether there is a regular file that `open` would reach."""
        try:
            with self._located(path) as place:
                status = os.stat(place.name, dir_fd=place.folder, follow_symlinks=False)
        except (OSError, WorkspaceError):
            return False
        return stat.S_ISREG(status.st_mode)

    def resolve(self, path: str) -> str:
        """The path with links inside the workspace followed; it need not exist. Raises WorkspaceError."""
        with _explained(path):
            walk = _Walk(self.root, path)
        try:
            with _explained(path), suppress(FileNotFoundError):
                walk.to_parent(make=False)
        finally:
            walk.close()
        return "/".join(walk.trail)

    def write(self, path: str, data: bytes) -> None:
        """Replace or create the file at once, keeping its mode; missing folders are made.

        Raises WorkspaceError: bad path, leads outside, in `.git`, no regular file, read-only or full disk.
        """
        if ".git" in path.split("/"):
            raise WorkspaceError(f"{path} lies in .git, which is never written here")
        with self._located(path, make=True) as place, _explained(path):
            if ".git" in place.trail:
                raise WorkspaceError(f"{path} leads into .git, which is never written here")
            _replace(place.folder, place.name, data, path)

    def files(self) -> Iterator[str]:
        """The regular files, sorted; without what no workspace carries."""
        return (entry.path for entry in self.entries() if entry.kind == "file")

    def entries(self) -> Iterator[Entry]:
        """Every name that is not a folder, sorted by path; without caches, environments and what may hold a secret."""
        with Beneath(self.root) as folder:
            for found in sorted(folder.walk(), key=lambda each: each.path):
                if found.kind != "folder" and not found.by_name:
                    yield Entry(found.path, found.kind or "other", found.size)

    def folders_left_out(self) -> list[str]:
        """Top-level folders, no caches, that `entries` does not enter."""
        return [name for name in sorted(os.listdir(self.root)) if name in {".git", *DEPENDENCY_FOLDERS}]

    @contextmanager
    def _located(self, path: str, *, make: bool = False) -> Iterator[_Place]:
        with _explained(path):
            walk = _Walk(self.root, path)
        try:
            with _explained(path):
                place = walk.to_parent(make=make)
            yield place
        finally:
            walk.close()


class _Place(NamedTuple):
    folder: int
    """The open folder that holds the last component."""
    name: str
    """The last component, which is no link."""
    trail: tuple[str, ...]
    """Every component, links resolved."""


class _Walk:
    """Goes down from the root, holding every folder on the way open."""

    def __init__(self, root: Path, path: str) -> None:
        self._path = path
        self._rest = _components(path)[::-1]
        self._links = 0
        self._names: list[str] = []
        self._folders = [os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)]

    def close(self) -> None:
        for folder in self._folders:
            os.close(folder)

    @property
    def trail(self) -> tuple[str, ...]:
        """Where it has come, and what is still before it."""
        return (*self._names, *self._rest[::-1])

    def to_parent(self, *, make: bool) -> _Place:
        """Go as far as the folder of the last component. Raises OSError, WorkspaceError."""
        while True:
            name = self._rest[-1]
            if name == "..":
                self._up()
            elif (target := self._link(name)) is not None:
                self._follow(target)
            elif len(self._rest) == 1:
                return _Place(self._folders[-1], name, self.trail)
            else:
                self._down(name, make=make)

    def _link(self, name: str) -> str | None:
        try:
            return os.readlink(name, dir_fd=self._folders[-1])
        except OSError as error:
            if error.errno in {errno.EINVAL, errno.ENOENT}:
                return None
            raise

    def _follow(self, target: str) -> None:
        self._links += 1
        if self._links > _MAX_LINKS:
            raise WorkspaceError(f"{self._path} goes through a loop of links")
        if target.startswith("/"):
            raise WorkspaceError(f"{self._path} goes through a link to {target}, outside the workspace")
        self._rest.pop()
        self._rest.extend([part for part in target.split("/") if part not in {"", "."}][::-1])
        if not self._rest or self._rest[0] == "..":
            raise WorkspaceError(f"{self._path} is not a regular file")

    def _up(self) -> None:
        if len(self._folders) == 1:
            raise WorkspaceError(f"{self._path} goes through a link that leads outside the workspace")
        os.close(self._folders.pop())
        self._names.pop()
        self._rest.pop()

    def _down(self, name: str, *, make: bool) -> None:
        if make:
            with suppress(FileExistsError):
                os.mkdir(name, 0o777, dir_fd=self._folders[-1])
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        self._folders.append(os.open(name, flags, dir_fd=self._folders[-1]))
        self._names.append(name)
        self._rest.pop()


def _components(path: str) -> list[str]:
    if "\0" in path:
        raise WorkspaceError(f"the path {path!r} holds a NUL character")
    if path.startswith("/"):
        raise WorkspaceError(f"{path} is absolute; paths are relative to the repository's folder")
    parts = [part for part in path.split("/") if part not in {"", "."}]
    if ".." in parts:
        raise WorkspaceError(f"{path} goes up with '..'; paths stay inside the repository's folder")
    if not parts or path.endswith("/"):
        raise WorkspaceError(f"{path!r} names no file")
    return parts


def _replace(folder: int, name: str, data: bytes, path: str) -> None:
    mode = None
    with suppress(FileNotFoundError):
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if not stat.S_ISREG(status.st_mode):
            raise WorkspaceError(f"{path} is not a regular file")
        mode = stat.S_IMODE(status.st_mode)
    temporary = f".devfix-{secrets.token_hex(8)}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    file = os.open(temporary, flags, 0o666, dir_fd=folder)
    try:
        with os.fdopen(file, "wb") as stream:
            stream.write(data)
            if mode is not None:
                os.fchmod(stream.fileno(), mode)
        os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary, dir_fd=folder)
        raise


_SENTENCES = {
    errno.ENOENT: "{} does not exist",
    errno.ENOTDIR: "{} goes through something that is not a folder",
    errno.EISDIR: "{} is a folder",
    errno.ELOOP: "{} goes through a link that leads outside the workspace",
    errno.ENXIO: "{} is not a regular file",
    errno.EACCES: "{} can't be used: permission denied",
    errno.EROFS: "{} can't be written: the file system is read-only",
    errno.ENOSPC: "{} was not written: the disk is full; the old content is kept",
    errno.ENAMETOOLONG: "the name {} is too long",
}


@contextmanager
def _explained(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        sentence = _SENTENCES.get(error.errno or 0, "{} can't be used: " + os.strerror(error.errno or 0))
        raise WorkspaceError(sentence.format(path)) from error
    except UnicodeEncodeError as error:
        raise WorkspaceError(f"{path!r} can't be a file name") from error
