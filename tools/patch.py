"""The repair job's one gated effect: the approved patch goes into the user's folder, a branch, or a file. Once.

What will be done is fixed when the question is asked (`bind`): the two snapshots, the paths, the diff, the mode.
So the approval's digest covers it, and the effect itself has nothing left to decide. The folder is not touched
before.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from pydantic import JsonValue

from state.errors import BadRepository, EffectRefused
from state.ids import short
from tools.carry import Conflict, FolderChanges, PatchConflict, apply_changes, forget, look
from tools.carry import take_back as carry_back
from tools.changes import load_changes, no_longer_covered
from tools.commit import CommitMessage, check_commit, find_commit, make_commit
from tools.git import GitRepository, git_program, head, open_repository
from tools.journal import Journal
from tools.patch_file import PatchFile, check_patch_file
from tools.registry import Found, ToolContext, ToolResult, tool
from tools.unified import FileChange, render

if TYPE_CHECKING:
    from state.snapshots import Snapshots

_INLINE_LIMIT = 32 * 1024
"""Bytes; a longer diff is kept as an artifact."""
_CONFLICTS_SHOWN = 3
_CONFLICT_LINES = 24


@dataclass(frozen=True)
class _Mode:
    """Where the patch goes."""

    commit: bool
    patch_out: str | None

    @classmethod
    def of(cls, work: Mapping[str, Any]) -> _Mode:
        return cls(bool(work.get("commit")), work.get("patch_out"))

    @property
    def folder(self) -> bool:
        """The files themselves change only where nothing else was asked for."""
        return not self.commit and self.patch_out is None

    @property
    def name(self) -> str:
        parts = ["commit"] * self.commit + ["patch_out"] * (self.patch_out is not None)
        return "+".join(parts) or "files"


async def check_patch_options(repository: Path, *, commit: bool, patch_out: str | None) -> None:
    """Whether the patch could be delivered as asked, before any work begins.

    Raises:
        BadRepository: `commit` without git, in a folder that is no git repository, or before its first commit; a
            folder that may not be written, and no other way to deliver the patch.
        Refused: `patch_out` can't be written.
    """
    if commit:
        if await asyncio.to_thread(git_program) is None:
            raise BadRepository("--commit needs git, which is not installed; nothing was changed")
        if await open_repository(repository) is None:
            raise BadRepository(f"--commit needs a git repository, and {repository} is none; run without --commit")
        if await head(repository) is None:
            raise BadRepository(f"--commit needs a first commit to build on, and {repository} has none yet")
    if patch_out is not None:
        await asyncio.to_thread(check_patch_file, Path(patch_out))
    if commit or patch_out is not None:
        return
    if not await asyncio.to_thread(os.access, repository, os.W_OK | os.X_OK):
        raise BadRepository(
            f"{repository} is read-only, so no patch could be applied there; use --patch-out FILE to get it as a file"
        )


async def unified_diff(snapshots: Snapshots, old: str, new: str) -> str:
    """The difference of two snapshots for reading: git's form, binary files named, undecodable bytes as escapes.

    Not made safe for a terminal: see `tools.unified.shown`.
    """
    changes = await load_changes(snapshots, old, new)
    return await asyncio.to_thread(_text, changes.files)


async def take_back(context: ToolContext) -> bool:
    """For a run that ends without settling this effect: undo what an interrupted call wrote into the folder.

    False where there was nothing to undo, or the patch is there whole. Raises EffectRefused: the folder is gone.
    """
    effect = await _Effect.of(context)
    if not effect.mode.folder:
        return False
    return await asyncio.to_thread(carry_back, effect.root, effect.changes, journal=effect.journal)


async def _bind(arguments: Mapping[str, Any], context: ToolContext) -> Mapping[str, JsonValue]:
    """What exactly will be done. Raises EffectRefused where that is nothing, or could not be done."""
    base, snapshot = str(context.work["base"]), context.snapshot
    if snapshot is None or snapshot == base:
        raise EffectRefused("there is nothing to apply: the workspace holds just what the repository held")
    changes = await load_changes(context.snapshots, base, snapshot)
    _refuse_unfit(changes)
    for path, why in (await no_longer_covered(context.snapshots, base, snapshot)).items():
        raise EffectRefused(f"{path} was changed, but can't be in a patch: {why}; change it back, or leave it")
    mode = _Mode.of(context.work)
    if mode.commit:
        repository, parent = await _repository_of(context)
        await check_commit(repository, parent=parent, changes=changes.files)
    text = await asyncio.to_thread(_text, changes.files)
    encoded = text.encode()
    inline = len(encoded) <= _INLINE_LIMIT
    return {
        "base": base,
        "snapshot": snapshot,
        "paths": [change.path for change in changes.files],
        "mode": mode.name,
        "repository": str(context.work["repository"]),
        "head": context.work.get("head") if mode.commit else None,
        "patch_out": mode.patch_out,
        "diff": text if inline else None,
        "diff_artifact": None if inline else await context.artifacts.put(encoded),
    }


async def _verify(arguments: Mapping[str, Any], context: ToolContext) -> Found:
    """The receipt, where all that was asked for is there; None where something is missing, which a further
    call completes: it finds each path as it was or as it shall be."""
    effect = await _Effect.of(context)
    try:
        return await effect.found()
    except EffectRefused:
        # The folder is gone or busy: whoever performs again is told so, in words for a person.
        return None


@tool(kind="effect", timeout=300.0, verify=_verify, bind=_bind)
async def apply_patch_to_repository(summary: str, *, context: ToolContext) -> ToolResult:
    """Hand over your finished changes: a person sees the diff, and with their approval it is applied to their
    repository. Call it once, when the tests pass. `summary` is one line that says what was wrong and what you
    changed."""
    effect = await _Effect.of(context)
    receipt = await effect.perform(summary)
    return ToolResult(content=f"The patch was {handed_over(receipt)}.", facts=receipt)


@dataclass(frozen=True)
class _Effect:
    """One approved patch on its way to where it was asked for."""

    context: ToolContext
    mode: _Mode
    changes: FolderChanges
    journal: Journal

    @classmethod
    async def of(cls, context: ToolContext) -> _Effect:
        """Built from what was bound alone, so that the workspace's later content has no part in it."""
        bound = context.bound
        changes = await load_changes(context.snapshots, str(bound["base"]), str(bound["snapshot"]))
        _refuse_unfit(changes)
        names = str(bound["mode"]).split("+")
        patch_out = cast("str | None", bound.get("patch_out"))
        return cls(context, _Mode("commit" in names, patch_out), changes, Journal(context.settings.home, context.key))

    @property
    def root(self) -> Path:
        return Path(str(self.context.bound["repository"]))

    async def perform(self, summary: str) -> dict[str, JsonValue]:
        receipt = self._receipt()
        if self.mode.folder:
            await self._apply()
        if self.mode.patch_out is not None:
            await asyncio.to_thread(PatchFile(Path(self.mode.patch_out)).write, self._patch())
        if self.mode.commit:
            repository, parent = await _repository_of(self.context)
            message = CommitMessage(summary, self.context.run_id, self.context.key)
            made = await make_commit(repository, parent=parent, changes=self.changes.files, message=message)
            receipt |= {"commit": made.commit, "branch": made.branch}
        return receipt

    async def found(self) -> Found:
        receipt = self._receipt()
        if self.mode.folder and not await self._is_applied():
            return None
        if self.mode.patch_out is not None:
            file = PatchFile(Path(self.mode.patch_out))
            if not await asyncio.to_thread(file.holds, self._patch()):
                return None
        if self.mode.commit:
            repository, parent = await _repository_of(self.context)
            made = await find_commit(repository, parent=parent, key=self.context.key)
            if made is None:
                return None
            receipt |= {"commit": made.commit, "branch": made.branch}
        return receipt

    async def _apply(self) -> None:
        try:
            await asyncio.to_thread(apply_changes, self.root, self.changes, journal=self.journal)
        except PatchConflict as conflict:
            kept = await self.context.artifacts.put(self._patch())
            view = await asyncio.to_thread(_three_ways, conflict.conflicts)
            raise EffectRefused(
                f"{conflict}: the patch is kept as artifact {kept}, and `devfix show {short(self.context.run_id)}` "
                f"prints it\n\n{view}"
            ) from conflict

    async def _is_applied(self) -> bool:
        standing = await asyncio.to_thread(look, self.root, self.changes, journal=self.journal)
        if any(each != "done" for each in standing.values()):
            return False
        await asyncio.to_thread(forget, self.root, self.journal)
        return True

    def _patch(self) -> bytes:
        return render(self.changes.files, binary=True)

    def _receipt(self) -> dict[str, JsonValue]:
        return {
            "paths": [change.path for change in self.changes.files],
            "mode": self.mode.name,
            "repository": str(self.root),
            "commit": None,
            "branch": None,
            "patch_file": self.mode.patch_out,
            "snapshot": self.context.bound["snapshot"],
        }


async def _repository_of(context: ToolContext) -> tuple[GitRepository, str]:
    folder = Path(context.work["repository"])
    repository, parent = await open_repository(folder), context.work.get("head")
    if repository is None or not parent:
        raise EffectRefused(f"{folder} is no git repository (any more), so there is nothing to commit to")
    return repository, str(parent)


def _refuse_unfit(changes: FolderChanges) -> None:
    """Git runs commands from inside `.git`, so no patch may reach there, in whatever letters or nested repository."""
    if not changes.files:
        raise EffectRefused("there is nothing to apply: no file differs from the repository's")
    for change in changes.files:
        if any(part.casefold() in (".git", "..") or not part for part in change.path.split("/")):
            raise EffectRefused(f"the patch would change {change.path}, inside a git folder; nothing was written")


def _text(changes: Sequence[FileChange]) -> str:
    return render(changes, binary=False).decode("utf-8", "backslashreplace")


def _three_ways(conflicts: Sequence[Conflict]) -> str:
    """What the person did and what the patch does to each path, since the run began."""
    shown = [_three_way(each) for each in conflicts[:_CONFLICTS_SHOWN]]
    more = len(conflicts) - len(shown)
    return "\n\n".join([*shown, f"and {more} more"] if more else shown)


def _three_way(conflict: Conflict) -> str:
    change = conflict.change
    yours = _shortened(_text([FileChange(change.path, change.old, conflict.yours)]))
    patch = _shortened(_text([change]))
    return f"{change.path}: {conflict.why}\n--- yours\n{yours or conflict.why}\n--- the patch\n{patch}"


def _shortened(text: str) -> str:
    lines = text.splitlines()
    cut = [*lines[:_CONFLICT_LINES], f"… {len(lines) - _CONFLICT_LINES} more lines"]
    return "\n".join(lines if len(lines) <= _CONFLICT_LINES else cut)


def handed_over(receipt: Mapping[str, JsonValue]) -> str:
    """Where the patch went, as a receipt says it: "applied to 1 file in ..." or "written to ..."."""
    paths = cast("list[str]", receipt["paths"])
    files = f"{len(paths)} file{'s' * (len(paths) != 1)}"
    done = []
    if receipt["mode"] == "files":
        done.append(f"applied to {files} in {receipt['repository']}")
    if receipt["patch_file"]:
        done.append(f"written to {receipt['patch_file']}")
    if receipt["commit"]:
        done.append(f"committed as {str(receipt['commit'])[:10]} on branch {receipt['branch'] or '(renamed)'}")
    return " and ".join(done)
