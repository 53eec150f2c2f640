"""Many measurements as a person reads them: the middle, and how far they spread."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict


class Spread(BaseModel):
    """Median and the 5th and 95th percentile; a single outlier moves none of them."""

    model_config = ConfigDict(frozen=True)

    median: float
    p5: float
    p95: float
    count: int

    @classmethod
    def of(cls, values: Sequence[float], *, digits: int = 3) -> Spread:
        """Raises ValueError where nothing was measured."""
        if not values:
            raise ValueError("nothing was measured")
        ordered = sorted(values)
        return cls(
            median=round(statistics.median(ordered), digits),
            p5=round(percentile(ordered, 0.05), digits),
            p95=round(percentile(ordered, 0.95), digits),
            count=len(ordered),
        )


def percentile(ordered: Sequence[float], share: float) -> float:
    """The value below which this share of the sorted values lies, interpolated."""
    place = share * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def ratio(ours: float, peers: float) -> float:
    """How many times the peer's figure ours is; below 1 is better than the peer."""
    return round(ours / peers, 3)


def in_pairs(repetitions: int) -> list[bool]:
    """Whose turn it is, ours being True: A B B A A B …, so that a machine that grows slower favours nobody."""
    return [place % 4 in {0, 3} for place in range(2 * repetitions)]
