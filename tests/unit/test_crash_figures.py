"""The campaign's arithmetic: what it reads on the wire, whom it strikes next, how sure it is."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from scripts.bench.crash.campaign import broken_steps
from scripts.bench.crash.figures import Fault, Outcome, Point, trial_figures, upper_bound
from scripts.bench.crash.plan import A_RUN, Plan
from scripts.bench.crash.trial import tree_hash
from scripts.bench.crash.wire import written
from scripts.bench.crash.workers import passing
from state.steps import Step

FIRST, SECOND = Point("insert effects", "before", 1), Point("insert effects", "done", 1)


@pytest.mark.parametrize(
    ("statement", "names"),
    [
        ("SELECT 1", []),
        ("INSERT INTO effects (a) VALUES (1) RETURNING *", ["insert effects"]),
        ('insert into "dbos"."operation_outputs" values (1)', ["insert operation_outputs"]),
        ("UPDATE effects SET state = 'x' WHERE a IN (SELECT b FROM c)", ["update effects.state"]),
        ("DELETE FROM effects WHERE a = 1", ["delete effects"]),
        ("SELECT record_step($1, $2)", ["record_step"]),
        ("SELECT hold_run($1, $2), save_writes($3), record_call($4)", ["save_writes"]),
        ("SELECT record_call($1, $2)", ["record_call"]),
        ("SELECT a FROM runs FOR UPDATE", []),
        ("INSERT INTO runs (a) VALUES (1) ON CONFLICT (a) DO NOTHING", ["insert runs"]),
    ],
)
def test_a_commit_is_named_after_what_it_writes(statement: str, names: list[str]) -> None:
    """Verb and table, and the first column of an update: a heartbeat is no settlement."""
    assert written(statement) == names


def test_what_a_worker_writes_by_the_clock_is_no_point() -> None:
    """Its runs have no part in it."""
    assert passing("update runs.heartbeat_at")
    assert passing("insert procrastinate_jobs")
    assert not passing("update runs.status, insert procrastinate_jobs")


def test_the_bound_is_that_of_clopper_and_pearson() -> None:
    """None in 300: about 1 %, the rule of three; one in ten: 39 %."""
    assert upper_bound(0, 300) == pytest.approx(0.00994, abs=1e-5)
    assert upper_bound(1, 10) == pytest.approx(0.39416, abs=1e-5)
    assert upper_bound(0, 0) == upper_bound(5, 5) == 1.0


def test_each_point_is_struck_before_any_twice() -> None:
    """And each kind as often as it was asked for, a few blows a run."""
    plan = Plan([FIRST, SECOND], 5.0, {"kill": 40, "freeze": 10}, random.Random(1))
    struck = []
    while plan:
        faults = plan.next()
        assert 0 < len(faults) <= A_RUN
        struck += faults
    at = [each.at for each in struck if isinstance(each.at, Point)]
    assert [each.kind for each in struck].count("kill") == 40
    assert len(struck) == 50
    assert abs(at.count(FIRST) - at.count(SECOND)) <= 1
    assert all(0 <= each.at <= 5 for each in struck if isinstance(each.at, float))


def test_a_blow_that_did_not_fall_is_given_back() -> None:
    """It falls on another run."""
    plan = Plan([FIRST], 5.0, {"kill": 1}, random.Random(1))
    plan.give_back(plan.next())
    assert [each.kind for each in plan.next()] == ["kill"]
    assert not plan


def outcome(**changes: Any) -> Outcome:
    whole = {"run_id": "r", "struck": [], "standing": "completed: done", "steps": 9, "effects": {"mail": 1}}
    return Outcome.model_validate({**whole, **changes})


@pytest.mark.parametrize("wrong", [{"duplicates": 1}, {"lost": 1}, {"true_status": False}, {"trouble": ["it hangs"]}])
def test_a_run_is_whole_only_when_nothing_is_wrong(wrong: dict[str, object]) -> None:
    """Each single fault counts, and raises the bound."""
    struck = [Fault("kill", FIRST), Fault("freeze", 1.0)]
    found = trial_figures("t", [outcome(), outcome(**wrong)], points=[FIRST, SECOND], struck=struck)
    assert (found.runs, found.kills, found.freezes, found.points, found.points_struck) == (2, 1, 1, 2, 1)
    assert not found.whole
    assert len(found.not_whole) == 1
    assert found.bound_95 > trial_figures("t", [outcome()], points=[], struck=struck).bound_95


def test_a_process_that_is_left_is_told() -> None:
    """Of runs that are whole."""
    assert not trial_figures("t", [outcome()], points=[], struck=[], processes_left=["git push"]).whole


def steps(*rows: tuple[int, str, str | None, int]) -> list[Step]:
    fields: dict[str, Any] = {"run_id": "r", "source": "loop", "nodes": [], "status": None, "snapshot": None}
    return [
        Step(number=number, checkpoint_id=own, parent_id=parent, epoch=epoch, at=datetime.now(UTC), **fields)
        for number, own, parent, epoch in rows
    ]


def test_steps_follow_one_another() -> None:
    """A gap, a fork, and an attempt that saved after its successor are told."""
    assert broken_steps(steps((1, "a", None, 1), (2, "b", "a", 1), (3, "c", "b", 2))) == []
    assert "numbered" in broken_steps(steps((1, "a", None, 1), (3, "c", "a", 1)))[0]
    assert "does not follow" in broken_steps(steps((1, "a", None, 1), (2, "b", "a", 1), (3, "c", "a", 1)))[0]
    assert "attempt 1, after one of 2" in broken_steps(steps((1, "a", None, 2), (2, "b", "a", 1)))[0]


def test_a_tree_is_known_by_paths_and_content(tmp_path: Path) -> None:
    """Git's and Python's own files do not count; a name, a byte do."""
    (tmp_path / "a").write_text("x")
    first = tree_hash(tmp_path)
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "__pycache__" / "b").write_text("y")
    assert tree_hash(tmp_path) == first
    (tmp_path / "a").rename(tmp_path / "c")
    assert tree_hash(tmp_path) != first
