"""The campaign's figures: what was struck, what was found, and how sure that makes anybody."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Literal, NamedTuple

from pydantic import BaseModel, ConfigDict

from scripts.bench.crash.wire import Side
from scripts.bench.machine import Machine
from scripts.bench.spread import Spread
from state.ids import short

Kind = Literal["kill", "freeze", "cut", "restart"]
"""kill: SIGKILL. freeze: SIGSTOP until another goes on, then SIGCONT. cut: the connection. restart: PostgreSQL."""


class Point(NamedTuple):
    """Where to strike: at the n-th moment of a kind in a run."""

    place: str
    side: Side
    number: int

    def __str__(self) -> str:
        return f"{self.side} {self.place} #{self.number}"


class Fault(NamedTuple):
    """One blow, at a point, or so many seconds after the run's begin."""

    kind: Kind
    at: Point | float

    def __str__(self) -> str:
        return f"{self.kind} {self.at}" if isinstance(self.at, Point) else f"{self.kind} after {self.at:.1f} s"


class Outcome(BaseModel):
    """One run, from its begin to its end, with what was done to it."""

    model_config = ConfigDict(frozen=True)

    run_id: str
    struck: list[str]
    """What was done to it, in order."""
    standing: str
    steps: int
    effects: dict[str, int]
    """How often each stands outside."""
    duplicates: int = 0
    lost: int = 0
    """Effects that are missing outside, and steps that are missing or stand beside each other in the tables."""
    true_status: bool = True
    """It has ended as an undisturbed run does, or a person is asked about an effect that did not go well; either way
    with a report."""
    told: bool = False
    """A person is asked."""
    taken_over_after: list[float] = []
    """Seconds from the death of a holder until another process held the run."""
    trouble: list[str] = []
    """Sentences about what is not as it should be."""

    @property
    def whole(self) -> bool:
        return not (self.duplicates or self.lost or self.trouble) and self.true_status

    def __str__(self) -> str:
        how = "whole" if self.whole else f"NOT WHOLE ({'; '.join(self.trouble) or self.effects})"
        blows = ", ".join(self.struck) or "undisturbed"
        after = "".join(f"; taken over after {seconds:.1f} s" for seconds in self.taken_over_after)
        return f"{short(self.run_id)}: {self.standing}, {how}; {blows}{after}"


class TrialFigures(BaseModel):
    """All runs of one kind."""

    model_config = ConfigDict(frozen=True)

    trial: str
    runs: int
    kills: int
    freezes: int
    cuts: int
    restarts: int
    points: int
    """Different points at which an undisturbed run can be struck."""
    points_struck: int
    effects: int
    duplicates: int
    lost: int
    without_true_status: int
    told: int
    processes_left: list[str]
    """Of those that were killed, by their commands."""
    bound_95: float
    """With 95 % confidence, at most this share of blows does harm (Clopper-Pearson)."""
    takeover_seconds: Spread | None
    not_whole: list[Outcome]

    @property
    def whole(self) -> bool:
        return not self.not_whole and not self.processes_left


class CrashFigures(BaseModel):
    """No peer in the same process: the ratio is runs that came through whole, to all runs."""

    model_config = ConfigDict(frozen=True)

    figure: str = "crash"
    machine: Machine
    seed: int
    seconds: float
    kills: int
    freezes: int
    duplicates: int
    lost: int
    without_true_status: int
    bound_95: float
    whole: bool
    ratio: float
    trials: list[TrialFigures]


def upper_bound(harmful: int, blows: int) -> float:
    """The one-sided 95 % Clopper-Pearson bound of a share; for none it is close to 3 / blows."""
    if harmful >= blows:
        return 1.0
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        below = sum(
            math.comb(blows, each) * middle**each * (1 - middle) ** (blows - each) for each in range(harmful + 1)
        )
        low, high = (middle, high) if below > 0.05 else (low, middle)
    return round(high, 5)


def trial_figures(
    name: str,
    outcomes: Sequence[Outcome],
    *,
    points: Collection[Point],
    struck: Sequence[Fault],
    processes_left: Sequence[str] = (),
) -> TrialFigures:
    kinds = [each.kind for each in struck]
    takeovers = [seconds for each in outcomes for seconds in each.taken_over_after]
    return TrialFigures(
        trial=name,
        runs=len(outcomes),
        kills=kinds.count("kill"),
        freezes=kinds.count("freeze"),
        cuts=kinds.count("cut"),
        restarts=kinds.count("restart"),
        points=len(points),
        points_struck=len(set(points) & {each.at for each in struck if isinstance(each.at, Point)}),
        effects=sum(sum(each.effects.values()) for each in outcomes),
        duplicates=sum(each.duplicates for each in outcomes),
        lost=sum(each.lost for each in outcomes),
        without_true_status=sum(not each.true_status for each in outcomes),
        told=sum(each.told for each in outcomes),
        processes_left=list(processes_left),
        bound_95=upper_bound(sum(not each.whole for each in outcomes), len(kinds)),
        takeover_seconds=Spread.of(takeovers) if takeovers else None,
        not_whole=[each for each in outcomes if not each.whole],
    )


def crash_figures(facts: Machine, trials: Sequence[TrialFigures], *, seed: int, seconds: float) -> CrashFigures:
    runs = sum(each.runs for each in trials)
    broken = sum(len(each.not_whole) for each in trials)
    blows = sum(each.kills + each.freezes + each.cuts + each.restarts for each in trials)
    return CrashFigures(
        machine=facts,
        seed=seed,
        seconds=round(seconds, 1),
        kills=sum(each.kills for each in trials),
        freezes=sum(each.freezes for each in trials),
        duplicates=sum(each.duplicates for each in trials),
        lost=sum(each.lost for each in trials),
        without_true_status=sum(each.without_true_status for each in trials),
        bound_95=upper_bound(broken, blows),
        whole=all(each.whole for each in trials),
        ratio=round((runs - broken) / runs, 3) if runs else 1.0,
        trials=list(trials),
    )
