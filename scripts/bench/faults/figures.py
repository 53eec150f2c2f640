"""What the campaign found, as one object and as the lines of a person."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict

from scripts.bench.faults.peer import PeerFigures, peer_table
from scripts.bench.faults.traces import TraceFigures
from scripts.bench.machine import Machine


class Outcome(BaseModel):
    """One run of one row."""

    model_config = ConfigDict(frozen=True)

    row: str
    group: str
    seed: int
    killed: bool
    """Its process was killed in the middle, and another one went on."""
    expected: str
    standing: str
    asked: int
    """How often its models were asked from the fault on."""
    calls_after_a_limit: int
    letters: int
    false_completed: bool
    """It says completed, and the letter is not there once."""
    unapproved: int
    """Effects before a person said yes."""
    trouble: list[str] = []
    """What else is not as it must be."""
    seconds: float = 0.0

    @property
    def right(self) -> bool:
        clean = not (self.calls_after_a_limit or self.false_completed or self.unapproved or self.trouble)
        return clean and self.standing == self.expected and self.letters <= 1

    def __str__(self) -> str:
        said = [
            f"calls after a limit: {self.calls_after_a_limit}" if self.calls_after_a_limit else "",
            "false completed" if self.false_completed else "",
            f"unapproved effects: {self.unapproved}" if self.unapproved else "",
            *self.trouble,
        ]
        how = self.standing if self.standing == self.expected else f"{self.standing} instead of {self.expected}"
        where = f"seed {self.seed}{', killed' if self.killed else ''}"
        return "; ".join(each for each in (f"{self.group}: {self.row} ({where}): {how}", *said) if each)


class GroupFigures(BaseModel):
    """The runs of one group of rows."""

    model_config = ConfigDict(frozen=True)

    group: str
    rows: int
    runs: int
    killed: int
    right: int
    false_completed: int
    calls_after_a_limit: int
    unapproved: int
    share_right: float


class FaultFigures(BaseModel):
    """No peer in the same process: the ratio is the share of runs that ended as the table says."""

    model_config = ConfigDict(frozen=True)

    figure: str = "faults"
    machine: Machine
    seeds: int
    rows: int
    runs: int
    killed: int
    seconds: float
    right: int
    ratio: float
    false_completed: int
    calls_after_a_limit: int
    unapproved: int
    groups: list[GroupFigures]
    no_progress: TraceFigures
    wrong: list[Outcome]
    peer: PeerFigures | None = None

    @property
    def whole(self) -> bool:
        return not self.wrong and self.no_progress.whole


def group_figures(group: str, outcomes: Sequence[Outcome]) -> GroupFigures:
    right = sum(each.right for each in outcomes)
    return GroupFigures(
        group=group,
        rows=len({each.row for each in outcomes}),
        runs=len(outcomes),
        killed=sum(each.killed for each in outcomes),
        right=right,
        false_completed=sum(each.false_completed for each in outcomes),
        calls_after_a_limit=sum(each.calls_after_a_limit for each in outcomes),
        unapproved=sum(each.unapproved for each in outcomes),
        share_right=round(right / len(outcomes), 4) if outcomes else 1.0,
    )


def fault_figures(
    facts: Machine, outcomes: Sequence[Outcome], traces: TraceFigures, *, seeds: int, seconds: float
) -> FaultFigures:
    names = list(dict.fromkeys(each.group for each in outcomes))
    groups = [group_figures(name, [each for each in outcomes if each.group == name]) for name in names]
    total = group_figures("all", outcomes)
    return FaultFigures(
        machine=facts,
        seeds=seeds,
        rows=total.rows,
        runs=total.runs,
        killed=total.killed,
        seconds=round(seconds, 1),
        right=total.right,
        ratio=total.share_right,
        false_completed=total.false_completed,
        calls_after_a_limit=total.calls_after_a_limit,
        unapproved=total.unapproved,
        groups=groups,
        no_progress=traces,
        wrong=[each for each in outcomes if not each.right],
    )


_COLUMNS = ("group", "rows", "runs", "killed", "right", "false_completed", "calls_after_a_limit", "unapproved")


def table(figures: FaultFigures) -> str:
    """In Markdown."""
    total = group_figures("all", []).model_copy(update=figures.model_dump(include=set(_COLUMNS)))
    rows = [[name.replace("_", " ") for name in _COLUMNS], ["---"] * len(_COLUMNS)]
    rows += [[str(getattr(each, name)) for name in _COLUMNS] for each in (*figures.groups, total)]
    lines = [f"| {' | '.join(row)} |" for row in rows]
    beside = ["", peer_table(figures.peer)] if figures.peer else []
    return "\n".join([*lines, "", str(figures.no_progress), *(f"- {each}" for each in figures.wrong), *beside])
