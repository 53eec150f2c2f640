"""The peer's side of the fault campaign: what counts as right, and what its model says in the end."""

from __future__ import annotations

from typing import Any

import pytest

from scripts.bench.faults.endpoint import Reply, saying
from scripts.bench.faults.peer import PeerRun, script
from scripts.bench.faults.table import POST, Row

RUN = PeerRun(
    row="r", group="model", expected="completed: done", end="returned", letters=1, calls_after_a_limit=0, ran=[]
)


@pytest.mark.parametrize(
    ("more", "right"),
    [
        ({}, True),
        ({"letters": 0}, False),
        ({"letters": 2}, False),
        ({"end": "hangs"}, False),
        ({"ran": ["note"]}, False),
        ({"calls_after_a_limit": 1}, False),
        ({"expected": "failed: refused"}, False),
        ({"expected": "failed: refused", "end": "raised E", "letters": 0}, True),
        ({"expected": "failed: refused", "end": "returned", "letters": 0}, False),
    ],
)
def test_what_counts_as_right(more: dict[str, Any], right: bool) -> None:
    """One letter and a return, or else an error and no letter."""
    assert RUN.model_copy(update=more).right == right


def test_its_model_says_that_it_is_done() -> None:
    """Where DevFix ends on its evidence; not where the fault goes on for ever."""
    bye = saying(content="It is posted.")
    done = Row(name="d", group="model", says=[Reply(503), POST], ends="completed: done")
    ever = Row(name="e", group="model", says=[Reply(503)], ends="failed: model_unavailable")
    assert script(done, done.says) == [Reply(503), POST, bye]
    assert script(ever, ever.says) == [Reply(503)]
