"""Carry file changes into a person's folder: all of them or none, also across a SIGKILL.

Look at every path first: the old content means to do, the new content done, anything else a conflict, and then
nothing is written. Write the journal; put the new contents beside their targets; rename one after the other.
Whoever performs the same key again finds each path old or new, and finishes the rest.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from state.errors import DevfixError, EffectRefused
from tools.folder import OpenFolder, Seen, open_folder
from tools.journal import Journal, Record
from tools.unified import LINK, FileChange, Version

Standing = Literal["todo", "done", "conflict"]

_NOTHING_BEGUN = Record(todo=[], temporaries={}, made=[])


@dataclass(frozen=True)
class FolderChanges:
    """What is to become of a folder."""

    files: Sequence[FileChange]
    added_folders: Sequence[str] = ()
    removed_folders: Sequence[str] = ()
    """Taken away only if they are empty then."""


class Conflict(NamedTuple):
    """A path that holds neither what the run began with nor what the patch makes of it."""

    change: FileChange
    yours: Version | None
    """What is there now, where it is a file or a link."""
    why: str


class PatchConflict(EffectRefused):
    """Somebody changed the same paths meanwhile; nothing was written."""

    def __init__(self, message: str, conflicts: Sequence[Conflict]) -> None:
        super().__init__(message)
        self.conflicts = conflicts


class Applied(NamedTuple):
    written: list[str]
    """Paths that this call changed."""
    already: list[str]
    """Paths that had the new content before."""


def look(root: Path, changes: FolderChanges, *, journal: Journal) -> dict[str, Standing]:
    """How each path stands; while another call is writing, its end is waited for.

    Raises EffectRefused: the folder is gone.
    """
    with _explained(), open_folder(root) as folder, journal.held(root):
        return {change.path: _stand(folder, change, changes).standing for change in changes.files}


def apply_changes(root: Path, changes: FolderChanges, *, journal: Journal) -> Applied:
    """Make the folder hold the new content of every path. Idempotent by content.

    Raises:
        PatchConflict: a path holds something else. Nothing was written, and what an earlier, interrupted call
            had written was put back.
        EffectRefused: the folder is gone or can't be written; likewise.
        DevfixError: putting back failed, too; the message names what is left, and a further call finishes it.
    """
    with _explained(), open_folder(root) as folder, journal.held(root):
        return _Application(folder, changes, journal).perform()


def take_back(root: Path, changes: FolderChanges, *, journal: Journal) -> bool:
    """Undo what an interrupted call wrote, for a run that will not go on.

    False where nothing was begun, or all of it is there: a complete patch stays. Raises as `apply_changes`.
    """
    with _explained(), open_folder(root) as folder, journal.held(root):
        return _Application(folder, changes, journal).take_back()


def forget(root: Path, journal: Journal) -> None:
    """Clear what an interrupted call left behind, once its changes are known to be complete."""
    with _explained(), open_folder(root) as folder, journal.held(root):
        if begun := journal.read():
            _discard(folder, begun)
            journal.remove()


class _Stand(NamedTuple):
    standing: Standing
    seen: Seen


class _Application:
    """One call, while the folder is held."""

    def __init__(self, folder: OpenFolder, changes: FolderChanges, journal: Journal) -> None:
        self._folder = folder
        self._changes = changes
        self._journal = journal
        self._begun = journal.read() or _NOTHING_BEGUN
        _discard(folder, self._begun)
        self._stands = {change.path: _stand(folder, change, changes) for change in changes.files}
        self._todo = [change for change in changes.files if self._is(change, "todo")]

    def perform(self) -> Applied:
        self._refuse_conflicts()
        self._refuse_read_only()
        record = self._record()
        try:
            self._journal.write(record)
            self._carry_out(record)
        except OSError as problem:
            _discard(self._folder, record)
            self._put_back(record)
            raise EffectRefused(f"{_sentence(problem)}; nothing was changed in your folder") from problem
        self._journal.remove()
        already = [change.path for change in self._changes.files if self._is(change, "done")]
        return Applied([change.path for change in self._todo], already)

    def take_back(self) -> bool:
        begun = bool(self._begun.todo) and not all(self._is(change, "done") for change in self._changes.files)
        if begun:
            self._put_back(self._begun)
        self._journal.remove()
        return begun

    def _is(self, change: FileChange, standing: Standing) -> bool:
        return self._stands[change.path].standing == standing

    def _refuse_conflicts(self) -> None:
        conflicts = [
            Conflict(change, self._stands[change.path].seen.version, _why(self._stands[change.path].seen))
            for change in self._changes.files
            if self._is(change, "conflict")
        ]
        if conflicts:
            self._put_back(self._begun)
            paths = ", ".join(each.change.path for each in conflicts)
            raise PatchConflict(f"changed in your folder since the run began: {paths}; nothing was written", conflicts)

    def _refuse_read_only(self) -> None:
        for change in self._todo:
            if blocking := self._folder.read_only(change.path):
                self._put_back(self._begun)
                raise EffectRefused(f"{blocking} is read-only; nothing was changed in your folder")

    def _record(self) -> Record:
        """All that there is to undo or to clear, should this process die: what an earlier one began included."""
        paths = [change.path for change in self._todo]
        made = [path for path in _needed_folders(self._changes) if self._folder.see(path).kind != "folder"]
        return Record(
            todo=sorted({*self._begun.todo, *paths}),
            temporaries={
                change.path: self._folder.place_beside(change.path, f".devfix-{self._journal.mark}-{number}")
                for number, change in enumerate(self._todo)
                if change.new is not None
            },
            made=sorted({*self._begun.made, *made}),
        )

    def _carry_out(self, record: Record) -> None:
        for change in self._todo:
            if change.new is not None:
                seen = self._stands[change.path].seen
                self._folder.prepare(record.temporaries[change.path], _as_is(change, change.new, seen), seen.status)
        # Removals first: what becomes a folder must be free by then, and what becomes a file empty.
        for change in sorted(self._todo, key=lambda each: each.new is not None):
            self._check_still_as_seen(change)
            if change.new is None:
                self._folder.remove(change.path)
            else:
                self._make_room(change.path)
                self._folder.rename(record.temporaries[change.path], change.path)
        for path in self._changes.added_folders:
            self._folder.make_folder(path)
        for path in sorted(self._changes.removed_folders, reverse=True):
            self._folder.remove_folder(path)

    def _check_still_as_seen(self, change: FileChange) -> None:
        seen = self._stands[change.path].seen
        if seen.kind in ("nothing", "file", "link") and self._folder.see(change.path).identity != seen.identity:
            raise OSError(errno.EBUSY, "changed while the patch was being applied", change.path)

    def _make_room(self, path: str) -> None:
        parts = path.split("/")[:-1]
        for count in range(1, len(parts) + 1):
            self._folder.make_folder("/".join(parts[:count]))
        if self._stands[path].seen.kind == "folder":
            inner = [each for each in self._changes.removed_folders if each.startswith(path + "/")]
            for folder in [*sorted(inner, reverse=True), path]:
                self._folder.remove_folder(folder)

    def _put_back(self, record: Record) -> None:
        """The old content wherever we have written the new one; then there is nothing to remember."""
        try:
            _put_back(self._folder, self._changes, record, self._journal.mark)
        except OSError as problem:
            raise DevfixError(
                f"{_sentence(problem)}, while changes were being put back: your folder holds a part of the patch; "
                "approve or resume again to complete it"
            ) from problem
        self._journal.remove()


@contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except OSError as problem:
        raise EffectRefused(f"{_sentence(problem)}; nothing was changed in your folder") from problem


def _put_back(folder: OpenFolder, changes: FolderChanges, record: Record, mark: str) -> None:
    ours = [change for change in changes.files if change.path in record.todo]
    for change in ours:
        if change.old is None and _stand(folder, change, changes).standing == "done":
            folder.remove(change.path)
    for path in sorted(record.made, reverse=True):
        folder.remove_folder(path)
    for change in ours:
        if change.old is not None and _stand(folder, change, changes).standing == "done":
            _restore(folder, change.path, change.old, mark)
    for path in sorted(changes.removed_folders) if ours else ():
        with suppress(FileNotFoundError):
            folder.make_folder(path)


def _restore(folder: OpenFolder, path: str, version: Version, mark: str) -> None:
    seen = folder.see(path)
    if seen.kind == "folder":
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    parts = path.split("/")[:-1]
    for count in range(1, len(parts) + 1):
        folder.make_folder("/".join(parts[:count]))
    temporary = folder.place_beside(path, f".devfix-{mark}-old")
    try:
        folder.prepare(temporary, version, seen.status)
        folder.rename(temporary, path)
    finally:
        folder.discard(temporary)


def _discard(folder: OpenFolder, record: Record) -> None:
    for temporary in record.temporaries.values():
        folder.discard(temporary)


def _stand(folder: OpenFolder, change: FileChange, changes: FolderChanges) -> _Stand:
    seen = folder.see(change.path)
    free = seen.kind == "nothing" or _gives_way(folder, change.path, seen, changes)
    if _is(seen, free, change.new, change):
        return _Stand("done", seen)
    return _Stand("todo" if _is(seen, free, change.old, change) else "conflict", seen)


def _is(seen: Seen, free: bool, version: Version | None, change: FileChange) -> bool:
    """A permission that the patch leaves alone is the person's own affair."""
    if version is None or seen.version is None:
        return version is None and free
    if (version.mode == LINK) != (seen.kind == "link") or seen.version.data != version.data:
        return False
    return _same_mode(change) or seen.version.mode == version.mode


def _as_is(change: FileChange, new: Version, seen: Seen) -> Version:
    """The new version, with the permission to execute as the person has it where the patch leaves it alone."""
    return Version(seen.version.mode, new.data) if _same_mode(change) and seen.version else new


def _same_mode(change: FileChange) -> bool:
    return bool(change.old and change.new and change.old.mode == change.new.mode)


def _gives_way(folder: OpenFolder, path: str, seen: Seen, changes: FolderChanges) -> bool:
    """Whether the patch itself removes what stands in the place of this path, or on the way to it."""
    removed = {change.path for change in changes.files if change.new is None}
    if seen.kind == "blocked":
        parts = path.split("/")
        return any("/".join(parts[:count]) in removed for count in range(1, len(parts)))
    if seen.kind == "folder":
        removed.update(changes.removed_folders)
        return path in removed and all(each in removed for each in folder.below(path))
    return False


def _needed_folders(changes: FolderChanges) -> list[str]:
    needed = set(changes.added_folders)
    for change in changes.files:
        if change.new is not None:
            parts = change.path.split("/")[:-1]
            needed.update("/".join(parts[:count]) for count in range(1, len(parts) + 1))
    return sorted(needed)


def _why(seen: Seen) -> str:
    return {
        "nothing": "it is gone",
        "folder": "a folder is there now",
        "other": "it is no regular file now",
        "blocked": "a folder on the way is a link or a file now",
    }.get(seen.kind, "its content is another now")


def _sentence(problem: OSError) -> str:
    if problem.errno in (errno.ENOSPC, errno.EDQUOT):
        return "the disk is full"
    where = f"{os.fsdecode(problem.filename)}: " if problem.filename else ""
    return f"{where}{problem.strerror or problem}"
