"""How many turns in a row have failed in the same way: what the failure table's limits count.

Kinds that stand for one trouble (answers that can't be used, whatever is wrong with each) count as one family. A turn
counts once, however many of its calls fail; a turn without such a failure begins the count anew. A model that does not
answer has no turn: its tries are counted where it is asked (`graph.models.chain`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from state.failures import FailureKind

UNUSABLE: Final = frozenset[FailureKind]({"unparsable_output", "truncated_output", "empty_output", "refused"})
"""Answers that can't be used. The model is told why, to give its answer again; that its server was down is none of its
business."""


def family(kind: FailureKind) -> str:
    """What counts together; else an empty answer and a broken one could take turns for ever."""
    return "unusable" if kind in UNUSABLE else kind


def counted(streaks: Mapping[str, int], turn: Iterable[str], fresh: Iterable[FailureKind]) -> dict[str, int]:
    """The streaks with the fresh failures of a turn whose earlier failures, `turn`, are counted already."""
    new = {family(kind) for kind in fresh} - set(turn)
    return {**streaks, **{each: streaks.get(each, 0) + 1 for each in new}}


def kept(streaks: Mapping[str, int], turn: Iterable[str]) -> dict[str, int]:
    """What is left at the end of a turn in which these failed. A turn that gets somewhere, between two standstills,
    does not begin their count anew: a circle takes many turns."""
    left = {*turn, "no_progress"}
    return {each: count for each, count in streaks.items() if each in left}
