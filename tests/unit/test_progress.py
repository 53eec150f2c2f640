"""A standstill is seen when it has lasted three rounds, and a long honest search is none."""

from __future__ import annotations

import random

import pytest

from graph.progress import STALE_TURNS
from scripts.bench.faults.traces import Story, honest, seen_in_time

LOOPS = 200
HONEST = 100


def told(*pairs: tuple[str, str]) -> Story:
    story = Story()
    for asked, came in pairs:
        story.turn(asked, came)
    return story


@pytest.mark.parametrize("period", [1, 2, 3, 4])
def test_a_circle_of_each_period_is_seen_at_its_third_round(period: int) -> None:
    """Not before."""
    lap = [(f"thing {number}", "nothing new") for number in range(period)]
    assert "three times over" in str(told(*lap * 3).stuck)
    assert told(*(lap * 3)[:-1]).stuck is None
    assert told(("start", "x"), *lap * 3).stuck


def test_the_same_call_with_new_results_is_no_circle() -> None:
    """Tests that are run after each edit, say."""
    assert told(*[("tests", f"{number} failed") for number in range(9)]).stuck is None


def test_what_differs_each_time_is_no_news() -> None:
    """Moments, durations, addresses, places for a while."""
    results = [
        "3 failed in 0.12s at 2026-11-30 10:00:01 <object at 0x7f01> in /tmp/a-1",
        "3 failed in 0.15s at 2026-11-30 10:00:07 <object at 0x7f99> in /tmp/b-2",
        "3 failed in 1.02 seconds at 2026-11-30T10:00:09Z <object at 0x7fab> in /tmp/c-3",
    ]
    assert told(*[("tests", each) for each in results]).stuck
    assert told(*[("poll", f"{each} % done") for each in (10, 20, 30)]).stuck is None


def test_a_persons_word_begins_the_count_anew_and_our_own_does_not() -> None:
    """After advice the old turns are no evidence; a nudge is no advice."""
    for word, stuck in (("answer-1", False), ("nudge-3", True), ("failure-2", True), ("result-evidence-1", True)):
        story = told(("a", "b"), ("a", "b"))
        story.word(word)
        story.turn("a", "b")
        assert bool(story.stuck) == stuck, word


@pytest.mark.parametrize("before", [0, 3])
@pytest.mark.parametrize("period", [1, 2, 3, 4])
def test_after_a_word_about_it_one_more_round_is_enough(period: int, before: int) -> None:
    """Whatever came before the circle. A single look back is not yet a round."""
    lap = [(f"thing {number}", "nothing new") for number in range(period)]
    story = told(*[(f"honest {number}", f"news {number}") for number in range(before)], *lap * 3)
    for word in ("stuck-9", "re-plan-11"):
        story.word(word)
        assert story.stuck is None
        for asked, came in (lap * 2)[: max(period, 2)]:
            assert story.stuck is None
            story.turn(asked, came)
        assert "came again" in str(story.stuck)
    story.word("stuck-20")
    story.turn("something new", "and its result")
    story.turn(*lap[0])
    assert story.stuck is None


def test_edits_that_undo_each_other_are_seen_at_the_third_time() -> None:
    """Whatever is looked at in between; other edits in between, each another one, are an honest search."""
    story = Story()
    for number in range(3):
        assert story.stuck is None
        story.turn(f"look {number}", f"saw {number}")
        story.turn("a to b", f"done {number}", tool="edit_file", files="sB")
        if number < 2:
            story.turn("b to a", f"done {number}", tool="edit_file", files="s0")
    assert "undone" in str(story.stuck)

    story = Story()
    for number in range(9):
        story.turn(f"try {number}", "done", tool="edit_file", files=f"s{number + 1}")
        story.turn("tests", "3 failed", tool="run_tests")
        story.turn(f"undo {number}", "done", tool="edit_file", files="s0")
        assert story.stuck is None


def test_turns_that_bring_nothing_new_are_seen_though_they_have_no_period() -> None:
    """In any order."""
    chance = random.Random(3)
    things = [(f"thing {number}", f"result {number}") for number in range(6)]
    story = told(*things)
    for _ in range(STALE_TURNS):
        assert story.stuck is None
        story.turn(*chance.choice(things))
    assert story.stuck


# -- generated --------------------------------------------------------------------------------------------------------


def test_generated_loops_are_seen_within_three_rounds() -> None:
    """At least 95 of 100, whatever came before and whatever differs between the rounds."""
    missed = [seed for seed in range(LOOPS) if not seen_in_time(random.Random(seed))]
    assert len(missed) <= 0.05 * LOOPS, missed


def test_generated_honest_searches_are_left_alone() -> None:
    """At most 1 of 100 is told that it gets nowhere, looked at after each of its turns."""
    told_off = [seed for seed in range(HONEST) if any(honest(random.Random(10_000 + seed)).stuck_on_the_way())]
    assert len(told_off) <= 0.01 * HONEST, told_off
