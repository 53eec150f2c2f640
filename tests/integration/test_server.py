"""What the LangGraph dev server needs of the graph, without the server: see tests/acceptance for the real one."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.types import Command

from scripts.bootstrap import Application
from state.checkpointer import FencedSaver
from tests.helpers.app import application_on

ALLOWED = {"os.stat", "os.listdir", "os.remove", "threading.Lock.acquire"}
ALLOWED |= {
    f"io.{kind}.{call}" for kind in ("BufferedReader", "BufferedWriter", "TextIOWrapper") for call in ("read", "write")
}
"""What the dev server lets pass; everything else that blocks ends the run there."""


@pytest.fixture
async def application(database_url: str, tmp_path: Path) -> AsyncIterator[Application]:
    application = application_on(database_url, tmp_path)
    await application.database.open()
    yield application
    await application.services.close()


@contextmanager
def no_blocking() -> Iterator[None]:
    """As the dev server: a blocking call in the event loop raises."""
    blockbuster = pytest.importorskip("blockbuster", reason="comes with the dev server: pip install '.[serve]'")
    guard = blockbuster.BlockBuster(excluded_modules=[])
    for name in [name for name in guard.functions if name in ALLOWED or name.startswith("os.path.")]:
        del guard.functions[name]
    guard.activate()
    try:
        yield
    finally:
        guard.deactivate()


def repository(folder: Path) -> Path:
    root = folder / "repository"
    root.mkdir()
    (root / "adder.py").write_text("def add(a, b):\n    return a - b\n")
    (root / "test_adder.py").write_text("from adder import add\n\n\ndef test_add():\n    assert add(2, 3) == 5\n")
    return root


def script(folder: Path) -> str:
    path = folder / "script.json"
    edit = {"name": "edit_file", "args": {"path": "adder.py", "old": "a - b", "new": "a + b"}}
    looks = [{"name": "list_files"}, {"name": "read_file", "args": {"path": "adder.py"}}]
    search = {"name": "search_text", "args": {"pattern": "add"}}
    apply = {"name": "apply_patch_to_repository", "args": {"summary": "add adds"}}
    turns: list[dict[str, Any]] = [{"tool_calls": calls} for calls in ([*looks, search], [edit], [apply])]
    path.write_text(json.dumps(turns))
    return f"scripted:{path}"


def commit_all(root: Path) -> None:
    commit = ["-c", "user.name=ada", "-c", "user.email=ada@localhost", "commit", "--quiet", "--message", "first"]
    for arguments in (["init", "--quiet"], ["add", "."], commit):
        subprocess.run(["git", *arguments], cwd=root, check=True)


@pytest.mark.parametrize("way", ["files", "commit", "patch_out"])
async def test_no_step_of_a_run_blocks_the_event_loop(application: Application, tmp_path: Path, way: str) -> None:
    """Every tool of the repair job, and each way to hand the patch over, under the dev server's guard."""
    root = repository(tmp_path)
    if way == "commit":
        commit_all(root)
    given = {"repository": str(root), "model": script(tmp_path), "commit": way == "commit"}
    given |= {"patch_out": str(tmp_path / "out.patch")} if way == "patch_out" else {}
    agent, config = application.agent(), {"configurable": {"thread_id": "blocking"}}
    with no_blocking():
        waiting = await agent.ainvoke(given, config)
        assert waiting["__interrupt__"]
        ended = await agent.ainvoke(Command(resume={"decisions": [{"type": "approve"}]}), config)
    assert (ended["status"], ended["reason"]) == ("completed", "done")


class ServersWrapper(BaseCheckpointSaver[str]):
    """How the dev server hands a custom saver to the graph: it hands on what it does not know."""

    def __init__(self, inner: FencedSaver) -> None:
        super().__init__()
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


async def test_the_servers_wrapper_never_stands_between_graph_and_saver(application: Application) -> None:
    """It numbers versions in decimal, ours are hexadecimal: a run that began elsewhere would go backwards."""
    saver = application.saver()
    copied = application.agent().copy(update={"checkpointer": ServersWrapper(saver), "store": None})
    assert copied.checkpointer is saver
    assert copied.services is application.services
    assert application.agent().copy(update={"checkpointer": None}).checkpointer is None


def test_importing_the_servers_module_opens_nothing(tmp_path: Path) -> None:
    """No file, no word, no setting read: a setting that can't be read would be an error."""
    home = tmp_path / "home"
    environment = {"DEVFIX_HOME": str(home), "DEVFIX_LEASE_SECONDS": "not a number", "PATH": "/usr/bin:/bin"}
    command = [sys.executable, "-W", "ignore", "-c", "import scripts.server"]
    done = subprocess.run(command, env=environment, capture_output=True, check=False, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert not home.exists()
