"""The folders that attempts work in: one an attempt, made from a snapshot, never shared with a later attempt."""

from __future__ import annotations

import asyncio
import shutil
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from state.snapshots import SnapshotCache, Snapshots
from tools.workspace import Workspace


class Workspaces:
    """Makes, finds and removes workspaces below `home/workspaces/RUN/EPOCH`."""

    def __init__(self, *, home: Path, snapshots: Snapshots) -> None:
        self._home = home / "workspaces"
        self._snapshots = snapshots
        self._locks: defaultdict[Path, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._content: dict[Path, str] = {}
        self._caches: defaultdict[Path, SnapshotCache] = defaultdict(SnapshotCache)

    def folder(self, run_id: str, epoch: int) -> Path:
        return self._home / run_id / str(epoch) / "workspace"

    async def at(self, run_id: str, epoch: int, *, repository: str, snapshot: str | None) -> Workspace:
        """The attempt's workspace with just this content; a folder that holds it already is used as it is."""
        root = self.folder(run_id, epoch)
        async with self._locks[root]:
            if not await asyncio.to_thread(root.is_dir):
                self._content.pop(root, None)  # somebody removed it: it is made anew from its snapshot
            await asyncio.to_thread(root.mkdir, parents=True, exist_ok=True, mode=0o700)
            if snapshot is not None and self._content.get(root) != snapshot:
                self._content.pop(root, None)
                await self._snapshots.restore(snapshot, root)
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
        await asyncio.to_thread(shutil.rmtree, root, ignore_errors=True)
        await asyncio.to_thread(root.mkdir, parents=True, mode=0o700)
        try:
            await self._snapshots.restore(snapshot, root)
            yield Workspace(root=root, repository=Path(repository) if repository else root)
        finally:
            await asyncio.to_thread(shutil.rmtree, root, ignore_errors=True)

    async def leave(self, run_id: str, epoch: int, *, ended: bool) -> None:
        """Forget an attempt's folder: a waiting run's stays for people to look at, an ended run's is removed."""
        root = self.folder(run_id, epoch)
        for known in (self._content, self._locks, self._caches):
            known.pop(root, None)
        if ended:
            await asyncio.to_thread(shutil.rmtree, self._home / run_id, ignore_errors=True)

    async def discard_former(self, run_id: str, epoch: int) -> None:
        """Remove the folders of attempts whose holders are known to be dead."""
        for folder in await asyncio.to_thread(self._former, run_id, epoch):
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)

    def _former(self, run_id: str, epoch: int) -> list[Path]:
        home = self._home / run_id
        return [each for each in home.iterdir() if each.name != str(epoch)] if home.is_dir() else []
