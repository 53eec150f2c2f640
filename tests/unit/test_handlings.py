"""The table of handlings is that of today's sources and of the whole fault campaign."""

from __future__ import annotations

import ast

import pytest

from scripts.bench.faults.table import TABLE
from tests.handlings.handling import Handling, covered_by
from tests.handlings.table import HANDLINGS, NOTHING_TO_TAKE_OUT
from tests.helpers.removal import ROOT, edited


@pytest.mark.parametrize("handling", HANDLINGS, ids=lambda each: each.name)
def test_it_can_be_taken_out(handling: Handling) -> None:
    """Each of its texts stands once in its file, and what is left can be parsed."""
    texts = {edit.file: (ROOT / edit.file).read_text() for edit in handling.removal}
    for edit in handling.removal:
        texts[edit.file] = edited(texts[edit.file], edit)
    for text in texts.values():
        ast.parse(text)
    assert len(handling.removal) >= 2 or not handling.many_locks


def test_each_row_of_the_campaign_has_a_handling() -> None:
    """Few have none that could be taken out, each with its reason."""
    assert covered_by(HANDLINGS) | set(NOTHING_TO_TAKE_OUT) == {row.name for row in TABLE}
    assert not covered_by(HANDLINGS) & set(NOTHING_TO_TAKE_OUT)
    assert len(NOTHING_TO_TAKE_OUT) <= 3


def test_there_are_many_of_different_names() -> None:
    """No two are taken for one."""
    assert len({each.name for each in HANDLINGS}) == len(HANDLINGS)


def test_a_pattern_of_no_row_is_refused() -> None:
    """A row that is renamed does not lose its handling without a word."""
    with pytest.raises(ValueError, match="covers no row: no such row"):
        _ = HANDLINGS[0]._replace(rows=("no such row",)).covered
