"""What a worker leaves to others: runs that it can't go on with, where another one may."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from scripts.bootstrap import Application
from scripts.resuming import Raise, leave_to_a_worker, make_ready
from scripts.starting import begin
from scripts.worker import Worker
from state.agent_state import RunInput
from state.ids import short
from tests.helpers.app import application_on
from tests.helpers.endpoint import endpoint, saying

MODEL = "openai:some-model"


@pytest.fixture
async def application(database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Application]:
    """Without a key, and with an endpoint that asks for one."""
    monkeypatch.setattr("scripts.worker.ELSEWHERE_SECONDS", 1)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    async with endpoint(saying(content="I would rather talk.")) as server:
        made = application_on(
            database_url,
            tmp_path,
            models={MODEL: {"base_url": server.url, "key_env": "SOMEBODYS_KEY"}},
        )
        await made.services.open()
        yield made
        await made.services.close()


class Working:
    """A worker at work."""

    def __init__(self) -> None:
        self.told = list[str]()
        self._told_more = asyncio.Event()

    @asynccontextmanager
    async def on(self, application: Application) -> AsyncIterator[None]:
        worker = Worker(application, concurrency=1, tell=self._tell)
        task = asyncio.create_task(worker.run())
        try:
            yield
        finally:
            worker.stop()
            await task

    async def until(self, words: str) -> None:
        async with asyncio.timeout(15):
            while not any(words in line for line in self.told):
                self._told_more.clear()
                await self._told_more.wait()

    def _tell(self, line: str) -> None:
        self.told.append(line)
        self._told_more.set()


async def queued(application: Application, letters: Path) -> str:
    given = RunInput(job="notes", model=MODEL, options={"letters": str(letters)})
    return await begin(application, given, due_seconds=0)


async def standing(application: Application, run_id: str) -> str:
    return str((await application.services.runs.get(run_id)).standing)


async def test_a_run_whose_models_key_a_worker_lacks_is_left_to_one_that_has_it(
    application: Application, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is told of once, however often the run is offered again."""
    run_id, working = await queued(application, tmp_path / "letters"), Working()
    offers, put, thrice = list[str](), application.queue.put, asyncio.Event()

    async def counted(run: str, *, after_seconds: int = 0) -> None:
        await put(run, after_seconds=after_seconds)
        offers.append(run)
        if len(offers) == 3:
            thrice.set()

    monkeypatch.setattr(application.queue, "put", counted)
    async with working.on(application):
        await thrice.wait()
        assert await standing(application, run_id) == "queued: new"
        (left,) = [line for line in working.told if line.startswith("run ")]
        assert left.startswith(f"run {short(run_id)} is left to another worker: the model {MODEL} needs SOMEBODYS_KEY")
        monkeypatch.setenv("SOMEBODYS_KEY", "sk-devfix-test")
        await working.until("waiting: escalation")


async def test_a_run_that_was_left_goes_on_with_another_model(application: Application, tmp_path: Path) -> None:
    """As soon as a person names one that needs no key; without that, the foreground fails it with the reason."""
    run_id, working = await queued(application, tmp_path / "letters"), Working()
    await application.agent().ainvoke(None, {"configurable": {"thread_id": run_id}})
    failed = await application.services.runs.get(run_id)
    assert str(failed.standing) == "failed: model_unavailable"
    assert failed.report is not None
    assert "needs SOMEBODYS_KEY" in str(failed.report["summary"])

    (script := tmp_path / "script.json").write_text(json.dumps([{"content": "I would rather talk."}] * 5))
    await make_ready(application, failed, Raise(model=f"scripted:{script}"))
    await leave_to_a_worker(application, run_id)
    async with working.on(application):
        await working.until("waiting: escalation")
