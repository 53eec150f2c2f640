"""Each way in which a run waits or has ended, as a real run: its report, and commands to be typed as they stand."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shlex
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import typer

from graph.jobs import Verdict
from graph.report import commands
from scripts.cli.app import app
from scripts.cli.output import plain
from scripts.facts import facts_of
from scripts.resuming import Raise, make_ready
from state.approvals import Decision
from state.errors import DevfixError
from state.status import REASONS, Standing
from tests.helpers.app import Driver, application_on, calls
from tests.helpers.endpoint import Reply, endpoint, saying
from tests.helpers.notes import NotesRules

POST = calls(("post", {"to": "ada", "text": "dear"}))
LOOK = calls(("look", {"what": "sea"}))
WITHOUT_A_RUN = {"queued: crashed", "waiting: upgrade"}
"""Read off a process that is gone, or not yet put into effect: only their commands are looked at."""


@pytest.fixture
async def driver(database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Driver]:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-devfix-test")
    application = application_on(database_url, tmp_path, model_pause_seconds=0)
    yield Driver(application, tmp_path)
    await application.services.close()


async def new(driver: Driver, patch: pytest.MonkeyPatch) -> None:
    await driver.services.open()
    await driver.services.runs.register(driver.run_id, goal="post", job="notes")


async def released(driver: Driver, patch: pytest.MonkeyPatch) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(1.0):
            await driver.start([calls(("look", {"what": "sea", "seconds": 30.0}))])


async def cancelled(driver: Driver, patch: pytest.MonkeyPatch) -> None:
    await driver.start([{"content": "nearly"}, {"content": "nearly"}])
    row = (await driver.services.approvals.of(driver.run_id))[0]
    decision = Decision(type="reject", message="enough")
    await driver.services.approvals.decide(driver.run_id, row.question.call_id, decision, by="eve")
    await driver.go_on()


async def done(driver: Driver, patch: pytest.MonkeyPatch) -> None:
    await driver.start([POST])
    await driver.approved()


async def broken(driver: Driver, patch: pytest.MonkeyPatch) -> None:
    def judge(*_: Any) -> Verdict:
        raise KeyError("a bug of the job")

    patch.setattr(NotesRules, "judge", judge)
    with contextlib.suppress(KeyError):
        await driver.start([LOOK])


async def unpriced(driver: Driver, patch: pytest.MonkeyPatch) -> None:
    with contextlib.suppress(DevfixError):
        await driver.start([], model="openai:some-model", budget_usd=1.0)


Way = Callable[[Driver, pytest.MonkeyPatch], Awaitable[None]]


def told(*turns: Any, **given: Any) -> Way:
    async def way(driver: Driver, patch: pytest.MonkeyPatch) -> None:
        await driver.start(list(turns), **given)

    return way


def judged(judgement: Any) -> Way:
    async def way(driver: Driver, patch: pytest.MonkeyPatch) -> None:
        patch.setattr(NotesRules, "judge", lambda *_: Verdict(judgement=judgement, summary="So it is."))
        await driver.start([LOOK])

    return way


def answered(answer: Any) -> Way:
    async def way(driver: Driver, patch: pytest.MonkeyPatch) -> None:
        async with endpoint(answer) as server:
            patch.setenv("OPENAI_BASE_URL", server.url)
            await driver.start([], model="openai:gpt-4o")

    return way


WAYS: list[tuple[str, Way]] = [
    ("queued: new", new),
    ("queued: released", released),
    ("waiting: approval", told(POST)),
    ("waiting: escalation", told({"content": "nearly"}, {"content": "nearly"})),
    ("completed: done", done),
    ("completed: nothing_to_do", judged("nothing_to_do")),
    ("failed: budget", told(LOOK, budget_usd=0.0)),
    ("failed: budget", told(LOOK, budget_tokens=0)),
    ("failed: step_limit", told(LOOK, LOOK, step_limit=4)),
    ("failed: deadline", told(LOOK, deadline_seconds=0.001)),
    ("failed: model_unavailable", answered(Reply(401))),
    ("failed: unparsable_output", told({"content": ""}, {"content": ""})),
    ("failed: refused", answered(saying(refusal="not that"))),
    ("failed: invalid_state", unpriced),
    ("failed: tests_unreachable", judged("tests_unreachable")),
    ("failed: internal", broken),
    ("cancelled: by_person", cancelled),
]


@pytest.mark.parametrize(("standing", "way"), WAYS, ids=[f"{name} {n}" for n, (name, _) in enumerate(WAYS)])
async def test_each_way_to_wait_or_to_end_has_a_report_and_commands_that_go_on(
    driver: Driver, monkeypatch: pytest.MonkeyPatch, standing: str, way: Way
) -> None:
    """In the registry, in the state where review ended it, and as `devfix show --json` gives it; a command that resumes
    is one that is not refused."""
    with monkeypatch.context() as patch:
        await way(driver, patch)
    run = await driver.run()
    assert str(run.standing) == standing, run.report
    facts = json.loads(json.dumps(plain(await facts_of(driver.application, run))))
    report = facts["report"]
    assert (facts["status"], facts["reason"]) == (run.status, run.reason)
    assert run.report in (None, report)
    assert (run.report is None) == (standing == "queued: new")
    assert report["summary"].strip()
    assert set(report) >= {"done", "left", "tried", "next"}
    if run.status not in {"queued", "completed"} and facts["plan"]:
        assert report["done"] + report["left"]
    parsed = [typed(each) for each in report["next"]]
    assert parsed
    assert {name for name, _ in parsed} <= FITTING[run.status]
    for name, given in parsed:
        if name == "resume" and run.step:
            names = ("budget_usd", "budget_tokens", "step_limit", "deadline_seconds")
            await make_ready(driver.application, run, Raise(**{each: given[each] for each in names}))


FITTING = {
    "queued": {"resume", "show"},
    "waiting": {"approve", "resume", "show"},
    "completed": {"show"},
    "failed": {"resume", "show"},
    "cancelled": {"resume", "show"},
}
"""What is to be typed at a run that stands so."""


def typed(command: str) -> tuple[str, dict[str, Any]]:
    """The command with its arguments, as the command line reads them. Raises what it would complain of."""
    program, *words = shlex.split(command)
    assert program == "devfix"
    group: Any = typer.main.get_command(app)
    with group.make_context("devfix", list(words)) as context:
        name, found, rest = group.resolve_command(context, words)
        with found.make_context(name, rest, parent=context) as inner:
            return name, dict(inner.params)


def test_the_ways_are_all_that_there_are() -> None:
    """Each status with each of its reasons; of those without a run here the commands can be typed."""
    known = {str(Standing(status, reason)) for status, reasons in REASONS.items() for reason in reasons}
    assert {name for name, _ in WAYS} | WITHOUT_A_RUN | {"running"} == known
    for standing in (Standing("queued", "crashed"), Standing("waiting", "upgrade")):
        assert {typed(each)[0] for each in commands("0" * 36, standing)} <= FITTING[standing.status]
