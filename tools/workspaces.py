"""The folders that attempts work in: one an attempt, made from a snapshot, never shared with a later attempt."""

from __future__ import annotations

import asyncio
import os
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from state.errors import HomeUnwritable, SnapshotFailed
from state.holder import is_gone
from state.runs import Runs
from state.settings import make_home
from state.snapshots import SnapshotCache, Snapshots
from tools.scratch import remove_tree
from tools.workspace import Workspace


class Workspaces:
    """Makes, finds and removes workspaces below `home/workspaces/RUN/EPOCH`."""

    def __init__(self, *, home: Path, snapshots: Snapshots) -> None:
        self._home = home / "workspaces"
        self._snapshots = snapshots
        self._locks: defaultdict[Path, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._content: dict[Path, str] = {}
        self._caches: defaultdict[Path, SnapshotCache] = defaultdict(SnapshotCache)
        self._swept = False

    def folder(self, run_id: str, epoch: int) -> Path:
        return self._home / run_id / str(epoch) / "workspace"

    async def at(self, run_id: str, epoch: int, *, repository: str, snapshot: str | None) -> Workspace:
        """The attempt's workspace with just this content; a folder that holds it already is used as it is."""
        root = self.folder(run_id, epoch)
        async with self._locks[root]:
            if not await asyncio.to_thread(root.is_dir):
                self._content.pop(root, None)  # somebody removed it: it is made anew from its snapshot
            await self._make(root)
            if snapshot is not None and self._content.get(root) != snapshot:
                self._content.pop(root, None)
                await self._restore(snapshot, root)
                self._content[root] = snapshot
        return Workspace(root=root, repository=Path(repository) if repository else root)

    async def take(self, workspace: Workspace) -> str:
        """The snapshot of the workspace as it is now."""
        async with self._locks[workspace.root]:
            digest = await self._snapshots.take(workspace.root, cache=self._caches[workspace.root])
            self._content[workspace.root] = digest
        return digest

    @asynccontextmanager
    async def fresh(self, run_id: str, epoch: int, *, repository: str, snapshot: str) -> AsyncIterator[Workspace]:
        """A new folder with this content, for evidence that owes nothing to what was run before."""
        root = self.folder(run_id, epoch).with_name(f"fresh-{snapshot[:12]}")
        await asyncio.to_thread(remove_tree, root)
        await self._make(root)
        try:
            await self._restore(snapshot, root)
            yield Workspace(root=root, repository=Path(repository) if repository else root)
        finally:
            await asyncio.to_thread(remove_tree, root)

    async def _make(self, root: Path) -> None:
        try:
            await asyncio.to_thread(make_home, self._home.parent)
            await asyncio.to_thread(_make, root)
        except OSError as error:
            raise HomeUnwritable.because(self._home, error.strerror) from error

    async def _restore(self, snapshot: str, root: Path) -> None:
        try:
            await self._snapshots.restore(snapshot, root)
        except SnapshotFailed as error:
            if isinstance(error.__cause__, OSError):
                raise HomeUnwritable.because(self._home, error.__cause__.strerror) from error
            raise

    async def leave(self, run_id: str, epoch: int, *, ended: bool) -> None:
        """Forget an attempt's folder: a waiting run's stays for people to look at, an ended run's is removed."""
        root = self.folder(run_id, epoch)
        for known in (self._content, self._locks, self._caches):
            known.pop(root, None)
        if ended:
            await self.discard_former(run_id, epoch + 1)

    async def discard_former(self, run_id: str, epoch: int) -> None:
        """Remove the folders of attempts before this one, whose holders are known to be dead."""
        former = [each for each in await asyncio.to_thread(self._epochs, run_id) if each < epoch]
        await asyncio.to_thread(self._discard, run_id, former)

    async def sweep(self, runs: Runs) -> None:
        """Remove, once a process, what killed processes left: the folders of attempts that nobody needs or holds.

        A waiting run's newest folder stays. So do those of runs that this database does not know: several may share
        a home. Two processes may sweep at once.
        """
        if self._swept:
            return
        self._swept = True
        found = await asyncio.to_thread(self._found)
        for run_id, epoch, former in await runs.past(found) if found else ():
            if epoch in found[run_id] and (former.ended or is_gone(former.holder)):
                await asyncio.to_thread(self._discard, run_id, [epoch])

    def _found(self) -> dict[str, list[int]]:
        return {run_id: self._epochs(run_id) for run_id in _names(self._home)}

    def _epochs(self, run_id: str) -> list[int]:
        return [int(name) for name in _names(self._home / run_id) if name.isdecimal()]

    def _discard(self, run_id: str, epochs: list[int]) -> None:
        for epoch in epochs:
            remove_tree(self.folder(run_id, epoch).parent)
        with suppress(OSError):  # another attempt has a folder there, or another process was first
            (self._home / run_id).rmdir()


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []  # there is none, or another process has just removed it


def _make(root: Path) -> None:
    with suppress(FileNotFoundError):  # whoever leaves the run removes its folder while it is empty
        root.mkdir(parents=True, exist_ok=True, mode=0o700)
    root.mkdir(parents=True, exist_ok=True, mode=0o700)
