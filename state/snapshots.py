"""Snapshots: what a folder holds, as artifacts, so that any step's files can be had again on any machine.

A snapshot's name is the digest of its manifest: canonical JSON naming the listing of the root folder and what is
not covered. A listing is canonical JSON too, one artifact a folder, so a change stores the listings on its way to
the root and no other. Blobs are stored before the listings that name them, and the manifest last.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from state.artifacts import BATCH_ROWS, Artifacts, chunks, digest_of
from state.errors import ArtifactMissing, NotInSnapshot
from state.manifest import (
    FORMAT,
    NAMES,
    Change,
    Entry,
    Manifest,
    canonical,
    differences,
    listings_of,
    parse_json,
    parse_listing,
)
from state.restoring import finish, plan_for, prepare, write
from state.survey import SnapshotCache, Survey, batches, read_batch, survey_of

__all__ = ["Change", "Entry", "Manifest", "SnapshotCache", "Snapshots"]


class Snapshots:
    """Takes, restores and compares folders. Blocking work runs in threads."""

    def __init__(self, *, artifacts: Artifacts) -> None:
        self._artifacts = artifacts

    async def take(self, root: Path, *, cache: SnapshotCache | None = None) -> str:
        """Store what the folder holds; the manifest's digest, the same for the same content.

        Never follows a link. What it can't or won't cover is listed in the manifest with the reason. Raises
        SnapshotFailed if the folder itself can't be read.
        """
        cache = SnapshotCache() if cache is None else cache
        if cache.manifest and await self._artifacts.missing([cache.manifest]):
            cache.forget_store()
        survey = await asyncio.to_thread(survey_of, root, cache)
        for batch in batches(survey.unread):
            read = await asyncio.to_thread(read_batch, root, batch)
            survey.uncovered |= read.refused
            digests = await self._artifacts.put_many([data for _, data in read.files])
            for (found, _), digest in zip(read.files, digests, strict=True):
                survey.add(found, digest)
        return await self._publish(survey, cache)

    async def restore(self, digest: str, root: Path, *, cache: SnapshotCache | None = None) -> None:
        """Make the folder hold exactly the snapshot: extras go, files are replaced in one step each, then all is
        verified. What is not covered stays as it is.

        Everything is found to be in the store before the first change (ArtifactMissing). A cache is filled, so that
        the next snapshot of this folder costs no reads. Raises SnapshotFailed if the folder can't be written.
        """
        manifest = await self.manifest(digest)
        cache = SnapshotCache() if cache is None else cache
        plan = await asyncio.to_thread(plan_for, root, manifest, cache)
        wanted = {manifest.entries[path].digest or "" for path in plan.write}
        if gone := await self._artifacts.missing(wanted):
            raise ArtifactMissing(
                f"{len(gone)} files of snapshot {digest} are not in the store, {min(gone)} first;"
                f" {root} was not changed."
            )
        await asyncio.to_thread(prepare, root, manifest, plan)
        sizes = ((path, manifest.entries[path].size) for path in plan.write)
        for paths in chunks(sizes):
            contents = await self._artifacts.get_many(manifest.entries[path].digest or "" for path in paths)
            await asyncio.to_thread(write, root, manifest, paths, contents)
        await asyncio.to_thread(finish, root, manifest, plan, cache)

    async def manifest(self, digest: str) -> Manifest:
        """All of a snapshot's entries. Raises ArtifactMissing."""
        head = await self._head(digest)
        entries: dict[str, Entry] = {}
        level = {"": head["folder"]}
        while level:
            listings = await self._artifacts.get_many(level.values())
            below: dict[str, str] = {}
            for prefix, name in level.items():
                for child, entry, listing in parse_listing(listings[name], name):
                    entries[prefix + child] = entry
                    if listing:
                        below[f"{prefix}{child}/"] = listing
            level = below
        return Manifest(digest=digest, entries=dict(sorted(entries.items())), not_covered=head["not_covered"])

    async def parts(self, digests: Collection[str]) -> set[str]:
        """The artifacts that the snapshots among these consist of, with the others of these themselves."""
        parts, level = set(digests), set()
        for batch in _batched(parts - await self._artifacts.missing(parts)):
            contents = await self._artifacts.get_many(batch)
            level |= {folder for data in contents.values() if (folder := _folder_of(data))}
        while level:
            parts |= level
            below: set[str] = set()
            for batch in _batched(level):
                for name, listing in (await self._artifacts.get_many(batch)).items():
                    children = parse_listing(listing, name)
                    parts |= {entry.digest for _, entry, _ in children if entry.digest}
                    below |= {folder for _, _, folder in children if folder}
            level = below - parts
        return parts

    async def read(self, digest: str, path: str) -> bytes:
        """One file's bytes. Raises NotInSnapshot where there is no such file, ArtifactMissing."""
        listing: str | None = (await self._head(digest))["folder"]
        entry: Entry | None = None
        for name in path.split("/"):
            children = parse_listing(await self._artifacts.get(listing), listing) if listing else []
            entry, listing = next(((e, below) for child, e, below in children if child == name), (None, None))
        if entry is None or entry.digest is None:
            raise NotInSnapshot(f"Snapshot {digest} has no file {path!r}.")
        return await self._artifacts.get(entry.digest)

    async def changed(self, old: str, new: str) -> list[Change]:
        """What differs, sorted by path; folders only where they are empty or their mode differs."""
        if old == new:
            return []
        return differences((await self.manifest(old)).entries, (await self.manifest(new)).entries)

    async def _head(self, digest: str) -> dict[str, Any]:
        head = parse_json(await self._artifacts.get(digest), digest)
        if not isinstance(head, dict) or head.get("format") != FORMAT:
            raise ArtifactMissing(f"Artifact {digest} is not a snapshot of this version of DevFix.")
        return head

    async def _publish(self, survey: Survey, cache: SnapshotCache) -> str:
        listings = await asyncio.to_thread(listings_of, survey.entries)
        folder = listings.root
        not_covered = dict(sorted((cache.not_covered | survey.uncovered).items()))
        not_covered = {path: why for path, why in not_covered.items() if path not in survey.entries}
        head = canonical({"format": FORMAT, "names": NAMES, "folder": folder, "not_covered": not_covered})
        manifest = digest_of(head)
        if manifest != cache.manifest:
            new = [data for digest, data in listings.contents.items() if digest not in cache.listings]
            await self._artifacts.put_many(new)
            await self._artifacts.put(head)
        cache.manifest, cache.listings = manifest, set(listings.contents)
        cache.files = survey.known
        return manifest


def _folder_of(data: bytes) -> str | None:
    """The listing of the root folder, where these are the bytes of a manifest."""
    try:
        head = json.loads(data)
    except ValueError:
        return None
    is_manifest = isinstance(head, dict) and head.get("format") == FORMAT and isinstance(head.get("folder"), str)
    return head["folder"] if is_manifest else None


def _batched(digests: Collection[str]) -> Iterator[list[str]]:
    names = sorted(digests)
    return (names[first : first + BATCH_ROWS] for first in range(0, len(names), BATCH_ROWS))
