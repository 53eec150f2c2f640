"""Looking at and changing what is below one folder, without ever following a link out of it.

Each path component is opened relative to its parent with O_NOFOLLOW, so a link that somebody puts there meanwhile
is refused by the system instead of followed. Paths are POSIX, relative, and text: bytes that are not UTF-8 are kept
as lone surrogates ("surrogateescape"), whatever the locale says.
"""

from __future__ import annotations

import errno
import os
import stat
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Literal, NamedTuple, Self

from state.coverage import DEPTH_LIMIT, FILE_LIMIT, is_cache, left_out

Kind = Literal["file", "link", "folder"]
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
KINDS: dict[int, Kind] = {stat.S_IFREG: "file", stat.S_IFLNK: "link", stat.S_IFDIR: "folder"}
SPECIAL = {
    stat.S_IFIFO: "is a named pipe",
    stat.S_IFSOCK: "is a socket",
    stat.S_IFCHR: "is a device",
    stat.S_IFBLK: "is a device",
}


class Found(NamedTuple):
    """What stands at a path: something coverable, something that is `uncovered` for this reason, or a cache."""

    path: str
    kind: Kind | None
    mode: int
    size: int
    version: tuple[int, int, int, int]
    """Modification, change, size and inode: the same means the same content."""
    uncovered: str | None = None
    by_name: bool = False
    """Uncovered whatever it holds."""
    target: str | None = None
    cache: bool = False


class Beneath:
    """One folder, held open. Its methods raise OSError, also for a link where a folder should be."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def __enter__(self) -> Self:
        self._fd = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._fd)

    def walk(self) -> Iterator[Found]:
        """Everything below, parents first, sorted within each folder. What vanishes meanwhile is left out."""
        yield from _walk(self._fd, _listed(self._fd), "", 0)

    def read(self, path: str) -> tuple[bytes, os.stat_result]:
        """A regular file's bytes, and how it stood while they were read."""
        with self._parent(path) as (parent, name):
            descriptor = os.open(name, FILE, dir_fd=parent)
        with open(descriptor, "rb") as file:
            for _ in range(3):
                before = os.fstat(descriptor)
                if not stat.S_ISREG(before.st_mode):
                    raise OSError(f"not a regular file: {path!r}")
                file.seek(0)
                data = file.read(FILE_LIMIT + 1)
                if version_of(before) == version_of(os.fstat(descriptor)) and len(data) == before.st_size:
                    break
            if len(data) > FILE_LIMIT:
                raise OSError("it grew while it was read")
            return data, before

    def write(self, path: str, data: bytes, mode: int) -> None:
        """Put a file there in one step, replacing a file or link."""
        with self._parent(path) as (parent, name), _draft(parent, name) as draft:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            with open(os.open(draft, flags, 0o600, dir_fd=parent), "wb") as file:
                file.write(data)
                os.fchmod(file.fileno(), mode)

    def link(self, path: str, target: str) -> None:
        """Put a symbolic link there in one step, replacing a file or link."""
        with self._parent(path) as (parent, name), _draft(parent, name) as draft:
            os.symlink(encode(target), draft, dir_fd=parent)

    def make_folder(self, path: str) -> None:
        with self._parent(path) as (parent, name), suppress(FileExistsError):
            os.mkdir(name, 0o700, dir_fd=parent)

    def set_mode(self, path: str, mode: int) -> None:
        """Of a folder."""
        with self._parent(path) as (parent, name):
            descriptor = os.open(name, FOLDER, dir_fd=parent)
        try:
            os.fchmod(descriptor, mode)
        finally:
            os.close(descriptor)

    def remove(self, path: str) -> None:
        """A file, a link, or a folder that is empty; a folder that is not empty stays."""
        with self._parent(path) as (parent, name):
            if not stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
                os.unlink(name, dir_fd=parent)
                return
            try:
                os.rmdir(name, dir_fd=parent)
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise

    def remove_tree(self, path: str) -> None:
        """Whatever stands there, with all that is in it."""
        with self._parent(path) as (parent, name):
            _remove_tree(parent, name)

    @contextmanager
    def _parent(self, path: str) -> Iterator[tuple[int, bytes]]:
        *folders, name = encode(path).split(b"/")
        descriptor = os.dup(self._fd)
        try:
            for folder in folders:
                below = os.open(folder, FOLDER, dir_fd=descriptor)
                os.close(descriptor)
                descriptor = below
            yield descriptor, name
        finally:
            os.close(descriptor)


def encode(path: str) -> bytes:
    return path.encode("utf-8", "surrogateescape")


def decode(path: bytes) -> str:
    return path.decode("utf-8", "surrogateescape")


def version_of(status: os.stat_result) -> tuple[int, int, int, int]:
    return status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino


def _listed(folder: int) -> list[tuple[str, os.DirEntry[str]]]:
    with os.scandir(folder) as entries:
        return sorted((decode(os.fsencode(entry.name)), entry) for entry in entries)


def _walk(folder: int, listed: list[tuple[str, os.DirEntry[str]]], prefix: str, depth: int) -> Iterator[Found]:
    for name, entry in listed:
        try:
            found = _look(entry, prefix + name, name, folder, depth)
        except FileNotFoundError:
            continue
        except OSError:
            yield Found(prefix + name, None, 0, 0, (0, 0, 0, 0), uncovered="may not be read")
            continue
        if found.kind != "folder" or found.uncovered:
            yield found
            continue
        try:
            below = os.open(encode(name), FOLDER, dir_fd=folder)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError:
            yield found._replace(uncovered="may not be read")
            continue
        try:
            within = _listed(below)
        except OSError:
            os.close(below)
            yield found._replace(uncovered="may not be read")
            continue
        try:
            yield found
            yield from _walk(below, within, f"{prefix}{name}/", depth + 1)
        finally:
            os.close(below)


def _look(entry: os.DirEntry[str], path: str, name: str, folder: int, depth: int) -> Found:
    status = entry.stat(follow_symlinks=False)
    kind = _kind(status.st_mode)
    found = Found(path, kind, stat.S_IMODE(status.st_mode) & 0o777, status.st_size, version_of(status))
    if kind == "folder" and is_cache(name):
        return found._replace(uncovered="a cache", by_name=True, cache=True)
    if why := left_out(name, top=depth == 0):
        return found._replace(uncovered=why, by_name=True)
    if kind == "folder" and _is_environment(encode(name), folder):
        return found._replace(uncovered="an environment: its installer makes it again", by_name=True)
    if kind == "link":
        return found._replace(target=decode(os.readlink(encode(name), dir_fd=folder)), mode=0, size=0)
    if kind is None:
        return found._replace(uncovered=SPECIAL.get(stat.S_IFMT(status.st_mode), "is not a file"))
    if kind == "file" and status.st_size > FILE_LIMIT:
        return found._replace(uncovered=f"is larger than {FILE_LIMIT // 1024 // 1024} MB")
    if kind == "folder" and depth >= DEPTH_LIMIT:
        return found._replace(uncovered=f"is nested deeper than {DEPTH_LIMIT} folders")
    return found


def _kind(mode: int) -> Kind | None:
    return KINDS.get(stat.S_IFMT(mode))


def _is_environment(name: bytes, folder: int) -> bool:
    try:
        os.stat(name + b"/pyvenv.cfg", dir_fd=folder, follow_symlinks=False)
    except OSError:
        return False
    return True


@contextmanager
def _draft(parent: int, name: bytes) -> Iterator[bytes]:
    """A name to make something under, which then takes the place of `name`."""
    draft = b".devfix-" + uuid.uuid4().hex.encode()
    try:
        yield draft
        os.replace(draft, name, src_dir_fd=parent, dst_dir_fd=parent)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(draft, dir_fd=parent)
        raise


def _remove_tree(parent: int, name: bytes) -> None:
    if not stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
        os.unlink(name, dir_fd=parent)
        return
    descriptor = os.open(name, FOLDER, dir_fd=parent)
    try:
        os.fchmod(descriptor, 0o700)
        for below in os.listdir(descriptor):
            _remove_tree(descriptor, encode(decode(os.fsencode(below))))
    finally:
        os.close(descriptor)
    os.rmdir(name, dir_fd=parent)
