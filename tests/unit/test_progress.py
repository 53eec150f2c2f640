"""A circle is seen when it has been gone round three times, and an honest search is none."""

from __future__ import annotations

from typing import Any

import pytest

from graph.progress import circle


def turns(*pairs: tuple[str, str]) -> list[dict[str, Any]]:
    """One call a turn, with its result."""
    records: list[dict[str, Any]] = []
    for number, (asked, came) in enumerate(pairs):
        call = {"id": f"c{number}", "name": "look", "args": {"what": asked}}
        records.append({"type": "ai", "id": f"m{number}", "tool_calls": [call]})
        records.append({"type": "tool", "id": f"r{number}", "tool_call_id": f"c{number}", "content": came})
    return records


@pytest.mark.parametrize("period", [1, 2, 3, 4])
def test_a_circle_of_each_period_is_seen_at_its_third_round(period: int) -> None:
    """Not before."""
    lap = [(f"thing {number}", "nothing new") for number in range(period)]
    assert circle(turns(*lap * 3)) == period
    assert circle(turns(*(lap * 3)[:-1])) is None
    assert circle(turns(("start", "x"), *lap * 3)) == period


def test_the_same_call_with_new_results_is_no_circle() -> None:
    """Tests that are run after each edit, say."""
    assert circle(turns(*[("tests", f"{number} failed") for number in range(9)])) is None


def test_a_persons_word_begins_the_count_anew() -> None:
    """After advice the old turns are no evidence."""
    lap = turns(("a", "b"), ("a", "b"))
    advice = {"type": "human", "id": "answer", "content": "try something else"}
    assert circle([*lap, advice, *turns(("a", "b"))]) is None
