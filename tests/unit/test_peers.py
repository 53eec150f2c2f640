"""The comparison's arithmetic: what counts as doubled and lost, where kills fall, and the table that people read."""

from __future__ import annotations

import random
from typing import Any

import pytest

from scripts.bench.crash.figures import Fault, Point
from scripts.bench.crash.peers.figures import Errand, PeerFigures, SystemFigures, counted, table
from scripts.bench.crash.peers.places import Places
from scripts.bench.crash.peers.systems import CONTENDERS
from scripts.bench.machine import Machine
from scripts.bench.spread import Spread

REQUEST, COMMIT = Point("POST /letters", "done", 1), Point("insert effects", "before", 1)


def errand(**changes: Any) -> Errand:
    whole = {"order": 1, "struck": [], "standing": "completed", "refunds": 1, "letters": 1}
    return Errand.model_validate({**whole, **changes})


def test_one_of_each_is_whole() -> None:
    """So is a run that a person is asked about, whatever stands at the shop."""
    assert errand().whole
    assert errand(standing="a person is told", refunds=0, letters=0).whole


@pytest.mark.parametrize(
    ("wrong", "where"),
    [
        ({"refunds": 3}, ("refunds_doubled", 2)),
        ({"letters": 2}, ("letters_doubled", 1)),
        ({"refunds": 0}, ("refunds_lost", 1)),
        ({"letters": 0}, ("letters_lost", 1)),
        ({"standing": "running, and has not gone on for 90 s", "refunds": 0}, ("without_true_status", 1)),
    ],
)
def test_each_harm_is_counted_in_its_column_alone(wrong: dict[str, Any], where: tuple[str, int]) -> None:
    """What has not ended has lost nothing yet: it has no status."""
    found = counted([errand(), errand(**wrong)])
    harms = {name: found[name] for name in found if name not in {"runs", "told", "not_whole"}}
    assert {name: count for name, count in harms.items() if count} == dict([where])
    assert found["not_whole"] == [errand(**wrong)]


def test_a_quarter_of_the_kills_falls_at_requests_and_one_at_commits() -> None:
    """However many points of each kind there are; each in turn."""
    points: dict[Point, Any] = {REQUEST: "request"} | {COMMIT._replace(number=each): "commit" for each in range(5)}
    places, struck = Places(points, 2.0, 40, random.Random(1)), []
    while places:
        struck += places.next()
    at = [each.at for each in struck if isinstance(each.at, Point)]
    assert at.count(REQUEST) == 10
    assert all(at.count(COMMIT._replace(number=each)) == 2 for each in range(5))
    assert sum(isinstance(each.at, float) and 0 <= each.at <= 2 for each in struck) == 20


def test_random_times_stand_in_for_commits_that_nobody_sees() -> None:
    """And a kill that did not fall falls later, at the same place."""
    places = Places({REQUEST: "request"}, 2.0, 3, random.Random(1))
    first = places.next()
    assert [isinstance(each.at, Point) for each in first] == [True, False, False]
    places.give_back(first[:1])
    assert places.next() == [Fault("kill", REQUEST)]
    assert not places


def test_the_table_has_a_row_for_each_system_and_says_what_it_promises() -> None:
    """Also for one that could not be measured."""
    machine = Machine(
        cores=2,
        memory_gb=1,
        python="3",
        system="Linux",
        load=0,
        postgresql="18",
        fsync="on",
        synchronous_commit="on",
    )
    rows = [
        SystemFigures(
            system="DevFix",
            version="devfix 1",
            promise="once",
            kills=50,
            kills_at_requests=13,
            kills_at_commits=12,
            next_seconds=Spread.of([1.0, 2.0]),
            **counted([errand(), errand(refunds=2)]),
        ),
        SystemFigures(system="Other", version="other 2", promise="twice", not_measured="it does not start"),
    ]
    figures = PeerFigures(machine=machine, seed=1, seconds=9, systems=rows)
    lines = table(figures).split("\n")
    assert lines[2] == "| DevFix | 50 (13, 12) | 2 | 1 | 0 | 0 | 0 | 0 | 1.5 s (1.9 s) |"
    assert lines[3].startswith("| Other | not measured |")
    assert len({line.count("|") for line in lines[:4]}) == 1
    assert lines[5:] == ["- DevFix (devfix 1): once.", "- Other (other 2): it does not start."]
    assert not figures.whole


def test_the_systems_have_names_of_their_own() -> None:
    """`--only` finds each."""
    assert len({each.name.casefold() for each in CONTENDERS}) == len(CONTENDERS) == 7
