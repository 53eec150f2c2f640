"""What a handling is."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

from scripts.bench.faults.table import TABLE, Row
from tests.helpers.removal import Edit


class Handling(NamedTuple):
    """What the product does about some faults."""

    name: str
    purpose: str
    rows: tuple[str, ...]
    """Rows that turn red without it: their names, or patterns of them with `*`."""
    removal: tuple[Edit, ...]
    many_locks: bool = False
    """Each part of the removal is a lock of its own on the same door: only without all is anything to be seen."""

    @property
    def covered(self) -> list[Row]:
        """The rows of the table that it is for. Raises ValueError for a pattern of none."""
        for pattern in self.rows:
            if not any(fnmatchcase(row.name, pattern) for row in TABLE):
                raise ValueError(f"{self.name} covers no row: {pattern}")
        return [row for row in TABLE if any(fnmatchcase(row.name, pattern) for pattern in self.rows)]


def policy(*changes: tuple[str, str]) -> tuple[Edit, ...]:
    """Rows of the failure table, changed."""
    return tuple(Edit("graph/policy.py", old, new) for old, new in changes)


def covered_by(handlings: Sequence[Handling]) -> set[str]:
    """The names of all rows that one of them is for."""
    return {row.name for each in handlings for row in each.covered}
