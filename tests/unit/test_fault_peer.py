"""The peers' side of the fault campaign: what counts as right, what their model says in the end, and the table."""

from __future__ import annotations

from typing import Any

import pytest

from scripts.bench.faults.endpoint import Reply, saying
from scripts.bench.faults.peer import PROGRAMS, SYSTEMS, PeerRun, peer_figures, peer_table, script
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
        ({"end": "ended its process"}, False),
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
    """Where DevFix ends on its evidence; not where the fault goes on for ever, be it that another model goes on."""
    bye = saying(content="It is posted.")
    done = Row(name="d", group="model", says=[Reply(503), POST], ends="completed: done")
    ever = Row(name="e", group="model", says=[Reply(503)], ends="failed: model_unavailable")
    other = Row(name="o", group="model", says=[Reply(503)], second=[POST], ends="completed: done")
    assert script(done, done.says) == [Reply(503), POST, bye]
    assert script(ever, ever.says) == [Reply(503)]
    assert script(other, other.says) == [Reply(503)]
    assert script(other, other.second) == [POST, bye]


def test_the_systems_stand_side_by_side_in_each_group() -> None:
    """With what each was installed as; each of them once plainly, and once with code of one's own that looks."""
    runs = [RUN, RUN.model_copy(update={"group": "tool", "letters": 0}), RUN.model_copy(update={"end": "hangs"})]
    one, two = (peer_figures(name, runs, [each.right for each in runs], installed="x==1") for name in ("A", "B"))
    lines = peer_table([one, two]).splitlines()
    assert lines[0] == "With x==1:"
    assert [line.split(" | ")[:4] for line in lines[4:8]] == [
        ["| model", "A", "2", "1"],
        ["| model", "B", "2", "1"],
        ["| tool", "A", "1", "0"],
        ["| tool", "B", "1", "0"],
    ]
    assert one.not_right == ["tool: r: returned, 0 letters", "model: r: hangs, 1 letters"]
    assert [each.label for each in SYSTEMS if each.checks] == [f"{each.name}, looking itself" for each in SYSTEMS[:2]]
    assert all((PROGRAMS / each.program).is_file() for each in SYSTEMS)
