"""A standstill is seen when it has lasted three rounds, and a long honest search is none."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from graph.progress import STALE_TURNS, standstill

Records = list[dict[str, Any]]
LOOPS = 200
HONEST = 100


class Story:
    """The records of a run, turn by turn."""

    def __init__(self) -> None:
        self.records: Records = []
        self.files = "s0"
        self._number = 0

    def turn(self, asked: str, came: str, *, tool: str = "look", files: str | None = None) -> None:
        """One call with its result; `files` is what the files are from then on."""
        self._number += 1
        call = {"id": f"c{self._number}", "name": tool, "args": {"what": asked}}
        self.records.append({"type": "ai", "id": f"m{self._number}", "tool_calls": [call]})
        result = {"type": "tool", "id": f"r{self._number}", "tool_call_id": call["id"], "content": came}
        self.records.append({**result, "artifact": {"snapshot": self.files}})
        self.files = files or self.files

    def word(self, identifier: str) -> None:
        self.records.append({"type": "human", "id": identifier, "content": "a word"})

    def chat(self, text: str) -> None:
        self.records.append({"type": "ai", "id": f"t{len(self.records)}", "content": text, "tool_calls": []})
        self.word(f"nudge-{len(self.records)}")

    @property
    def stuck(self) -> str | None:
        return standstill(self.records, snapshot=self.files)


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


@pytest.mark.parametrize("period", [1, 2, 3, 4])
def test_after_a_word_about_it_one_more_round_is_enough(period: int) -> None:
    """A single look back is not yet a round."""
    lap = [(f"thing {number}", "nothing new") for number in range(period)]
    story = told(*lap * 3)
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


NOISES = 5


def noise(chance: random.Random, kind: int) -> str:
    """What differs each time in the results of one kind of tool."""
    return [
        "",
        f" in {chance.uniform(0.01, 9):.2f}s",
        f" at 2026-11-30 {chance.randrange(24):02}:{chance.randrange(60):02}:{chance.randrange(60):02}",
        f" <object at 0x{chance.getrandbits(40):x}>",
        f" (/tmp/run-{chance.getrandbits(24):x}/file.py)",
    ][kind]


def looping(chance: random.Random) -> tuple[Story, Callable[[], None]]:
    """A run that did something honest first, and one round of the circle that it then goes."""
    story = Story()
    for number in range(chance.randrange(12)):
        story.turn(f"part {number}", f"content {number}")
    kind = chance.choice(["reads", "edits", "tests", "chatter"])
    period, differs = chance.randrange(1, 5), chance.randrange(NOISES)
    begun = story.files

    def round_() -> None:
        for place in range(period):
            if kind == "chatter" and place == 0:
                story.chat(f"Now I am sure that it is done. {chance.random()}")
            if kind == "edits" and period > 1 and place < 2:
                story.turn(f"edit {place}", "done", tool="edit_file", files="other" if place == 0 else begun)
            elif kind == "tests" and place == 0:
                story.turn("", f"3 failed, 5 passed{noise(chance, differs)}", tool="run_tests")
            else:
                story.turn(f"place {place}", f"the same text{noise(chance, differs)}")

    return story, round_


def honest(chance: random.Random) -> Story:
    """A long search: reads, edits with tests after each, reverts, polls, second looks at what was seen before."""
    story = Story()
    seen: list[tuple[str, str]] = []
    edits = 0
    for number in range(chance.randrange(20, 90)):
        match chance.choices(["read", "page", "edit", "again", "poll", "revert"], [6, 2, 5, 2, 1, 1])[0]:
            case "read":
                seen.append((f"file {number}", f"content {number}"))
                story.turn(*seen[-1])
            case "page":
                story.turn(f"log from line {number * 100}", chance.choice(["nothing here", f"line {number}"]))
            case "edit":
                edits += 1
                story.turn(f"edit {edits}", "done", tool="edit_file", files=f"e{edits}")
                story.turn("", f"{chance.randrange(1, 4)} failed{noise(chance, 1)}", tool="run_tests")
            case "again" if seen:
                story.turn(*seen.pop(chance.randrange(len(seen))))
            case "poll":
                for done in range(0, 100, 25):
                    story.turn(f"job {number}", f"{done} % done", tool="poll")
            case "revert":
                story.turn(f"back from {edits}", "done", tool="edit_file", files="s0")
    return story


def test_generated_loops_are_seen_within_three_rounds() -> None:
    """At least 95 of 100, whatever came before and whatever differs between the rounds."""
    missed: list[int] = []
    for seed in range(LOOPS):
        story, round_ = looping(random.Random(seed))
        found = False
        for _ in range(3):
            round_()
            found = found or story.stuck is not None
        if not found:
            missed.append(seed)
    assert len(missed) <= 0.05 * LOOPS, missed


def test_generated_honest_searches_are_left_alone() -> None:
    """At most 1 of 100 is told that it gets nowhere, looked at after each of its turns."""
    told_off: list[int] = []
    for seed in range(HONEST):
        story = honest(random.Random(10_000 + seed))
        if any(_stuck_after(story.records, place) for place in _ends_of_turns(story.records)):
            told_off.append(seed)
    assert len(told_off) <= 0.01 * HONEST, told_off


def _ends_of_turns(records: Sequence[dict[str, Any]]) -> list[int]:
    return [place for place, record in enumerate(records, 1) if record["type"] == "tool"]


def _stuck_after(records: Records, place: int) -> str | None:
    following = next((each for each in records[place:] if each["type"] == "tool"), records[place - 1])
    return standstill(records[:place], snapshot=following["artifact"]["snapshot"])
