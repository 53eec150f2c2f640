"""Making a folder hold a snapshot: what stands in the way, and the steps that change it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from state.artifacts import digest_of
from state.coverage import SECRET, may_be_key
from state.errors import SnapshotFailed
from state.folders import Beneath
from state.manifest import Entry, Manifest, listings_of
from state.survey import SnapshotCache, Survey, batches, read_batch, survey_of


class Plan(NamedTuple):
    """What stands in the way of a snapshot."""

    remove: list[str]
    """Extras, children first."""
    clear: list[str]
    """What is of another kind than it should be, and caches: with all that is in it."""
    link: list[str]
    write: list[str]
    folders: list[str]
    """To be made, parents first."""
    closed: list[str]
    """Folders that have to be opened before anything in them can change."""
    modes: list[str]
    """Folders whose mode has to be set in the end, parents first."""


def plan_for(root: Path, manifest: Manifest, cache: SnapshotCache) -> Plan:
    _make_root(root)
    survey = survey_of(root, cache)
    _read_what_decides(root, survey, manifest)
    plan = Plan([], [], [], [], [], [], [])
    _plan_removals(survey, manifest, plan)
    for path, entry in manifest.entries.items():
        here = survey.entries.get(path)
        if entry.kind == "folder":
            if here is None or here.kind != "folder":
                plan.folders.append(path)
            if here != entry or path in plan.closed:
                plan.modes.append(path)
        elif here != entry:
            (plan.link if entry.kind == "link" else plan.write).append(path)
    return plan


def _plan_removals(survey: Survey, manifest: Manifest, plan: Plan) -> None:
    kinds = {path: entry.kind for path, entry in survey.entries.items()}
    kinds |= {found.path: "file" for found in survey.unread}
    for path in sorted(kinds, reverse=True):
        wanted = manifest.entries.get(path)
        if wanted is None:
            if not _listed(path, manifest):
                plan.remove.append(path)
        elif (kinds[path] == "folder") != (wanted.kind == "folder"):
            plan.clear.append(path)
        if kinds[path] == "folder" and survey.entries[path].mode & 0o700 != 0o700:
            plan.closed.append(path)
    for found in survey.others:
        if found.cache or found.path in manifest.entries or not (found.by_name or _listed(found.path, manifest)):
            plan.clear.append(found.path)


def _listed(path: str, manifest: Manifest) -> bool:
    """Whether the snapshot left it out, or a folder that it is in."""
    return any(p in manifest.not_covered for p in (path, *map(str, PurePosixPath(path).parents)))


def _read_what_decides(root: Path, survey: Survey, manifest: Manifest) -> None:
    """Files that may be as they should be already, and those whose content says that they are left out."""
    wanted = manifest.entries
    alike = {f.path for f in survey.unread if (e := wanted.get(f.path)) and e[:3] == ("file", f.mode, f.size)}
    keys = {f.path for f in survey.unread if f.path not in wanted and may_be_key(f.path)}
    for batch in batches([f for f in survey.unread if f.path in alike or f.path in keys]):
        read = read_batch(root, batch)
        for found, data in read.files:
            survey.add(found, digest_of(data))
        survey.others.extend(f._replace(by_name=True, uncovered=SECRET) for f in batch if f.path in read.refused)
    done = {*survey.entries, *(f.path for f in survey.others)}
    survey.unread = [f for f in survey.unread if f.path not in done]


def _make_root(root: Path) -> None:
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SnapshotFailed(f"{root} can't be made: {error.strerror or error}.") from error


def prepare(root: Path, manifest: Manifest, plan: Plan) -> None:
    with _writing(root) as folder:
        for path in sorted(plan.closed):
            folder.set_mode(path, 0o700)
        for path in sorted(plan.clear, reverse=True):
            with suppress(FileNotFoundError):
                folder.remove_tree(path)
        for path in plan.remove:
            with suppress(FileNotFoundError, NotADirectoryError):  # gone with a folder that was in the way
                folder.remove(path)
        for path in plan.folders:
            folder.make_folder(path)
        for path in plan.link:
            folder.link(path, manifest.entries[path].target or "")


def write(root: Path, manifest: Manifest, paths: Iterable[str], contents: Mapping[str, bytes]) -> None:
    with _writing(root) as folder:
        for path in paths:
            entry = manifest.entries[path]
            folder.write(path, contents[entry.digest or ""], entry.mode)


def finish(root: Path, manifest: Manifest, plan: Plan, cache: SnapshotCache) -> None:
    with _writing(root) as folder:
        for path in reversed(plan.modes):
            folder.set_mode(path, manifest.entries[path].mode)
    _verify(root, manifest, cache)
    cache.manifest, cache.not_covered = manifest.digest, dict(manifest.not_covered)
    cache.listings = set(listings_of(manifest.entries).contents)


def _verify(root: Path, manifest: Manifest, cache: SnapshotCache) -> None:
    survey = survey_of(root, cache)
    for batch in batches(survey.unread):
        for found, data in read_batch(root, batch).files:
            survey.add(found, digest_of(data))
    here, wanted = survey.entries, manifest.entries
    wrong = sorted(path for path in {*here, *wanted} if here.get(path) != wanted.get(path))
    wrong = [path for path in wrong if not _holds_uncovered(path, here, wanted, survey)]
    if wrong:
        raise SnapshotFailed(
            f"{root} does not hold snapshot {manifest.digest}: {wrong[0]!r} differs; somebody else writes there."
        )
    cache.files = survey.known


def _holds_uncovered(path: str, here: Mapping[str, Entry], wanted: Mapping[str, Entry], survey: Survey) -> bool:
    """A folder that had to stay for what is not covered in it."""
    if path in wanted or here[path].kind != "folder":
        return False
    return any(found.path.startswith(f"{path}/") for found in survey.others)


class _writing(Beneath):  # noqa: N801 (a context, read in a with)
    """The folder; what the system refuses becomes one sentence."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self._name = root

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        super().__exit__(kind, error, trace)
        if isinstance(error, OSError):
            raise SnapshotFailed(
                f"{self._name} can't be written: {error.strerror or error}; it holds a part of the snapshot,"
                " restore it again."
            ) from error
