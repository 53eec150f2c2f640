"""The agent on real PostgreSQL: what a run saves, asks, performs and says of itself."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from state.approvals import Decision
from tests.helpers.app import Driver, application_on, calls
from tests.helpers.notes import letters


@pytest.fixture
async def driver(database_url: str, tmp_path: Path) -> AsyncIterator[Driver]:
    application = application_on(database_url, tmp_path)
    yield Driver(application, tmp_path)
    await application.services.close()


async def test_a_run_asks_before_an_effect_and_performs_it_once(driver: Driver) -> None:
    """A gated call waits for a person; approved, it happens once and the run is completed on evidence."""
    waiting = await driver.start([calls(("post", {"to": "ada", "text": "hello"}))])
    assert str(waiting.standing) == "waiting: approval"
    assert letters(driver.letters) == []

    (asked,) = await driver.services.approvals.of(driver.run_id)
    await driver.services.approvals.decide(driver.run_id, asked.question.call_id, Decision(type="approve"), by="eve")
    ended = await driver.go_on()

    assert str(ended.standing) == "completed: done"
    assert [letter["to"] for letter in letters(driver.letters)] == ["ada"]
    assert [effect.state for effect in await driver.services.ledger.of(driver.run_id)] == ["settled"]
    steps = await driver.application.steps.of(driver.run_id)
    assert [step.number for step in steps] == list(range(1, len(steps) + 1))
    assert [step.nodes for step in steps] == [
        [],
        ["__start__"],
        ["plan"],
        ["act"],
        ["approval"],
        ["tool_execute"],
        ["review"],
    ]
