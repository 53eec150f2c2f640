"""What was counted at the shop, a row for each system."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from pydantic import BaseModel, ConfigDict

from scripts.bench.machine import Machine
from scripts.bench.spread import Spread

_TRUE = {"completed", "a person is told"}


class Errand(BaseModel):
    """One run, and what stands at the shop in the end."""

    model_config = ConfigDict(frozen=True)

    order: int
    struck: list[str]
    went_on_after: list[float] = []
    """Seconds, as `next_seconds` below; a kill before it went on from the last one counts instead of that."""
    standing: str
    refunds: int
    letters: int

    def __str__(self) -> str:
        after = ", ".join(f"{each:.1f} s" for each in self.went_on_after)
        return f"order {self.order} {self.standing}; {', '.join(self.struck)}; went on after {after or '-'}"

    @property
    def true_status(self) -> bool:
        """It has ended, or a person is asked about what nobody else can know."""
        return self.standing in _TRUE

    @property
    def whole(self) -> bool:
        return self.true_status and (self.standing != "completed" or (self.refunds, self.letters) == (1, 1))

    def lost(self, count: int) -> int:
        """Whether the system says that it is done, and it is not."""
        return int(self.standing == "completed" and not count)


class SystemFigures(BaseModel):
    """One system under all its kills."""

    model_config = ConfigDict(frozen=True)

    system: str
    version: str
    promise: str
    not_measured: str | None = None
    """Why there are no figures."""
    seconds: float = 0.0
    """How long an undisturbed run takes."""
    points: int = 0
    """Different points at which an undisturbed run can be struck."""
    kills: int = 0
    kills_at_requests: int = 0
    kills_at_commits: int = 0
    """The others fell at random times."""
    runs: int = 0
    refunds_doubled: int = 0
    refunds_lost: int = 0
    letters_doubled: int = 0
    letters_lost: int = 0
    without_true_status: int = 0
    told: int = 0
    next_seconds: Spread | None = None
    """From a kill until the fresh worker asks something of the shop, or the run has ended."""
    not_whole: list[Errand] = []


class PeerFigures(BaseModel):
    """Same errand, same shop, same wires, same seed."""

    model_config = ConfigDict(frozen=True)

    figure: Literal["peers"] = "peers"
    machine: Machine
    seed: int
    seconds: float
    systems: list[SystemFigures]

    @property
    def whole(self) -> bool:
        """Whether DevFix's runs came through; the others are what they are."""
        return not any(each.not_whole or each.not_measured for each in self.systems if each.system == "DevFix")


def counted(errands: Sequence[Errand]) -> dict[str, object]:
    """The fields of SystemFigures that are counted at the shop."""
    return {
        "runs": len(errands),
        "refunds_doubled": sum(max(each.refunds - 1, 0) for each in errands),
        "refunds_lost": sum(each.lost(each.refunds) for each in errands),
        "letters_doubled": sum(max(each.letters - 1, 0) for each in errands),
        "letters_lost": sum(each.lost(each.letters) for each in errands),
        "without_true_status": sum(not each.true_status for each in errands),
        "told": sum(each.standing == "a person is told" for each in errands),
        "not_whole": [each for each in errands if not each.whole],
    }


_COLUMNS: dict[str, Callable[[SystemFigures], object]] = {
    "system": lambda row: row.system,
    "kills (at requests, at commits)": lambda row: f"{row.kills} ({row.kills_at_requests}, {row.kills_at_commits})",
    "runs": lambda row: row.runs,
    "refunds doubled": lambda row: row.refunds_doubled,
    "refunds lost": lambda row: row.refunds_lost,
    "letters doubled": lambda row: row.letters_doubled,
    "letters lost": lambda row: row.letters_lost,
    "no true status": lambda row: row.without_true_status,
    "goes on after, median (p95)": lambda row: _spread(row.next_seconds),
}


def table(figures: PeerFigures) -> str:
    """In Markdown, and what each promises below."""
    rows = [list(_COLUMNS), ["---"] * len(_COLUMNS)]
    for each in figures.systems:
        if each.not_measured:
            rows.append([each.system, "not measured", *[""] * (len(_COLUMNS) - 2)])
        else:
            rows.append([str(cell(each)) for cell in _COLUMNS.values()])
    lines = [f"| {' | '.join(row)} |" for row in rows]
    notes = [f"- {each.system} ({each.version}): {each.not_measured or each.promise}." for each in figures.systems]
    return "\n".join([*lines, "", *notes])


def _spread(measured: Spread | None) -> str:
    return f"{measured.median:.1f} s ({measured.p95:.1f} s)" if measured else "-"
