"""What the campaign found, as one object and as the lines of a person."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from pydantic import BaseModel, ConfigDict

from scripts.bench.faults.peer import PeerFigures, PeerRun, peer_figures, peer_table
from scripts.bench.faults.traces import TraceFigures
from scripts.bench.machine import Machine

RAN: Final = " ran"
"""How the trouble ends that tells of a tool that must not run."""


class Outcome(BaseModel):
    """One run of one row."""

    model_config = ConfigDict(frozen=True)

    row: str
    group: str
    seed: int
    killed: bool
    """Its process was killed in the middle, and another one went on."""
    served_by: str = ""
    """The server of others that gave its model's answers, if one did."""
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
        served = f", served by {self.served_by}" if self.served_by else ""
        where = f"seed {self.seed}{', killed' if self.killed else ''}{served}"
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
    servers: list[GroupFigures]
    """The rows that servers of others can say, once more with their answers; none of them is counted above."""
    only_here: list[str]
    """The rows, but for those of the database, that none of these servers can say."""
    own: PeerFigures
    """The first seed, as peers are counted."""
    peers: list[PeerFigures] = []

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
    ours = [each for each in outcomes if not each.served_by]
    total = group_figures("all", ours)
    said = {each.row for each in outcomes if each.served_by}
    alone = dict.fromkeys(f"{each.group}: {each.row}" for each in ours if each.row not in said)
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
        groups=_by(lambda each: each.group, ours),
        no_progress=traces,
        wrong=[each for each in outcomes if not each.right],
        servers=_by(lambda each: f"{each.served_by}: {each.group}", [each for each in outcomes if each.served_by]),
        only_here=[name for name in alone if not name.startswith("database")] if said else [],
        own=_as_a_peer([each for each in ours if each.seed == 0 and not each.killed and each.group != "database"]),
    )


def _by(name: Callable[[Outcome], str], outcomes: Sequence[Outcome]) -> list[GroupFigures]:
    names = dict.fromkeys(map(name, outcomes))
    return [group_figures(one, [each for each in outcomes if name(each) == one]) for one in names]


def _as_a_peer(outcomes: Sequence[Outcome]) -> PeerFigures:
    """Right is what the table says, and not only whether it ended or told of trouble."""
    runs = [
        PeerRun(
            row=each.row,
            group=each.group,
            expected=each.expected,
            end=_end(each.standing),
            letters=each.letters,
            calls_after_a_limit=each.calls_after_a_limit,
            ran=[trouble for trouble in each.trouble if trouble.endswith(RAN)],
        )
        for each in outcomes
    ]
    return peer_figures("DevFix", runs, [each.right for each in outcomes])


def _end(standing: str) -> str:
    if standing == "hangs":
        return standing
    return "returned" if standing.startswith("completed") else f"raised {standing}"


_COLUMNS = ("group", "rows", "runs", "killed", "right", "false_completed", "calls_after_a_limit", "unapproved")


def table(figures: FaultFigures) -> str:
    """In Markdown."""
    total = group_figures("all", []).model_copy(update=figures.model_dump(include=set(_COLUMNS)))
    lines = [*_rows([*figures.groups, total]), "", str(figures.no_progress)]
    if figures.servers:
        lines += ["", "With the answers of others' servers:", "", *_rows(figures.servers)]
        lines += ["", f"Rows that none of them can say: {'; '.join(figures.only_here) or 'none'}"]
    lines += [f"- {each}" for each in figures.wrong]
    if figures.peers:
        lines += ["", peer_table([*([figures.own] if figures.own.groups else []), *figures.peers])]
    return "\n".join(lines)


def _rows(groups: Sequence[GroupFigures]) -> list[str]:
    rows = [[name.replace("_", " ") for name in _COLUMNS], ["---"] * len(_COLUMNS)]
    rows += [[str(getattr(each, name)) for name in _COLUMNS] for each in groups]
    return [f"| {' | '.join(row)} |" for row in rows]
