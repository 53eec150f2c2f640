"""The display of a run under way: a live panel on a terminal, a line an event everywhere else."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel as Box
from rich.text import Text

from scripts.cli.output import say
from scripts.watching import View
from state.ids import short
from tools.unified import shown

_RECENT = 8
_ANSWER_LINES = 4


class Display(Protocol):
    """Shows events as they come; `during` holds while something is under way."""

    def during(self, view: View) -> contextlib.AbstractContextManager[None]: ...

    def event(self, line: str) -> None: ...


def display_for(*, live: bool) -> Display:
    """The live panel where a person watches; lines elsewhere."""
    return Panel() if live and os.environ.get("TERM") != "dumb" else Lines()


class Lines:
    """One line an event, on stderr. That nobody reads any more is no reason to stop a run."""

    def __init__(self) -> None:
        self._gone = False

    @contextmanager
    def during(self, view: View) -> Iterator[None]:
        yield

    def event(self, line: str) -> None:
        if self._gone:
            return
        try:
            say(line)
        except BrokenPipeError:
            self._gone = True


class Panel:
    """A panel at the foot of the terminal, drawn anew a few times a second; events scroll by above it."""

    def __init__(self) -> None:
        self._console = Console(stderr=True, highlight=False)

    @contextmanager
    def during(self, view: View) -> Iterator[None]:
        with Live(
            get_renderable=lambda: panel(view), console=self._console, refresh_per_second=4, transient=True
        ) as live:
            live.refresh()
            yield

    def event(self, line: str) -> None:
        self._console.print(shown(line), markup=False, overflow="ellipsis", no_wrap=True)


def panel(view: View) -> Box:
    """What the panel shows: plan, what runs now, failing tests, candidates, and what is left of money and time."""
    body = [*_plan(view), Text(), *_now(view), *_answer(view), *_tests(view), Text(limits(view), style="dim")]
    return Box(Group(*body), title=f"run {short(view.run_id)}", subtitle=f"step {view.step}", title_align="left")


def _plan(view: View) -> Iterator[Text]:
    current = next((item for item in view.plan if item not in view.completed), None)
    for item in view.plan:
        mark, style = ("✓", "green") if item in view.completed else ("▸", "bold") if item == current else ("·", "dim")
        yield Text(f"{mark} {shown(item)}", style=style, overflow="ellipsis", no_wrap=True)


def _now(view: View) -> Iterator[Text]:
    for name, since in list(view.running.values())[:_RECENT]:
        yield Text(f"{shown(name)}  {view.clock() - since:.0f} s", style="cyan")


def _answer(view: View) -> Iterator[Text]:
    """The last lines of what the model says just now, or why nobody is asked."""
    if view.waits:
        yield Text(shown(view.waits), style="yellow", overflow="ellipsis", no_wrap=True)
    for line in view.answer.splitlines()[-_ANSWER_LINES:]:
        yield Text(shown(line), style="italic", overflow="ellipsis", no_wrap=True)


def _tests(view: View) -> Iterator[Text]:
    if view.failing:
        names = ", ".join(view.failing[:3]) + (f" and {len(view.failing) - 3} more" if len(view.failing) > 3 else "")
        yield Text(f"failing tests: {shown(names)}", style="red", overflow="ellipsis", no_wrap=True)
    if view.candidates:
        yield Text(f"candidates tried: {view.candidates}")


def limits(view: View) -> str:
    """What was spent, and what is left."""
    parts = [f"{view.cost_usd:.4f} USD"]
    if view.usd_left is not None:
        parts[0] += f" ({view.usd_left:.4f} left)"
    if view.tokens:
        parts.append(f"{view.tokens} tokens")
    if (left := view.seconds_left) is not None:
        parts.append(f"{int(left) // 60}:{int(left) % 60:02d} left")
    if steps := view.budgets.get("steps"):
        parts.append(f"{max(0, steps - view.step)} steps left")
    return " · ".join(parts)
