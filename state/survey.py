"""What a folder holds now: a walk, and the files that have to be read to know."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Self

from state.artifacts import chunks
from state.coverage import PRIVATE_KEY, SECRET, may_be_key
from state.errors import SnapshotFailed
from state.folders import Beneath, Found, version_of
from state.manifest import FORMAT, Entry

RACY_NS = 20_000_000
"""A file that changed this shortly before it was read may change again without a new timestamp: a kernel's clock
ticks every 4 to 10 ms. Such a file is read again next time."""


@dataclass
class SnapshotCache:
    """What is known of one folder from its last snapshot or restore; makes an unchanged tree cost no reads.

    Belongs to one folder and one user at a time. `dump` and `load` carry it from process to process.
    """

    files: dict[str, tuple[tuple[int, int, int, int], str]] = field(default_factory=dict)
    """By path: the file's version and its content's digest."""
    manifest: str | None = None
    listings: set[str] = field(default_factory=set)
    """Known to be stored, as long as `manifest` is."""
    not_covered: dict[str, str] = field(default_factory=dict)
    """What the snapshot that was restored here had left out: its absence here is no change."""

    def dump(self) -> bytes:
        return json.dumps([FORMAT, self.manifest, sorted(self.listings), self.not_covered, self.files]).encode()

    @classmethod
    def load(cls, data: bytes) -> Self:
        """A cache; an empty one where the data is not of this version."""
        try:
            version, manifest, listings, not_covered, files = json.loads(data)
            known = {path: (tuple(key), digest) for path, (key, digest) in files.items()}
            return cls(known, manifest, set(listings), not_covered) if version == FORMAT else cls()
        except (ValueError, TypeError, AttributeError):
            return cls()

    def forget_store(self) -> None:
        """The store lost what it had: everything is read and stored again."""
        self.files, self.manifest, self.listings = {}, None, set()

    def digest_of(self, found: Found) -> str | None:
        version, digest = self.files.get(found.path, (None, None))
        return digest if version == found.version else None


@dataclass
class Survey:
    """What a walk found, completed as files are read."""

    entries: dict[str, Entry] = field(default_factory=dict)
    uncovered: dict[str, str] = field(default_factory=dict)
    known: dict[str, tuple[tuple[int, int, int, int], str]] = field(default_factory=dict)
    unread: list[Found] = field(default_factory=list)
    others: list[Found] = field(default_factory=list)
    """Uncovered or a cache."""

    def add(self, found: Found, digest: str, *, now: int | None = None) -> None:
        self.entries[found.path] = Entry("file", found.mode, found.size, digest)
        if max(found.version[:2]) + RACY_NS < (time.time_ns() if now is None else now):
            self.known[found.path] = found.version, digest


class Read(NamedTuple):
    files: list[tuple[Found, bytes]]
    refused: dict[str, str]


def survey_of(root: Path, cache: SnapshotCache) -> Survey:
    survey = Survey()
    now = time.time_ns()
    try:
        with Beneath(root) as folder:
            for found in folder.walk():
                _place(found, survey, cache, now)
    except OSError as error:
        raise SnapshotFailed(f"{root} can't be read: {error.strerror or error}; no snapshot was taken.") from error
    return survey


def _place(found: Found, survey: Survey, cache: SnapshotCache, now: int) -> None:
    if found.uncovered:
        survey.others.append(found)
        if not found.cache:
            survey.uncovered[found.path] = found.uncovered
    elif found.kind == "folder":
        survey.entries[found.path] = Entry("folder", found.mode)
    elif found.kind == "link":
        survey.entries[found.path] = Entry("link", target=found.target)
    elif digest := cache.digest_of(found):
        survey.add(found, digest, now=now)
    else:
        survey.unread.append(found)


def batches(unread: list[Found]) -> Iterator[list[Found]]:
    by_path = {found.path: found for found in unread}
    for paths in chunks((found.path, found.size) for found in unread):
        yield [by_path[path] for path in paths]


def read_batch(root: Path, batch: Iterable[Found]) -> Read:
    read = Read([], {})
    with Beneath(root) as folder:
        for found in batch:
            try:
                data, status = folder.read(found.path)
            except FileNotFoundError:
                continue
            except OSError as error:
                read.refused[found.path] = f"can't be read: {error.strerror or error}"
                continue
            if may_be_key(found.path) and PRIVATE_KEY in data:
                read.refused[found.path] = SECRET
                continue
            now = found._replace(size=len(data), mode=status.st_mode & 0o777, version=version_of(status))
            read.files.append((now, data))
    return read
