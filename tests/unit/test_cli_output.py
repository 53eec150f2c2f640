"""What a command prints, and what it does not load to print it."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from scripts.approving import decision_of
from scripts.cli.diff import changed
from scripts.cli.output import plain, put_diff, put_facts, put_json, put_table
from scripts.comparing import differing
from state.approvals import Decision
from state.errors import Refused
from state.status import Standing


def test_any_value_is_json(capsys: pytest.CaptureFixture[str]) -> None:
    """Surrogates come back as they were, in ASCII; moments are ISO; numbers that JSON lacks and strangers are text."""
    value = {
        "text": "caf\udce9 \x00 ü",
        "at": datetime(2026, 1, 2, tzinfo=UTC),
        "nan": float("nan"),
        "set": {1},
        5: object,
    }
    put_json(value)
    out = capsys.readouterr().out
    assert out.isascii()
    back = json.loads(out)
    assert back["text"] == value["text"]
    assert back["at"] == "2026-01-02T00:00:00+00:00"
    assert (back["nan"], back["set"], back["5"]) == ("nan", [1], "<class 'object'>")
    assert plain(Decision(type="approve"))["type"] == "approve"


def test_a_table_is_whole_where_nobody_looks(capsys: pytest.CaptureFixture[str]) -> None:
    """Columns line up, a cell is one line, nothing is cut and nothing is coloured without a terminal."""
    put_table(("A", "B"), [("long enough", "x" * 300), (None, "two\nlines\x1b[1m")])
    head, first, second = capsys.readouterr().out.splitlines()
    assert head == "A            B"
    assert first.endswith("x" * 300)
    assert second == "-            two lines\\x1b[1m"


def test_facts_are_a_line_each(capsys: pytest.CaptureFixture[str]) -> None:
    """Lists and mappings go below their name."""
    put_facts({"a": 1, "standing": str(Standing("failed", "budget")), "list": ["x"], "map": {"k": ["v"], "none": None}})
    assert capsys.readouterr().out.splitlines() == [
        "a:        1",
        "standing: failed: budget",
        "list:",
        "  - x",
        "map:",
        "  k:",
        "    - v",
    ]


def test_a_diff_is_shown_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    """Line for line; what could turn the reading direction is written out."""
    put_diff("-a\n+b\u202e\n")
    assert capsys.readouterr().out == "-a\n+b\\u202e\n"


@pytest.mark.parametrize("given", ["{", "[]", "1", "nonsense"])
def test_an_edit_is_a_json_object(given: str) -> None:
    """Anything else is refused before anything is decided."""
    with pytest.raises(Refused, match="JSON object"):
        decision_of(edit=given, reject=None, respond=None)


def test_the_options_name_the_decision() -> None:
    """None of them approves; two at once are refused; an empty reason is a rejection all the same."""
    assert decision_of(edit=None, reject=None, respond=None) == Decision(type="approve")
    assert decision_of(edit='{"a": 1}', reject=None, respond=None) == Decision(type="edit", arguments={"a": 1})
    assert decision_of(edit=None, reject="", respond=None) == Decision(type="reject", message="")
    with pytest.raises(Refused):
        decision_of(edit=None, reject="no", respond="well")


def test_states_differ_by_field_and_lists_by_record() -> None:
    """A field with two values; of records, those that only one side has; ids and step numbers are no difference."""
    before = {"run_id": "a", "step": 1, "goal": "g", "cost_usd": 0.0, "messages": [1, 2]}
    after = {"run_id": "b", "step": 2, "goal": "g", "cost_usd": 0.5, "messages": [1, 3, 4], "snapshot": "s"}
    assert differing(before, after) == {
        "cost_usd": {"from": 0.0, "to": 0.5},
        "messages": {"removed": [2], "added": [3, 4]},
        "snapshot": {"from": None, "to": "s"},
    }


def test_of_what_differs_the_part_that_does_is_shown() -> None:
    """The field within a field, and the end of two texts that begin alike."""
    assert list(changed("work", {"a": 1, "b": {"c": 2}}, {"a": 1, "b": {"c": 3}})) == ["work.b.c: 2 → 3"]
    (line,) = changed("goal", "x" * 500 + "one", "x" * 500 + "two")
    assert line == f"goal: …{'x' * 40}one → …{'x' * 40}two"
