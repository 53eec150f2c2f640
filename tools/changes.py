"""The difference of two snapshots in a patch's terms: contents, links, executable or not."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from tools.carry import FolderChanges
from tools.unified import EXECUTABLE, FILE, LINK, FileChange, Version

if TYPE_CHECKING:
    from state.snapshots import Entry, Manifest, Snapshots


async def load_changes(snapshots: Snapshots, old: str, new: str) -> FolderChanges:
    """Everything that takes one snapshot's folder to the other's, contents included, sorted by path.

    Other permissions than to execute are left out, as git leaves them out. So is what the newer snapshot does not
    cover: that it is not in there does not mean that it is gone. Raises ArtifactMissing.
    """
    manifest = await snapshots.manifest(new)
    before, after = (await snapshots.manifest(old)).entries, manifest.entries
    paths = [path for path in sorted({*before, *after}) if path in after or _uncovered(path, manifest) is None]
    files = [
        FileChange(path, await _version(snapshots, old, path, before), await _version(snapshots, new, path, after))
        for path in paths
        if _facts(before.get(path)) != _facts(after.get(path))
    ]
    folders_before, folders_after = _folders(before), _folders(after)
    return FolderChanges(
        files=files,
        added_folders=sorted(folders_after - folders_before),
        removed_folders=sorted((folders_before - folders_after) & {*paths}),
    )


async def no_longer_covered(snapshots: Snapshots, old: str, new: str) -> dict[str, str]:
    """Files that a patch from one snapshot to the other can say nothing of, with the reason: the newer one does
    not cover what they have become (too large, a secret)."""
    manifest = await snapshots.manifest(new)
    before = (await snapshots.manifest(old)).entries
    reasons = {path: _uncovered(path, manifest) for path in before if path not in manifest.entries}
    return {path: why for path, why in reasons.items() if why is not None}


def _uncovered(path: str, manifest: Manifest) -> str | None:
    parts = path.split("/")
    inner = ("/".join(parts[:count]) for count in range(1, len(parts) + 1))
    return next((manifest.not_covered[each] for each in inner if each in manifest.not_covered), None)


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
