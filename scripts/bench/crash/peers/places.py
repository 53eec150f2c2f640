"""Where the kills fall: a quarter at requests to the shop, a quarter at commits, the others at random times.

A system that saves more often has more commits; it is struck at requests as often as the others all the same. Where
no commits are seen, random times stand in for them.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from typing import Literal

from scripts.bench.crash.figures import Fault, Point
from scripts.bench.crash.plan import A_RUN

Seen = Literal["request", "commit"]
_TURNS: tuple[Seen | None, ...] = ("request", None, "commit", None)


class Places:
    """Kills that are still to fall; each point is struck before any is struck twice."""

    def __init__(self, points: Mapping[Point, Seen], seconds: float, kills: int, chance: random.Random) -> None:
        self._points = points
        self._seconds = seconds
        self._chance = chance
        self._left = [_TURNS[number % len(_TURNS)] for number in range(kills)]
        self._decks: dict[Seen, list[Point]] = {"request": [], "commit": []}

    def __bool__(self) -> bool:
        return bool(self._left)

    def next(self) -> list[Fault]:
        """For one run."""
        taken, self._left = self._left[:A_RUN], self._left[A_RUN:]
        return [Fault("kill", self._point(seen) or self._chance.uniform(0, self._seconds)) for seen in taken]

    def give_back(self, faults: Iterable[Fault]) -> None:
        """The run ended before these could fall; they fall on another one."""
        for each in faults:
            if isinstance(each.at, Point):
                self._decks[self._points[each.at]].insert(0, each.at)
                self._left.append(self._points[each.at])
            else:
                self._left.append(None)

    def _point(self, seen: Seen | None) -> Point | None:
        if seen is None:
            return None
        if not self._decks[seen]:
            self._decks[seen] = sorted(point for point, kind in self._points.items() if kind == seen)
            self._chance.shuffle(self._decks[seen])
        return self._decks[seen].pop() if self._decks[seen] else None
