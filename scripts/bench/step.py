"""What a durable step costs, with its fence, trace and heartbeat, against the same graph on LangGraph's saver."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict

from scripts.bench.loop import Bench, ours, plain
from scripts.bench.machine import Machine, machine
from scripts.bench.spread import Spread, in_pairs, ratio
from scripts.bootstrap import build
from state.settings import Settings

WARM_UP_STEPS = 20


class StepFigures(BaseModel):
    """Milliseconds a step, of all steps of all repetitions, ours and the peer's taking turns."""

    model_config = ConfigDict(frozen=True)

    figure: str = "step"
    machine: Machine
    steps: int
    bytes_a_step: int
    repetitions: int
    ours_ms: Spread
    peer: str = "AsyncPostgresSaver, the same graph, DeltaChannel, durability sync"
    peer_ms: Spread
    ratio: float
    """The ratio of the medians: ours by the peer's."""
    ratio_of_pairs: Spread
    """The same for each pair of neighbouring runs: how far one run's ratio can be trusted."""
    effect_ms: Spread
    """Ours, with the intent and the receipt of an effect in each step. The peer has no such thing."""
    effect_ratio: float
    target: float = 1.0


async def measure(settings: Settings, *, steps: int = 300, size: int = 2048, repetitions: int = 6) -> StepFigures:
    """Run both in turns (A B B A …) on one PostgreSQL, ours also with effects. Raises DatabaseUnavailable."""
    application = build(settings, label="bench")
    async with ours(settings) as devfix, plain(settings) as peer:
        for bench in (devfix, peer):
            await bench.run(WARM_UP_STEPS, size)
        runs, effects = [], []
        for turn in in_pairs(repetitions):
            runs.append(await _timed(devfix if turn else peer, steps, size))
            if turn:
                effects += (await devfix.run(steps, size, effects=True)).step_ms
        facts = await machine(application.database)
    await application.services.close()
    return figures(facts, runs, in_pairs(repetitions), effects, steps=steps, size=size)


async def _timed(bench: Bench, steps: int, size: int) -> list[float]:
    return (await bench.run(steps, size)).step_ms


def figures(
    facts: Machine,
    runs: Sequence[Sequence[float]],
    turns: Sequence[bool],
    effects: Sequence[float],
    *,
    steps: int,
    size: int,
) -> StepFigures:
    """What the measured runs say; `turns` says which of them are ours."""
    mine = [run for run, turn in zip(runs, turns, strict=True) if turn]
    peers = [run for run, turn in zip(runs, turns, strict=True) if not turn]
    ours_ms = Spread.of([step for run in mine for step in run])
    peer_ms = Spread.of([step for run in peers for step in run])
    effect_ms = Spread.of(effects)
    pairs = [ratio(statistics.median(own), statistics.median(other)) for own, other in zip(mine, peers, strict=True)]
    return StepFigures(
        machine=facts,
        steps=steps,
        bytes_a_step=size,
        repetitions=len(mine),
        ours_ms=ours_ms,
        peer_ms=peer_ms,
        ratio=ratio(ours_ms.median, peer_ms.median),
        ratio_of_pairs=Spread.of(pairs),
        effect_ms=effect_ms,
        effect_ratio=ratio(effect_ms.median, peer_ms.median),
    )
