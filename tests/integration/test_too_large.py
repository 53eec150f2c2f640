"""Values that are far too large, wherever they enter: a run takes them or says which one it can't, and is not lost."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from graph.durable import RESUME_KEY
from graph.jobs import Observed
from scripts.resuming import Raise, make_ready
from state import codec
from state.approvals import MOST_CHARACTERS, Decision
from state.errors import Refused, Unserializable
from tests.helpers.app import Driver, application_on, calls
from tests.helpers.endpoint import calling, endpoint
from tests.helpers.notes import NotesRules, letters
from tools import receipts

LARGE = "x" * 3_000_000
POST = {"to": "ada", "text": "hello"}
ENOUGH = 200_000
"""Bytes of a value, in those tests in which the limit is lowered for them to be quick."""


@pytest.fixture
async def driver(database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Driver]:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-devfix-test")
    application = application_on(database_url, tmp_path, model_pause_seconds=0)
    yield Driver(application, tmp_path)
    await application.services.close()


def turn(name: str, args: dict[str, Any]) -> Any:
    return calling((f"c-{name}", name, json.dumps(args)))


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("note", {"path": "a", "text": LARGE}),
        ("look", {"what": LARGE}),
        ("look", {"what": "sea", "colour": LARGE}),
        ("look", {LARGE: "sea"}),
        ("teleport", {"to": LARGE}),
        ("fetch", {"kilobytes": 3000}),
    ],
    ids=["of an edit", "of a read", "that nobody takes", "by its name", "of no tool", "of a result"],
)
async def test_b87_a_run_goes_on_after_a_value_of_3_mb(
    driver: Driver, monkeypatch: pytest.MonkeyPatch, name: str, args: dict[str, Any]
) -> None:
    """It is asked for once; the model is then sent a conversation that fits, and the letter is posted."""
    async with endpoint(turn(name, args), turn("post", POST)) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        assert str((await driver.start([], model="openai:gpt-4o")).standing) == "waiting: approval"
        assert str((await driver.approved()).standing) == "completed: done"
    assert len(server.requests) == 2
    assert max(len(json.dumps(request)) for request in server.requests) < 500_000


@pytest.mark.parametrize("place", ["argument", "edit", "receipt"])
async def test_b87_an_effect_with_3_mb_happens_once(
    driver: Driver, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """Whether the model or a person wrote them; and its receipt is whole."""
    given = {"to": "ada", "text": LARGE if place != "edit" else "dear"}
    run = await driver.start([calls(("post", given))])
    assert str(run.standing) == "waiting: approval"
    if place == "edit":
        row = (await driver.services.approvals.of(driver.run_id))[0]
        decision = Decision(type="edit", arguments={"to": "ada", "text": LARGE})
        await driver.services.approvals.decide(driver.run_id, row.question.call_id, decision, by="eve")
    assert str((await driver.approved()).standing) == "completed: done"
    assert [letter["text"] == LARGE for letter in letters(driver.letters)] == [True]
    (effect,) = await driver.services.ledger.of(driver.run_id)
    assert effect.receipt is not None
    assert len(json.dumps(effect.receipt)) < 2 * receipts.RECEIPT_BYTES


async def test_b87_a_goal_that_no_window_holds_is_named(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is asked, and nothing is tried again by itself; a model with another window can go on."""
    async with endpoint(turn("post", POST)) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        run = await driver.start([], model="openai:gpt-4o", goal=LARGE)
        assert (str(run.standing), server.requests) == ("failed: model_unavailable", [])
        assert run.report is not None
        assert "most of it is the goal, with 1000" in str(run.report["summary"])
    await make_ready(driver.application, run, Raise(model=driver.script([calls(("post", POST))])))
    await driver.agent.ainvoke(None, {"configurable": {"thread_id": run.run_id, RESUME_KEY: True}})
    assert str((await driver.approved()).standing) == "completed: done"
    assert (await driver.state())["goal"] == LARGE


@pytest.mark.parametrize(
    "decision",
    [
        Decision(type="edit", arguments={"to": "x", "text": "y" * (MOST_CHARACTERS + 1)}),
        Decision(type="edit", arguments={"to": "x", "text": ["y" * MOST_CHARACTERS]}),
        Decision(type="reject", message="y" * (MOST_CHARACTERS + 1)),
        Decision(type="respond", message="y" * (MOST_CHARACTERS + 1)),
    ],
    ids=["text", "list", "reject", "respond"],
)
async def test_b87_an_answer_that_is_too_long_is_refused_and_another_one_taken(
    driver: Driver, decision: Decision
) -> None:
    """By the rows, whoever asks; the sentence names what is too long."""
    await driver.start([calls(("post", POST))])
    row = (await driver.services.approvals.of(driver.run_id))[0]
    named = "the edited argument text" if decision.type == "edit" else "the answer's message"
    with pytest.raises(Refused, match=named):
        await driver.services.approvals.decide(driver.run_id, row.question.call_id, decision, by="eve")
    assert str((await driver.run()).standing) == "waiting: approval"
    assert str((await driver.approved()).standing) == "completed: done"


@pytest.mark.parametrize("where", ["goal", "options.note"])
async def test_b87_an_input_that_can_not_be_kept_is_named(
    driver: Driver, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """The run has failed and is there to be seen: it does not wait for a database that is not away."""
    monkeypatch.setattr(codec, "MOST_BYTES", ENOUGH)
    options = {"letters": str(driver.letters), "note": "x" * ENOUGH if where != "goal" else ""}
    with pytest.raises(Unserializable, match="takes 2000"):
        await driver.start([calls(("post", POST))], goal="x" * ENOUGH if where == "goal" else "g", options=options)
    run = await driver.run()
    assert str(run.standing) == "failed: internal"
    assert run.report is not None
    assert f"can't be saved: {where} takes 2000" in str(run.report["summary"])


async def test_b87_a_job_whose_state_is_too_large_is_named_and_goes_on_when_it_is_not(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was saved before is kept; with the job mended, a resume goes on."""
    monkeypatch.setattr(codec, "MOST_BYTES", ENOUGH)
    told = NotesRules.observe
    with monkeypatch.context() as patch:
        work = {"work": {"letters": str(driver.letters), "wanted": 1, "posted": 0, "all": ["x" * ENOUGH]}}
        patch.setattr(NotesRules, "observe", lambda *args: Observed(**work))
        with pytest.raises(Unserializable, match=r"field work can't be saved: all.0 takes 2"):
            await driver.start([calls(("look", {"what": "sea"})), calls(("post", POST))])
    assert NotesRules.observe is told
    run = await driver.run()
    assert (str(run.standing), run.step > 2) == ("failed: internal", True)
    await make_ready(driver.application, run, Raise())
    await driver.agent.ainvoke(None, {"configurable": {"thread_id": run.run_id, RESUME_KEY: True}})
    assert str((await driver.approved()).standing) == "completed: done"
