"""The LangGraph dev server with real processes and signals: what the API shows of a run is what was saved."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from langgraph_sdk import get_client
from langgraph_sdk.client import LangGraphClient

from scripts.bootstrap import Application, build
from scripts.worker import Worker
from state.settings import Settings

pytest.importorskip("langgraph_cli", reason="the dev server is an extra: pip install '.[serve]'")
pytest.importorskip("langgraph_api", reason="the dev server is an extra: pip install '.[serve]'")

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(300)]

UP_SECONDS = 90
ADDER = '"""Adds."""\n\n\ndef add(a: int, b: int) -> int:\n    return a - b\n'
TESTS = (
    "import time\n\nfrom adder import add\n\n\ndef test_add():\n    time.sleep({seconds})\n    assert add(2, 3) == 5\n"
)
TURNS = [
    {"tool_calls": [{"name": "edit_file", "args": {"path": "adder.py", "old": "a - b", "new": "a + b"}}]},
    {"tool_calls": [{"name": "apply_patch_to_repository", "args": {"summary": "add adds"}}]},
]
APPROVE = {"resume": {"decisions": [{"type": "approve"}]}}


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


class Server:
    """One `langgraph dev` on a port of its own, as `make serve` starts it."""

    def __init__(self, folder: Path, database_url: str) -> None:
        self.environment = {**os.environ, "DEVFIX_HOME": str(folder / "home"), "DEVFIX_DATABASE_URL": database_url}
        self.log = folder / "server.log"
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"

    @asynccontextmanager
    async def up(self) -> AsyncIterator[LangGraphClient]:
        """Started, answering, and killed whole at the end."""
        with self._process() as process:
            await self._until_up(process)
            async with get_client(url=self.url) as client:
                yield client

    @contextmanager
    def _process(self) -> Iterator[subprocess.Popen[bytes]]:
        command = [sys.executable, "-m", "scripts.serve", "--port", str(self.port)]
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                command, env=self.environment, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True
            )
        self.process = process
        try:
            yield process
        finally:
            self.kill()

    def kill(self) -> None:
        """SIGKILL to the whole group: the server has no time to say goodbye."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    async def _until_up(self, process: subprocess.Popen[bytes]) -> None:
        async with asyncio.timeout(UP_SECONDS), httpx.AsyncClient() as client:
            while process.poll() is None:
                try:
                    if (await client.get(f"{self.url}/ok")).is_success:
                        return
                except httpx.TransportError:
                    await asyncio.sleep(0.2)
        pytest.fail(f"the server ended with {process.returncode}: {self.log.read_text()[-3000:]}")

    def devfix(self, *arguments: str) -> Any:
        """What a command prints, from a process of its own."""
        command = [sys.executable, "-c", "from scripts.cli import main; main()", *arguments, "--json"]
        done = subprocess.run(command, env=self.environment, capture_output=True, check=True, timeout=60)
        return json.loads(done.stdout)


@pytest.fixture
def server(database_url: str, tmp_path: Path) -> Server:
    return Server(tmp_path, database_url)


@pytest.fixture
async def application(database_url: str, tmp_path: Path) -> AsyncIterator[Application]:
    """What another process sees in the registry."""
    application = build(Settings(database_url=database_url, home=tmp_path / "home"), label="test")
    yield application
    await application.services.close()


def given(folder: Path, *, seconds: float = 0) -> dict[str, Any]:
    """A run's input: a repository of one defect, and a model that knows the way."""
    repository, script = folder / "repository", folder / "script.json"
    (repository / "tests").mkdir(parents=True)
    (repository / "adder.py").write_text(ADDER)
    (repository / "tests" / "test_adder.py").write_text(TESTS.format(seconds=seconds))
    script.write_text(json.dumps(TURNS))
    return {"repository": str(repository), "model": f"scripted:{script}", "goal": "make add add"}


async def ended(client: LangGraphClient, thread: str, **how: Any) -> Mapping[str, Any]:
    """The state that a run in this thread ends or waits with."""
    answer = await client.runs.wait(thread, "devfix", raise_error=False, **how)
    assert isinstance(answer, dict)
    return answer


async def standing(application: Application, run_id: str) -> str:
    return str((await application.services.runs.get(run_id)).standing)


async def until_standing(application: Application, run_id: str, wanted: str) -> None:
    async with asyncio.timeout(90):
        while True:
            if await standing(application, run_id) == wanted:
                return
            await asyncio.sleep(0.1)


async def until_running(application: Application, run_id: str) -> None:
    """Until the run has saved a step or two, and is in the middle of one."""
    async with asyncio.timeout(60):
        while True:
            if any(run.run_id == run_id and run.step > 2 for run in await application.services.runs.newest()):
                return
            await asyncio.sleep(0.1)


async def until_known(client: LangGraphClient, thread: str) -> None:
    """Until the restarted server has brought the thread back."""
    async with asyncio.timeout(60):
        while True:
            try:
                await client.threads.get(thread)
            except httpx.HTTPStatusError:
                await asyncio.sleep(0.2)
            else:
                return


async def test_a_run_outlives_the_servers_sigkill(server: Server, application: Application, tmp_path: Path) -> None:
    """Interrupted, killed at once, restarted: the thread is back with its question; the patch is applied once."""
    async with server.up() as client:
        schemas = await client.assistants.get_schemas((await client.assistants.search())[0]["assistant_id"])
        assert schemas["input_schema"]["properties"]["repository"]["description"]  # type: ignore[index,call-overload]
        thread = (await client.threads.create())["thread_id"]
        waiting = await ended(client, thread, input=given(tmp_path))
        assert waiting["__interrupt__"][0]["value"]["action_requests"][0]["name"] == "apply_patch_to_repository"
        run = await application.services.runs.get(thread)
        assert (run.goal, run.job, run.model) == ("make add add", "repair", f"scripted:{tmp_path / 'script.json'}")
        assert str(run.standing) == "waiting: approval"
        server.kill()

    async with server.up() as client:
        await until_known(client, thread)
        state = await client.threads.get_state(thread)
        assert len(state["interrupts"]) == 1
        done = await ended(client, thread, command=APPROVE)
        assert (done["status"], done["reason"]) == ("completed", "done")
        assert (await client.threads.get(thread))["status"] == "idle"
        async with httpx.AsyncClient() as http:
            health = (await http.get(f"{server.url}/devfix/health")).json()
        assert health["database"] == "ok"

    shown = await asyncio.to_thread(server.devfix, "show", thread)
    assert (shown["status"], shown["reason"]) == ("completed", "done")
    effects = await application.services.ledger.of(thread)
    assert [(effect.tool, effect.state) for effect in effects] == [("apply_patch_to_repository", "settled")]
    assert (tmp_path / "repository" / "adder.py").read_text() == ADDER.replace("a - b", "a + b")
    steps = await application.steps.of(thread)
    assert [step.number for step in steps] == list(range(1, len(steps) + 1))
    assert not (Path.cwd() / ".langgraph_api").exists()


async def test_cancels_bad_input_and_a_stopped_server(
    server: Server, application: Application, tmp_path: Path, database_url: str
) -> None:
    """A person's cancel is `cancelled`, a bad input an error in our words; a server that is stopped lets runs go."""
    slow = given(tmp_path, seconds=600)
    async with server.up() as client:
        thread = (await client.threads.create())["thread_id"]
        refused = await ended(client, thread, input={"repository": str(tmp_path / "nowhere")})
        assert f"there is no folder {tmp_path / 'nowhere'}" in refused["__error__"]["message"]
        assert await standing(application, thread) == "failed: invalid_state"

        thread = (await client.threads.create())["thread_id"]
        started = await client.runs.create(thread, "devfix", input=slow)
        await until_running(application, thread)
        await client.runs.cancel(thread, started["run_id"], wait=True)
        assert await standing(application, thread) == "cancelled: by_person"

        thread = (await client.threads.create())["thread_id"]
        await client.runs.create(thread, "devfix", input=slow)
        await until_running(application, thread)
        server.process.terminate()
        await asyncio.to_thread(server.process.wait, 60)
    assert await standing(application, thread) == "queued: released"
    with psycopg.connect(database_url) as connection:
        locks = connection.execute("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'").fetchone()
    assert locks == (0,)


async def test_workers_leave_the_servers_runs_alone_and_take_over_when_it_is_killed(
    server: Server, application: Application, tmp_path: Path
) -> None:
    """What is answered through the API goes on in the server; what it was at when it was killed, in a worker."""
    heard: list[str] = []
    worker = Worker(application, concurrency=2, tell=heard.append)
    working = asyncio.create_task(worker.run())
    async with server.up() as client:
        thread = (await client.threads.create())["thread_id"]
        await ended(client, thread, input=given(tmp_path / "first"))
        done = await ended(client, thread, command=APPROVE)
        assert (done["status"], done["reason"]) == ("completed", "done")
        assert not [line for line in heard if line.startswith("run ")]

        thread = (await client.threads.create())["thread_id"]
        await client.runs.create(thread, "devfix", input=given(tmp_path / "second", seconds=1))
        await until_running(application, thread)
        server.kill()
    await until_standing(application, thread, "waiting: approval")
    assert [line for line in heard if "is taken over: langgraph server" in line]
    steps = await application.steps.of(thread)
    assert [step.number for step in steps] == list(range(1, len(steps) + 1))
    worker.stop()
    await working
