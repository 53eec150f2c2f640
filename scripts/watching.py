"""What a person sees of a run under way, made from what the graph streams: a few facts, and one line an event."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

STREAM_MODES = ("tasks", "updates", "custom")
_NODES = {"plan": "planning", "act": "asking the model", "approval": "asking a person", "review": "judging the results"}


_ABSORBED: Mapping[str, type | tuple[type, ...]] = {
    "goal": str,
    "model": str,
    "answered_by": str,
    "plan": list,
    "completed": list,
    "cost_usd": (int, float),
    "tokens": int,
    "budgets": dict,
}
"""What the view takes over, where it is what it should be: a bad value from outside must not break the display."""


_ANSWER = 2000
"""Characters of a growing answer that are kept to be shown."""

_HANDLER = "__error_handler__"
"""How LangGraph names the task that is told of another one's error."""


@dataclass
class View:
    """A run as it stands. `take` feeds it; it never asks anybody."""

    run_id: str
    clock: Callable[[], float] = time.monotonic
    goal: str = ""
    model: str = ""
    step: int = 0
    plan: list[str] = field(default_factory=list)
    completed: list[str] = field(default_factory=list)
    failing: list[str] = field(default_factory=list)
    candidates: int = 0
    cost_usd: float = 0.0
    tokens: int = 0
    active_seconds: float = 0.0
    budgets: Mapping[str, Any] = field(default_factory=dict)
    answered_by: str = ""
    answer: str = ""
    """The end of what a model says just now."""
    waits: str = ""
    """Why no model is asked just now."""
    running: dict[str, tuple[str, float]] = field(default_factory=dict)
    """What runs now, by task: its name, and since when."""
    lines: list[str] = field(default_factory=list)
    _marked: float = 0.0

    def begin(self, values: Mapping[str, Any]) -> None:
        """Where the run stands before anything is streamed."""
        self._marked = self.clock()
        self._absorb(values)

    def take(self, mode: str, chunk: Any) -> list[str]:
        """Take a streamed chunk in; the event's lines, for whoever prints them."""
        if not isinstance(chunk, Mapping):
            return []
        lines = list(_TAKEN[mode](self, chunk))
        self.lines += lines
        return lines

    @property
    def seconds_left(self) -> float | None:
        """Of active time; None where there is no limit, or nothing is known of it yet."""
        limit = self.budgets.get("seconds")
        return None if limit is None else max(0.0, limit - self.active_seconds - (self.clock() - self._marked))

    @property
    def usd_left(self) -> float | None:
        limit = self.budgets.get("usd")
        return None if limit is None else max(0.0, limit - self.cost_usd)

    def _ask(self, asking: Mapping[str, Any]) -> Iterator[str]:
        """A model is asked, its answer grows, or nobody is asked for a while."""
        model, why = asking.get("asking"), asking.get("why")
        if not isinstance(model, str):
            return
        if isinstance(text := asking.get("text"), str):
            self.answer = (self.answer + text)[-_ANSWER:]
        elif why is None:
            self.answer, self.waits = "", ""
            self.model = str(asking.get("of") or model)
            if model != self.model:
                yield self._line("fallback", f"{model} is asked")
        else:
            self.answer, self.waits = "", f"{model}: {_first(str(why))}; asked again in {asking.get('waits', 0):.0f} s"
            yield self._line("waits", self.waits)

    def _task(self, task: Mapping[str, Any]) -> Iterator[str]:
        name, identifier = str(task.get("name")), str(task.get("id"))
        if "input" in task:
            self.running[identifier] = (_doing(name, task["input"]), self.clock())
            return
        self.running.pop(identifier, None)
        if name == "act":
            self.answer, self.waits = "", ""
        if task.get("error") and not name.startswith(_HANDLER):
            yield self._line(name, f"failed: {_first(str(task['error']))}")

    def _update(self, chunk: Mapping[str, Any]) -> Iterator[str]:
        for node, written in chunk.items():
            for update in written if isinstance(written, (list, tuple)) else [written]:
                if isinstance(update, Mapping):
                    done = set(self.completed)
                    self._absorb(update)
                    yield from self._event(node, update, done)

    def _absorb(self, values: Mapping[str, Any]) -> None:
        for name, kind in _ABSORBED.items():
            if isinstance(value := values.get(name), kind):
                setattr(self, name, value)
        if isinstance(step := values.get("step"), int):
            self.step = max(self.step, step)
        if isinstance(seconds := values.get("active_seconds"), (int, float)):
            self.active_seconds, self._marked = seconds, self.clock()
        work = values.get("work")
        if isinstance(work, Mapping):
            self.failing = list(work.get("failing") or ())
            self.candidates = work.get("candidates") or 0

    def _event(self, node: str, update: Mapping[str, Any], done: set[str]) -> Iterator[str]:
        match node:
            case "plan":
                yield self._line("plan", "; ".join(update.get("plan") or ()))
            case "act":
                yield from self._act(update)
            case "tool_execute":
                for message in _records(update):
                    yield self._line(*_result(message))
            case "approval":
                for message in _records(update):
                    yield self._line("answer", _first(_content(message)))
            case "review":
                yield from self._review(update, done)

    def _act(self, update: Mapping[str, Any]) -> Iterator[str]:
        for message in _records(update):
            if text := _first(_content(message)):
                yield self._line("model" if self.answered_by in {"", self.model} else self.answered_by, text)
        for call in update.get("pending_actions") or ():
            yield self._line("call", f"{call.get('name')}({_arguments(call.get('args') or {})})")

    def _review(self, update: Mapping[str, Any], done: set[str]) -> Iterator[str]:
        for item in self.completed:
            if item not in done:
                yield self._line("done", item)
        if update.get("decision") in {"retry", "escalate", "re-plan", "stop", "done"}:
            report = update.get("report") or {}
            yield self._line(str(update["decision"]), _first(str(report.get("summary") or "")))

    def _line(self, what: str, text: str) -> str:
        return f"step {self.step:<4} {what:<20} {text}".rstrip()


_TAKEN: Mapping[str, Callable[[View, Mapping[str, Any]], Iterator[str]]] = {
    "tasks": View._task,
    "updates": View._update,
    "custom": View._ask,
}


def _doing(node: str, given: Any) -> str:
    call = given.get("call") if isinstance(given, Mapping) else None
    return str(call.get("name")) if isinstance(call, Mapping) else _NODES.get(node, node)


def _records(update: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    messages = update.get("messages")
    return messages.get("append") or () if isinstance(messages, Mapping) else ()


def _result(message: Mapping[str, Any]) -> tuple[str, str]:
    """The tool's name and the first line of what it said; DevFix's own messages begin with a heading."""
    ours = (message.get("additional_kwargs") or {}).get("devfix") or {}
    lines = [line for line in _content(message).splitlines() if line.strip()]
    text = lines[1] if ours and len(lines) > 1 else (lines or [""])[0]
    failed = message.get("status") == "error" or ours.get("is_error")
    return str(message.get("name") or ours.get("name")), f"{'error: ' if failed else ''}{text.strip()}"


def _content(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, str):
        return content
    return " ".join(str(part.get("text", "")) for part in content or () if isinstance(part, Mapping))


def _arguments(arguments: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={_clipped(repr(value))}" for name, value in arguments.items())


def _first(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "")


def _clipped(text: str, limit: int = 60) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
