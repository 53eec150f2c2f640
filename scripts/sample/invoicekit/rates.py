"""Tax rates, and the days from which they hold."""

from dataclasses import dataclass
from datetime import date


class UnknownRate(LookupError):
    """No rate of this category holds on that day."""


@dataclass(frozen=True)
class RateChange:
    """From a day on, a category is taxed at a rate (in basis points)."""

    category: str
    valid_from: date
    basis_points: int


class RateTable:
    """The rates of one country over the years."""

    def __init__(self, changes):
        self._changes = sorted(changes, key=lambda change: change.valid_from)

    def categories(self):
        return sorted({change.category for change in self._changes})

    def rate_on(self, category, day):
        """The rate of a category on a day, in basis points."""
        current = None
        for change in self._changes:
            if change.category == category and change.valid_from < day:
                current = change
        if current is None:
            raise UnknownRate(f"no rate for {category!r} on {day.isoformat()}")
        return current.basis_points

    def changes_between(self, start, end):
        """Days in a period (both ends included) on which some rate changes."""
        days = {change.valid_from for change in self._changes}
        return sorted(day for day in days if start <= day <= end)


GERMANY = RateTable(
    [
        RateChange("standard", date(2007, 1, 1), 1900),
        RateChange("reduced", date(1983, 7, 1), 700),
        RateChange("standard", date(2020, 7, 1), 1600),
        RateChange("reduced", date(2020, 7, 1), 500),
        RateChange("standard", date(2021, 1, 1), 1900),
        RateChange("reduced", date(2021, 1, 1), 700),
        RateChange("solar", date(2023, 1, 1), 0),
    ]
)
