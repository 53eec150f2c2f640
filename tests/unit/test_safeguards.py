"""The table of safeguards is that of today's sources: each removal still applies."""

from __future__ import annotations

import ast

import pytest

from tests.helpers.removal import ROOT, edited
from tests.safeguards.table import SAFEGUARDS, Safeguard
from tests.safeguards.trials import TRIALS


@pytest.mark.parametrize("safeguard", SAFEGUARDS, ids=lambda each: each.name)
def test_it_can_be_taken_out(safeguard: Safeguard) -> None:
    """Each of its texts stands once in its file, and what is left can be parsed."""
    texts = {edit.file: (ROOT / edit.file).read_text() for edit in safeguard.removal}
    for edit in safeguard.removal:
        texts[edit.file] = edited(texts[edit.file], edit)
    for file, text in texts.items():
        if file.endswith(".py"):
            ast.parse(text)
    assert safeguard.trial in TRIALS
    assert len(safeguard.removal) >= 2 or not safeguard.many_locks


def test_there_are_many_of_different_names() -> None:
    """And each trial is there for one of them."""
    assert len({each.name for each in SAFEGUARDS}) == len(SAFEGUARDS) >= 15
    assert {each.trial for each in SAFEGUARDS} == set(TRIALS)
