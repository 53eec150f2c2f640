"""The failure table is total, and every ending that it names is in the closed list of statuses."""

from __future__ import annotations

from typing import get_args

from graph.policy import POLICY, rule
from state.failures import Failure, FailureKind
from state.status import REASONS


def test_the_table_is_total() -> None:
    """A kind without a row can't be written."""
    assert set(POLICY) == set(get_args(FailureKind))


def test_every_ending_is_a_known_status() -> None:
    """And whatever stops says how the run ends."""
    for kind, row in POLICY.items():
        if "stop" in {row.decision, row.then}:
            assert row.standing is not None, kind
            assert row.standing.reason in REASONS[row.standing.status], kind


def test_a_limit_is_reached_not_passed() -> None:
    """Unparsable output is repaired once, and then ends the run."""
    failure = Failure(kind="unparsable_output", detail="x")
    assert rule(failure, 1).decision == "retry"
    stopped = rule(failure, 2)
    assert stopped.decision == "stop"
    assert str(stopped.standing) == "failed: unparsable_output"


def test_a_refused_key_ends_at_once() -> None:
    """No retry, no fallback."""
    assert rule(Failure(kind="model_key_refused", detail="x"), 1).decision == "stop"
