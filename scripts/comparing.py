"""What differs between two steps, of one run or of two: the state's fields, and the files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from scripts.bootstrap import Application
from scripts.facts import at_step
from state.errors import Refused, StepNotFound
from state.ids import short
from state.runs import Run
from state.steps import Step
from tools.patch import unified_diff

_LISTS = ("messages", "attempts", "failures")
_OWN = {"run_id", "step"}


class Side(NamedTuple):
    """One of the two that are compared."""

    run: Run
    step: Step

    def __str__(self) -> str:
        return f"{short(self.run.run_id)} step {self.step.number}"


async def sides(application: Application, given: Sequence[str]) -> tuple[Side, Side]:
    """RUN STEP STEP, or two runs, each as RUN (its newest step) or RUN@STEP. Raises Refused."""
    match given:
        case [run, first, second]:
            return (await _side(application, run, first), await _side(application, run, second))
        case [first, second]:
            return (
                await _side(application, *first.partition("@")[::2]),
                await _side(application, *second.partition("@")[::2]),
            )
    raise Refused("give a run and two of its steps, or two runs")


async def _side(application: Application, prefix: str, number: str) -> Side:
    run = await application.services.runs.find(prefix)
    if number and not (number.isascii() and number.isdigit()):
        raise Refused(f"{number!r} is no step's number; `devfix history {short(run.run_id)}` lists them")
    if run.step == 0:
        raise StepNotFound(f"run {short(run.run_id)} has no steps yet")
    return Side(run, await application.steps.get(run.run_id, int(number) if number else run.step))


async def difference(application: Application, old: Side, new: Side) -> dict[str, Any]:
    """`from`, `to`, `state` (each field that differs) and `files` (a unified diff)."""
    before = (await at_step(application, old.run, old.step)).values
    after = (await at_step(application, new.run, new.step)).values
    return {
        "from": _about(old),
        "to": _about(new),
        "state": differing(before, after),
        "files": await _files(application, before.get("snapshot"), after.get("snapshot")),
    }


def differing(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """Each field with other values: the two, and of a list of records those that only one side has."""
    fields: dict[str, Any] = {}
    for name in sorted({*before, *after} - _OWN):
        old, new = before.get(name), after.get(name)
        if old == new:
            continue
        if name in _LISTS:
            alike = _alike(old or (), new or ())
            fields[name] = {"removed": list(old or ())[alike:], "added": list(new or ())[alike:]}
        else:
            fields[name] = {"from": old, "to": new}
    return fields


def _alike(old: Sequence[Any], new: Sequence[Any]) -> int:
    """How many records the two have in common, from the first on."""
    pairs = enumerate(zip(old, new, strict=False))
    return next((place for place, (one, other) in pairs if one != other), min(len(old), len(new)))


async def _files(application: Application, old: str | None, new: str | None) -> str:
    if old is None or new is None or old == new:
        return ""
    return await unified_diff(application.services.snapshots, old, new)


def _about(side: Side) -> dict[str, Any]:
    return {"run_id": side.run.run_id, "step": side.step.number, "snapshot": side.step.snapshot, "at": side.step.at}
