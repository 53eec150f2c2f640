"""run_tests: the user's test command, run in the sandbox on a throw-away view of the workspace."""

from __future__ import annotations

import asyncio
import math
import shlex
from collections.abc import Iterator, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import replace
from typing import Any

from pydantic import JsonValue

from tools.registry import ToolContext, ToolResult, tool
from tools.test_command import QUIET_SECONDS, CommandLost, CommandTimedOut, WaitingTests, report, waiting
from tools.testfiles import is_test_file
from tools.verdict import Judged, error_in, first_line, judge, printed_counts, printed_failing
from tools.warm import lent
from tools.workspace import WorkspaceError

Event = dict[str, Any]

SECOND_LOOK = 5.0
"""Processor time of the one test that is looked at again, where nothing fails but tests that did not end."""
LONG_SUITE = 10.0
"""Where that look shows a slow test, each test may take so many times as long."""
SHOWN_FAILING = 40
SHOWN_OUTPUT = 8_000


@tool(kind="read", timeout=math.inf)
async def run_tests(select: list[str] | None = None, locate: bool = False, *, context: ToolContext) -> ToolResult:
    """Run the repository's test command and say what failed, with the errors and where they arose.

    select: only these tests, by pytest's node ids, for example ["tests/test_a.py::test_b"].
    locate: also list the suspicious lines: those that failing tests run and passing ones do not.
    """
    if select and any(each.startswith("-") for each in select):
        return ToolResult(content="select takes node ids, not options", is_error=True)
    own = await asyncio.to_thread(own_names, context)
    try:
        event = await (_locate(context, select) if locate else _report(context, select))
        judged = judge(event, root=context.sandbox.path(context.workspace), own=own)
    except CommandTimedOut as late:
        event, judged = {}, Judged("timeout", str(late))
    except CommandLost as lost:
        event, judged = {}, Judged("unreachable", str(lost))
    result = _result(event, judged, context.work.get("failed_at_first") or ())
    return result.model_copy(update={"facts": {**result.facts, "sandbox_level": context.sandbox.level}})


def own_names(context: ToolContext) -> frozenset[str]:
    """Names under which the project's own modules can be imported."""
    names: set[str] = set()
    for path in context.workspace.files():
        if path.endswith(".py"):
            names.update(part.removesuffix(".py") for part in path.split("/"))
    return frozenset(names)


async def _report(context: ToolContext, select: Sequence[str] | None) -> Event:
    """The command as the user gave it. Where pytest refuses our plugin (it runs isolated), without it."""
    context = _selecting(context, select)
    timeout = context.settings.test_timeout_seconds
    event = await report(context, timeout=timeout)
    if event["status"] is None and not event["timed_out"] and "devfix_pytest" in event["output"]:
        event = await report(context, timeout=timeout, plugin=False)
    return event


def _selecting(context: ToolContext, select: Sequence[str] | None) -> ToolContext:
    if not select:
        return context
    command = f"{context.work['test_command']} {shlex.join(select)}"
    return replace(context, work={**context.work, "test_command": command})


async def _locate(context: ToolContext, select: Sequence[str] | None) -> Event:
    """A survey in a waiting pytest; what needs the command as it is (all passed, no pytest) runs that."""
    async with waiting_tests(context) as tests:
        event = await _surveyed(tests, select) if tests.warm else tests.hello
    if not _says_all(event):
        located, event = event, await _report(context, select)
        if event["timed_out"] and located["timed_out"] and not event["tests"]:
            event = {**located, "output": event["output"]}
        event.setdefault("suspicious", [])
        if not event["suspicious"] and (error := error_in(event["output"], context.sandbox.path(context.workspace))):
            frames = list(_sources(error["frames"], context))[::-1]
            event["suspicious"] = [[path, line, round(0.7**place, 3)] for place, (path, line) in enumerate(frames[:10])]
    return event


def _sources(frames: Sequence[tuple[str, int]], context: ToolContext) -> Iterator[tuple[str, int]]:
    """The frames outside the tests' files, each by the file's own path, links followed."""
    for path, line in frames:
        with suppress(WorkspaceError):
            real = context.workspace.resolve(path)
            if not is_test_file(path) and not is_test_file(real):
                yield real, line


def _says_all(event: Event) -> bool:
    """Whether running the command as it is would tell no more: there is a failure, or it never comes to a test.

    A pytest that waits starts more slowly than the command as it is. With a short limit, that may be the reason.
    """
    if event["failing"] or event["collect_errors"] or event["foreign"]:
        return True
    hangs = event["timed_out"] and not event["tests"]
    return bool(hangs and (not event["collecting"] or event["duration"] > QUIET_SECONDS))


def waiting_tests(context: ToolContext) -> AbstractAsyncContextManager[WaitingTests]:
    """A pytest that waits; kept warm under all that it depends on, where the workspace's content has a name."""
    work = context.work
    key = (str(context.workspace.root), context.snapshot, work["test_command"], work.get("python"), context.sandbox)
    warm = context.warm if context.snapshot is not None else None
    return lent(warm, "tests", key, lambda: waiting(context))


async def _surveyed(tests: WaitingTests, select: Sequence[str] | None) -> Event:
    event = await tests.survey(select=list(select) if select else None, trace=True)
    endless = [each["id"] for each in event["failing"] if each["stopped"]]
    if endless and len(endless) == event["failed"] + event["errors"]:
        again = await tests.look(endless[0], limit=SECOND_LOOK)
        if again["passed"]:  # nothing is wrong with it: this suite is slow
            limit = LONG_SUITE * again["longest"]
            event = await tests.survey(select=list(select) if select else None, limit=limit, trace=True)
    return event


def _result(event: Event, judged: Judged, failed_at_first: Sequence[str]) -> ToolResult:
    facts = _facts(event, judged, failed_at_first)
    text = "\n".join(_lines(event, judged, facts))
    return ToolResult(content=text, facts={**facts, "text": text[:6000]})


def _facts(event: Event, judged: Judged, failed_at_first: Sequence[str]) -> dict[str, JsonValue]:
    output = str(event.get("output", ""))
    counts: dict[str, Any] = {name: event.get(name, 0) for name in ("tests", "passed", "failed", "errors", "skipped")}
    failing = [each["id"] for each in event.get("failing", [])]
    if event.get("status") is None and (counted := printed_counts(output)):
        counts, failing = dict(counted), printed_failing(output)
    failing += [each["id"] for each in event.get("collect_errors", [])]
    counts["errors"] += len(event.get("collect_errors", []))
    return {
        "outcome": judged.outcome,
        **counts,
        "failing": failing[:SHOWN_FAILING],
        "mended": _mended(failed_at_first, event.get("passing", [])),
        "reported": bool(event.get("status") is not None or event.get("tests") or event.get("collect_errors")),
        "duration": round(float(event.get("duration", 0.0)), 2),
        "exit_code": event.get("exit_code"),
        "output": output,
        "why": judged.why,
    }


def _mended(failed_at_first: Sequence[str], passing: Sequence[str]) -> list[JsonValue]:
    """Those of them that pass now; of a file or folder that could not be collected, when one of its tests does."""
    passed = set(passing)
    return [
        name
        for name in failed_at_first
        if name in passed or any(each.startswith((f"{name}::", f"{name}/")) for each in passing)
    ]


def _lines(event: Event, judged: Judged, facts: dict[str, Any]) -> list[str]:
    parts = [f"{facts[name]} {name}" for name in ("passed", "failed", "errors", "skipped")]
    counts = f"{', '.join(parts)} of {facts['tests']} tests"
    lines = [f"{judged.outcome}: {counts}" + (f"; {judged.why}" if judged.why else "")]
    if judged.outcome not in ("passed", "no_tests"):
        for each in [*event.get("failing", []), *event.get("collect_errors", [])][:SHOWN_FAILING]:
            lines += _failure(each)
    lines += [f"suspicious {path}:{line} {score}" for path, line, score in event.get("suspicious", [])]
    output = _shortened(str(event.get("output", "")).strip(), 1_000 if judged.outcome == "passed" else SHOWN_OUTPUT)
    return [*lines, "output:", output] if output else lines


def _failure(test: Event) -> list[str]:
    error = test["error"] or {"type": "", "message": "", "where": None}
    where = f" at {error['where'][0]}:{error['where'][1]}" if error["where"] else ""
    return [f"FAILED {test['id']}", f"    {error['type']}{where}: {first_line(error['message'])}"]


def _shortened(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n[... {len(text) - limit} characters left out ...]\n{text[-half:]}"
