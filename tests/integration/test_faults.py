"""The fault campaign's small sibling: a few rows of each group, as real runs; and the campaign's own honesty."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from scripts.bench.faults.blows import Blows
from scripts.bench.faults.campaign import Trial, World, sample
from scripts.bench.faults.endpoint import Reply
from scripts.bench.faults.figures import Outcome, group_figures
from scripts.bench.faults.table import POST, TABLE, Row
from state.status import REASONS
from tests.handlings.__main__ import Broken, wrong_without
from tests.handlings.table import HANDLINGS
from tests.helpers.removal import Edit

ROWS = {row.name: row for row in TABLE}
SOME = [
    "HTTP 503 for ever, of the fallback too",
    "HTTP 401: the key is refused",
    "HTTP 404, a fallback answers",
    "429 for ever",
    "too long for the window, whatever is left out",
    "a stream that is cut in a call, for ever",
    "a whole call in a stream that is cut",
    "a stream of broken JSON, for ever",
    "arguments that are cut, once",
    "calls with the same id",
    "an unknown tool for ever",
    "empty and broken answers take turns",
    "an answer that is cut for ever",
    "an answer just as long as it may be",
    "a refusal for ever",
    "a call in the text, in tags",
    "a tool raises, each time",
    "a tool hangs, once",
    "failures of two kinds take turns, for ever",
    "failures of two kinds take turns, with a look in between",
    "failed calls and broken answers take turns, for ever",
    "a tool says 1 MB, once",
    "an effect that happens, and then fails",
    "an effect whose outcome nobody knows",
    "an effect that is refused",
    "DevFix's own disk is full while a tool runs",
    "all connections are cut, while the model thinks",
    "it can't be written for a second, while a tool runs",
    "money is used up",
    "tokens that no server counts",
    "the limit comes with an effect that is not approved yet",
    "steps are used up",
    "time is over while a tool works",
    "a circle of 1",
    "a circle of 3",
    "edits that undo each other",
    "false claims of success",
    "the same word again",
]


@pytest.fixture
def world(database_url: str, tmp_path: Path) -> World:
    return World(folder=tmp_path, url=database_url, blows=Blows(database_url))


@pytest.mark.parametrize("name", SOME)
async def test_each_fault_ends_as_the_table_says(world: World, name: str) -> None:
    """With its reason and a report; nothing is asked after a limit, nothing done without approval, and `completed`
    stands for a letter that is there."""
    outcome = await Trial(world=world, row=ROWS[name], seed=1).outcome()
    assert outcome.right, str(outcome)


@pytest.mark.parametrize("name", ["a refusal for ever", "steps are used up", "a tool raises, once"])
async def test_a_fault_ends_the_same_though_its_process_is_killed(world: World, name: str) -> None:
    """Another process goes on, from the last saved step."""
    outcome = await Trial(world=world, row=ROWS[name], seed=2, killed=True).outcome()
    assert outcome.right, str(outcome)


TAKEN_OUT = {
    "fallback models": "HTTP 404, a fallback answers",
    "no step of what was put down": "DevFix's own disk is full while a tool runs",
    "what it says counts": "an effect that happens, and then fails",
    "limits hold before a call": "the limit comes with an effect that is not approved yet",
}
"""Some handlings, and one row of each; `make handlings` goes through all of them."""


@pytest.mark.parametrize("name", TAKEN_OUT)
def test_a_row_turns_red_without_its_handling(name: str) -> None:
    """The campaign can fail: in a copy of the sources without it, a run ends otherwise, or does what it must not."""
    handling = next(each for each in HANDLINGS if each.name == name)
    assert TAKEN_OUT[name] in {row.name for row in handling.covered}
    assert wrong_without(handling.removal, [TAKEN_OUT[name]])


def test_a_copy_that_is_broken_is_no_red_row() -> None:
    """What does not even do its work without a fault proves nothing about one."""
    broken = Edit("graph/limits.py", "if step >= budgets.steps:", "if step >= 0:")
    with pytest.raises(Broken, match="could not run"):
        wrong_without([broken], ["a refusal for ever"])


async def test_a_run_that_does_not_end_as_its_row_says_is_told(world: World) -> None:
    """By its standing, and by what was asked too often."""
    row = Row(name="wrong", group="model", says=[Reply(503), POST], ends="failed: refused", asks=1)
    outcome = await Trial(world=world, row=row, seed=1).outcome()
    assert (outcome.right, outcome.standing, outcome.calls_after_a_limit) == (False, "completed: done", 1)
    assert "completed: done instead of failed: refused; calls after a limit: 1" in str(outcome)


def test_the_table_has_at_least_80_faults_of_all_groups() -> None:
    """Each with a name of its own and a standing of the closed list, and with its limit of questions."""
    assert len({row.name for row in TABLE}) == len(TABLE) >= 80
    assert min(Counter(row.group for row in TABLE).values()) >= 10
    assert all(row.asks is not None for row in TABLE)
    for row in TABLE:
        status, _, reason = row.ends.partition(": ")
        assert reason in REASONS[status], row.name  # type: ignore[index]


def test_what_is_counted_as_right() -> None:
    """The standing alone is not enough."""
    outcome = Outcome(
        row="r",
        group="model",
        seed=1,
        killed=False,
        expected="completed: done",
        standing="completed: done",
        asked=1,
        calls_after_a_limit=0,
        letters=1,
        false_completed=False,
        unapproved=0,
    )
    wrong = [
        {"calls_after_a_limit": 1},
        {"false_completed": True},
        {"unapproved": 1},
        {"trouble": ["note ran"]},
        {"letters": 2},
        {"standing": "waiting: escalation"},
    ]
    outcomes = [outcome, *[outcome.model_copy(update=each) for each in wrong]]
    figures = group_figures("model", outcomes)
    assert (figures.runs, figures.right, figures.false_completed, figures.unapproved) == (7, 1, 1, 1)
    assert [row.name for row in sample(TABLE[:10], 3)] == [TABLE[place].name for place in (0, 3, 6)]
