"""How many turns in a row have failed in the same way: what the failure table's limits count.

Kinds that stand for one trouble (answers that can't be used, whatever is wrong with each) count as one family. A turn
counts once, however many of its calls fail; a turn without such a failure begins the count anew. Failures of several
kinds that take turns are counted together, until a call succeeds. A model that does not answer has no turn: its tries
are counted where it is asked (`graph.models.chain`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from state.failures import FailureKind

UNUSABLE: Final = frozenset[FailureKind]({"unparsable_output", "truncated_output", "empty_output", "refused"})
"""Answers that can't be used. The model is told why, to give its answer again; that its server was down is none of its
business."""


IN_VAIN: Final = "in vain"
"""What all failures count as, but for a standstill, which has a count of its own."""


def family(kind: FailureKind) -> str:
    """What counts together; else an empty answer and a broken one could take turns for ever."""
    return "unusable" if kind in UNUSABLE else kind


def ways(kinds: Iterable[FailureKind]) -> set[str]:
    """All that failures of these kinds count as."""
    families = {family(kind) for kind in kinds}
    return families | ({IN_VAIN} if families - {"no_progress"} else set())


def counted(
    streaks: Mapping[str, int], turn: Iterable[str], fresh: Iterable[FailureKind], *, succeeded: bool = False
) -> dict[str, int]:
    """The streaks with the fresh failures of a turn whose earlier failures, `turn`, are counted already. `succeeded`: a
    call of it has, too."""
    before = {each: count for each, count in streaks.items() if not (succeeded and each == IN_VAIN)}
    new = ways(fresh) - set(turn)
    return {**before, **{each: before.get(each, 0) + 1 for each in new}}


def kept(streaks: Mapping[str, int], turn: Iterable[str]) -> dict[str, int]:
    """What is left at the end of a turn in which these failed. A turn that gets somewhere, between two standstills,
    does not begin their count anew: a circle takes many turns. Nor is a turn a success in which nothing was done."""
    left = {*turn, "no_progress", IN_VAIN}
    return {each: count for each, count in streaks.items() if each in left}
