"""What a snapshot says: entries by path, kept as one canonical listing a folder."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from state.artifacts import digest_of
from state.errors import ArtifactMissing
from state.folders import Kind

FORMAT = "devfix snapshot 1"
NAMES = "utf-8, surrogateescape"
"""How names and link targets that are not UTF-8 are written: a byte as the lone surrogate U+DC00 + byte."""


class Entry(NamedTuple):
    """One path of a snapshot."""

    kind: Kind
    mode: int = 0
    """Permission bits; 0 for a link."""
    size: int = 0
    """Bytes of a file."""
    digest: str | None = None
    """Of a file's content."""
    target: str | None = None
    """Of a link."""


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """All that a snapshot says. Paths are POSIX and relative; see NAMES for odd ones."""

    digest: str
    entries: Mapping[str, Entry]
    not_covered: Mapping[str, str]
    """Why what stands at a path was not kept. A restore leaves it alone."""


class Change(NamedTuple):
    """One path that differs between two snapshots."""

    path: str
    kind: Literal["added", "removed", "modified"]
    old: Entry | None
    new: Entry | None


class Listings(NamedTuple):
    root: str
    contents: dict[str, bytes]


def listings_of(entries: Mapping[str, Entry]) -> Listings:
    """Each folder's listing by its digest, children before parents."""
    folders: dict[str, dict[str, list[Any]]] = {"": {}}
    for path, entry in entries.items():
        if entry.kind == "folder":
            folders[path] = {}
    for path, entry in entries.items():
        parent, _, name = path.rpartition("/")
        if entry.kind != "folder":
            folders[parent][name] = _line(entry)
    contents: dict[str, bytes] = {}
    for path in sorted((path for path in folders if path), key=lambda p: p.count("/"), reverse=True):
        data = canonical(folders[path])
        contents[digest := digest_of(data)] = data
        parent, _, name = path.rpartition("/")
        folders[parent][name] = ["folder", entries[path].mode, digest]
    root = canonical(folders[""])
    contents[digest_of(root)] = root
    return Listings(digest_of(root), contents)


def _line(entry: Entry) -> list[Any]:
    if entry.kind == "link":
        return ["link", entry.target]
    return ["file", entry.mode, entry.size, entry.digest]


def parse_listing(listing: bytes, digest: str) -> list[tuple[str, Entry, str | None]]:
    """Children of a folder: name, entry, and a folder's own listing. Raises ArtifactMissing for other bytes, and for
    names that would lead elsewhere."""
    content = parse_json(listing, digest)
    children = [_child(name, line) for name, line in content.items()] if isinstance(content, dict) else [None]
    known = [child for child in children if child]
    if len(known) < len(children):
        raise ArtifactMissing(f"Artifact {digest} is not a folder's listing.")
    return known


def _child(name: str, line: object) -> tuple[str, Entry, str | None] | None:
    if name in ("", ".", "..") or "/" in name or "\0" in name:
        return None
    match line:
        case ["folder", int(mode), str(below)]:
            return name, Entry("folder", mode), below
        case ["link", str(target)]:
            return name, Entry("link", target=target), None
        case ["file", int(mode), int(size), str(content)]:
            return name, Entry("file", mode, size, content), None
    return None


def canonical(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode("ascii")


def parse_json(data: bytes, digest: str) -> Any:
    try:
        return json.loads(data)
    except ValueError:
        raise ArtifactMissing(f"Artifact {digest} is not a snapshot.") from None


def differences(old: Mapping[str, Entry], new: Mapping[str, Entry]) -> list[Change]:
    """Sorted by path; folders only where they are empty or their mode differs."""
    changes = (_change(path, old.get(path), new.get(path)) for path in sorted({*old, *new}))
    parents = {path.rpartition("/")[0] for path in (*old, *new)}
    return [c for c in changes if c and not (c.kind != "modified" and c.path in parents and _only_folder(c))]


def _change(path: str, old: Entry | None, new: Entry | None) -> Change | None:
    if old == new:
        return None
    if old is None:
        return Change(path, "added", old, new)
    return Change(path, "removed" if new is None else "modified", old, new)


def _only_folder(change: Change) -> bool:
    return all(entry is None or entry.kind == "folder" for entry in (change.old, change.new))
