"""Which blows fall on which run: each known point in turn, in an order that the seed gives, and some at any time."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping

from scripts.bench.crash.figures import Fault, Kind, Point

A_RUN = 3
"""Blows that fall on one run; fewer than make DevFix give a run up."""
ANY_TIME = 0.25
"""The share of blows that fall at a random time instead of a point."""


class Plan:
    """Blows that are still to fall."""

    def __init__(
        self, points: Iterable[Point], seconds: float, left: Mapping[Kind, int], chance: random.Random
    ) -> None:
        self._points = sorted(points)
        self._seconds = seconds
        self._chance = chance
        self._deck: list[Point] = []
        self._left: list[Kind] = [kind for kind, number in left.items() for _ in range(number)]
        chance.shuffle(self._left)

    def __bool__(self) -> bool:
        return bool(self._left)

    def next(self) -> list[Fault]:
        """For one run."""
        taken, self._left = self._left[:A_RUN], self._left[A_RUN:]
        return [Fault(kind, self._somewhere()) for kind in taken]

    def give_back(self, faults: Iterable[Fault]) -> None:
        """The run ended before these could fall; they fall elsewhere."""
        self._left += [each.kind for each in faults]

    def _somewhere(self) -> Point | float:
        if not self._points or self._chance.random() < ANY_TIME:
            return self._chance.uniform(0, self._seconds)
        if not self._deck:
            self._deck = list(self._points)
            self._chance.shuffle(self._deck)
        return self._deck.pop()
