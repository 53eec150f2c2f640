"""A commit on a branch of its own, made beside a person's work: no file, index, HEAD or branch of theirs changes.

The commit holds what the run began from (`parent`) plus the patch. Where files differed from that commit when
the run began, the patch is merged into the commit's version, and refused where that doesn't go without a choice.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from state.errors import EffectRefused, GitFailed
from state.ids import short
from tools.git import GitRepository, Identity, Scratch, branches, git, identity, scratch
from tools.unified import EXECUTABLE, FILE, LINK, FileChange, Mode, Version, is_binary

_TRAILER = "DevFix-Effect"
_MODES: dict[str, Mode] = {FILE: FILE, EXECUTABLE: EXECUTABLE, LINK: LINK}
_NESTED = "160000"
_BRANCHES_TRIED = 100


class Commit(NamedTuple):
    """Where the patch is."""

    commit: str
    branch: str
    """Its short name; empty where the branch that was made has moved on or is gone."""


class CommitMessage(NamedTuple):
    subject: str
    run_id: str
    key: str
    """The idempotency key, kept in the message so that the commit can be found again."""


class _Entry(NamedTuple):
    mode: str
    object_id: str


Resolved = Mapping[str, Version | None]
"""What the commit shall hold at each changed path, from the work tree's top; None: nothing."""


async def check_commit(repository: GitRepository, *, parent: str, changes: Sequence[FileChange]) -> None:
    """Whether a commit can be made, without writing anything. Raises EffectRefused as `make_commit`."""
    async with scratch(repository) as work:
        await _resolve(work, repository, parent, changes)


async def make_commit(
    repository: GitRepository, *, parent: str, changes: Sequence[FileChange], message: CommitMessage
) -> Commit:
    """Idempotent by the message's key, and the same id each time.

    Raises:
        EffectRefused: the patch doesn't fit the commit that the run began from; the message names the paths.
        GitFailed: git can't, for a reason of its own.
    """
    if made := await find_commit(repository, parent=parent, key=message.key):
        return made
    async with scratch(repository) as work:
        resolved = await _resolve(work, repository, parent, changes)
        tree = await _write_tree(work, parent, resolved)
        commit = await _write_commit(work, tree, parent, await identity(repository), message)
    branch = await _make_branch(repository, commit, short(message.run_id))
    return Commit(commit, branch)


async def find_commit(repository: GitRepository, *, parent: str, key: str) -> Commit | None:
    """The commit of this key on any local branch; None where there certainly is none.

    Raises GitFailed.
    """
    named = await branches(repository)
    wanted = f"{_TRAILER}: {_one_line(key)}"
    asked = "".join(f"{tip}\n" for tip in {*named.values()}) + f"^{parent}\n"
    async with scratch(repository) as work:
        found = await work.run(
            "rev-list", "--fixed-strings", f"--grep={wanted}", "--stdin", stdin=asked.encode(), timeout=300
        )
        for commit in found.decode().split():
            text = (await work.run("cat-file", "commit", commit)).decode("utf-8", "replace")
            if wanted in text.splitlines():
                return Commit(commit, _branch_at(named, commit))
    return None


def _branch_at(named: Mapping[str, str], commit: str) -> str:
    names = [name.removeprefix("refs/heads/") for name, tip in named.items() if tip == commit]
    return next((name for name in names if name.startswith("devfix")), names[0] if names else "")


# What the commit shall hold


async def _resolve(work: Scratch, repository: GitRepository, parent: str, changes: Sequence[FileChange]) -> Resolved:
    tree = await _tree(work, parent)
    resolved: dict[str, Version | None] = {}
    refused: list[str] = []
    for change in changes:
        path = repository.prefix + change.path
        try:
            _refuse_nested(tree, path)
            resolved[path] = await _merged(work, await _version(work, tree.get(path)), change)
        except _UnfitError as unfit:
            refused.append(f"{change.path} ({unfit})")
    if refused:
        raise EffectRefused(
            f"the patch doesn't fit the commit {parent[:10]} that the run began from: {', '.join(refused)}; "
            "nothing was committed: commit your own changes and run again, or run without --commit"
        )
    return resolved


class _UnfitError(Exception):
    """Why one path can't be in the commit."""


async def _tree(work: Scratch, commit: str) -> dict[str, _Entry]:
    listed = await work.run("ls-tree", "-r", "-z", "--full-tree", commit)
    entries: dict[str, _Entry] = {}
    for line in listed.split(b"\0")[:-1]:
        facts, path = line.split(b"\t", 1)
        mode, _, object_id = facts.decode().split(" ")
        entries[os.fsdecode(path)] = _Entry(mode, object_id)
    return entries


def _refuse_nested(tree: Mapping[str, _Entry], path: str) -> None:
    parts = path.split("/")
    for count in range(1, len(parts) + 1):
        entry = tree.get("/".join(parts[:count]))
        if entry is not None and entry.mode == _NESTED:
            raise _UnfitError("it lies in a submodule, which has commits of its own")


async def _version(work: Scratch, entry: _Entry | None) -> Version | None:
    if entry is None:
        return None
    return Version(_MODES[entry.mode], await work.run("cat-file", "blob", entry.object_id, timeout=300))


async def _merged(work: Scratch, in_commit: Version | None, change: FileChange) -> Version | None:
    old, new = change.old, change.new
    if in_commit in (old, new):
        return new
    if in_commit is None or old is None:
        raise _UnfitError("it is not in the commit" if in_commit is None else "the commit has another file there")
    if LINK in (in_commit.mode, old.mode, new.mode if new else FILE):
        raise _UnfitError("the commit has another version of it")
    # A checkout may have turned LF into CRLF; the commit's form is what belongs into a commit.
    turned = _without_returns(old.data) == in_commit.data
    if new is None:
        if turned or old.data == in_commit.data:
            return None
        raise _UnfitError("the commit has another version of it")
    mode = new.mode if new.mode != old.mode else in_commit.mode
    if old.data == in_commit.data:
        return Version(mode, new.data)
    if turned:
        return Version(mode, _without_returns(new.data))
    return Version(mode, await _merge_text(work, in_commit.data, old.data, new.data))


def _without_returns(data: bytes) -> bytes:
    return data if is_binary(data) else data.replace(b"\r\n", b"\n")


async def _merge_text(work: Scratch, ours: bytes, base: bytes, theirs: bytes) -> bytes:
    if any(is_binary(each) for each in (ours, base, theirs)):
        raise _UnfitError("the commit has another version of it")
    for name, data in (("ours", ours), ("base", base), ("theirs", theirs)):
        (work.root / name).write_bytes(data)
    merged = await work.try_run("merge-file", "-p", "-q", "ours", "base", "theirs")
    if merged.code != 0:
        raise _UnfitError("the same lines differ from the commit's")
    return merged.output


# Writing


async def _write_tree(work: Scratch, parent: str, resolved: Resolved) -> str:
    await work.run("read-tree", parent)
    lines = []
    # Removals first, so that a file can take a folder's place.
    for path, version in sorted(resolved.items(), key=lambda item: item[1] is not None):
        name = os.fsencode(path)
        if version is None:
            lines.append(b"0 %s\t%s\0" % (b"0" * 40, name))
            continue
        stored = await work.run("hash-object", "-w", "--no-filters", "--stdin", stdin=version.data, timeout=300)
        lines.append(b"%s %s\t%s\0" % (version.mode.encode(), stored.strip(), name))
    await work.run("update-index", "-z", "--index-info", stdin=b"".join(lines))
    return (await work.run("write-tree", "--missing-ok")).decode().strip()


async def _write_commit(work: Scratch, tree: str, parent: str, who: Identity, message: CommitMessage) -> str:
    # The parent's date, so that the commit's id is the same whenever and wherever it is made again.
    date = await _date_of(work, parent)
    environment = {
        f"GIT_{role}_{fact}": value
        for role in ("AUTHOR", "COMMITTER")
        for fact, value in (("NAME", who.name), ("EMAIL", who.email), ("DATE", date))
    }
    subject = _one_line(message.subject) or "Fix the failing tests"
    text = f"{subject}\n\nDevFix-Run: {message.run_id}\n{_TRAILER}: {_one_line(message.key)}\n"
    made = await work.run(
        "commit-tree", tree, "-p", parent, "-F", "-", stdin=text.encode("utf-8", "replace"), env=environment
    )
    return made.decode().strip()


async def _date_of(work: Scratch, commit: str) -> str:
    headers = (await work.run("cat-file", "commit", commit)).split(b"\n\n", 1)[0]
    line = next(each for each in headers.split(b"\n") if each.startswith(b"committer "))
    seconds, zone = line.decode("utf-8", "replace").rsplit(" ", 2)[1:]
    return f"@{seconds} {zone}"


async def _make_branch(repository: GitRepository, commit: str, run: str) -> str:
    taken = {name.removeprefix("refs/heads/") for name in await branches(repository)}
    # A branch called `devfix` leaves no room for `devfix/…`.
    base = f"devfix-{run}" if "devfix" in taken else f"devfix/{run}"
    for number in range(1, _BRANCHES_TRIED):
        name = base if number == 1 else f"{base}-{number}"
        if name in taken or any(each.startswith(f"{name}/") for each in taken):
            continue
        reference = f"refs/heads/{name}"
        # Made only if it is not there: somebody may have made it this moment.
        await git(
            "update-ref", "-m", "devfix: the approved patch", reference, commit, repository.no_object,
            repository=repository,
        )  # fmt: skip
        return name
    raise GitFailed(f"{_BRANCHES_TRIED} branches named {base} exist; delete some of them")


def _one_line(text: str) -> str:
    """So that no text can add a trailer of its own."""
    return " ".join("".join(each if each.isprintable() else " " for each in text).split())
