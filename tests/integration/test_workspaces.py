"""The folders that attempts leave behind: those that somebody needs stay, all others go."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path
from typing import Any

from scripts.bootstrap import Application
from state.holder import Holder, this_process
from state.status import Standing
from tests.helpers.graphs import chain

CHILD = """
import asyncio, os, signal, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from tests.helpers.app import application_on
from tests.helpers.graphs import chain

async def main():
    application = application_on(sys.argv[2], Path(sys.argv[3]))
    workspaces = application.services.workspaces
    async def work(state):
        workspace = await workspaces.at("t", 1, repository="", snapshot=None)
        workspace.write("a.py", b"x = 1")
        (workspace.root / "locked").mkdir(mode=0o500)
        return {"seen": ["work"]}
    async def leave(*given, **options):
        os.kill(os.getpid(), signal.SIGKILL)
    workspaces.leave = leave
    await chain(application, work=work).ainvoke({"seen": []}, {"configurable": {"thread_id": "t"}})
asyncio.run(main())
"""


async def note(state: dict[str, Any]) -> dict[str, Any]:
    return {"seen": ["note"]}


def folders(tmp_path: Path) -> list[str]:
    home = tmp_path / "home" / "workspaces"
    return sorted(str(each.relative_to(home)) for each in home.glob("*/*")) if home.is_dir() else []


async def test_what_a_kill_after_settling_left_goes_with_the_next_process(
    application: Application, database_url: str, tmp_path: Path
) -> None:
    """SIGKILL between the run's end and leaving its workspace; the next process that works on any run removes it."""
    command = [sys.executable, "-c", CHILD, str(Path.cwd()), database_url, str(tmp_path)]
    child = await asyncio.create_subprocess_exec(*command)
    assert await child.wait() == -signal.SIGKILL
    assert folders(tmp_path) == ["t/1"]
    await chain(application, note=note).ainvoke({"seen": []}, {"configurable": {"thread_id": "another"}})
    assert str((await application.services.runs.get("t")).standing) == "completed: done"
    assert folders(tmp_path) == []
    assert list((tmp_path / "home" / "workspaces").iterdir()) == []


async def laid(application: Application, run_id: str, holder: Holder, standing: Standing | None) -> None:
    """One attempt with a folder, which settled so, or not at all."""
    runs, workspaces = application.services.runs, application.services.workspaces
    await runs.register(run_id)
    claim = await runs.claim(run_id, holder)
    await workspaces.at(run_id, claim.epoch, repository="", snapshot=None)
    if standing is not None:
        await runs.settle(run_id, claim.epoch, standing)


async def test_what_somebody_needs_or_may_hold_stays(application: Application, tmp_path: Path) -> None:
    """A waiting run's newest folder, a live attempt's, a resumed run's, and all of a run that nobody knows."""
    here, elsewhere = this_process("test"), Holder(host="elsewhere", boot="", pid=1, started="1")
    done, waiting = Standing("completed", "done"), Standing("waiting", "approval")
    await application.services.open()
    await laid(application, "ended", here, done)
    await laid(application, "waiting", here, waiting)
    await laid(application, "waiting", here, waiting)
    await laid(application, "live", here, None)
    await laid(application, "resumed", here, done)
    await laid(application, "resumed", here, None)
    await laid(application, "frozen", elsewhere, None)
    await application.services.runs.request_cancel("frozen", "somebody")
    (tmp_path / "home" / "workspaces" / "unknown" / "1").mkdir(parents=True)
    runs = application.services.runs
    await asyncio.gather(application.services.workspaces.sweep(runs), application_sweep(application))
    assert folders(tmp_path) == ["frozen/1", "live/1", "resumed/2", "unknown/1", "waiting/2"]


async def application_sweep(application: Application) -> None:
    """As another process does at the same time."""
    other = type(application.services.workspaces)(
        home=application.settings.home, snapshots=application.services.snapshots
    )
    await other.sweep(application.services.runs)


async def test_a_run_that_goes_on_while_its_former_attempt_leaves_keeps_its_folder(
    application: Application, tmp_path: Path
) -> None:
    """Another process resumed it in the moment between settling and leaving."""
    workspaces = application.services.workspaces
    for epoch in (1, 2):
        await workspaces.at("run", epoch, repository="", snapshot=None)
    await workspaces.leave("run", 1, ended=True)
    assert folders(tmp_path) == ["run/2"]
