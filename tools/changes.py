"""The difference of two snapshots in a patch's terms: contents, links, executable or not."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from tools.carry import FolderChanges
from tools.unified import EXECUTABLE, FILE, LINK, FileChange, Version

if TYPE_CHECKING:
    from state.snapshots import Entry, Snapshots


async def load_changes(snapshots: Snapshots, old: str, new: str) -> FolderChanges:
    """Everything that takes one snapshot's folder to the other's, contents included, sorted by path.

    Other permissions than to execute are left out, as git leaves them out. Raises ArtifactMissing.
    """
    before = (await snapshots.manifest(old)).entries
    after = (await snapshots.manifest(new)).entries
    files = [
        FileChange(path, await _version(snapshots, old, path, before), await _version(snapshots, new, path, after))
        for path in sorted({*before, *after})
        if _facts(before.get(path)) != _facts(after.get(path))
    ]
    folders_before, folders_after = _folders(before), _folders(after)
    return FolderChanges(
        files=files,
        added_folders=sorted(folders_after - folders_before),
        removed_folders=sorted(folders_before - folders_after),
    )


def _facts(entry: Entry | None) -> tuple[object, ...] | None:
    """What a patch can say of a path; None where it can say nothing."""
    if entry is None or entry.kind == "folder":
        return None
    return (entry.kind, entry.digest, entry.target, entry.kind == "file" and entry.mode & 0o100)


async def _version(snapshots: Snapshots, snapshot: str, path: str, entries: Mapping[str, Entry]) -> Version | None:
    entry = entries.get(path)
    if entry is None or entry.kind == "folder":
        return None
    if entry.kind == "link":
        return Version(LINK, os.fsencode(entry.target or ""))
    return Version(EXECUTABLE if entry.mode & 0o100 else FILE, await snapshots.read(snapshot, path))


def _folders(entries: Mapping[str, Entry]) -> set[str]:
    return {path for path, entry in entries.items() if entry.kind == "folder"}
