"""evaluate_candidates: which of up to 50 patches make the tests pass. The workspace stays as it is."""

from __future__ import annotations

import asyncio
import itertools
import math
from collections.abc import Sequence
from typing import Annotated, Any, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from tools.registry import ToolContext, ToolResult, tool
from tools.test_command import CommandLost, CommandTimedOut
from tools.testfiles import is_test_file
from tools.testing import waiting_tests
from tools.workspace import WorkspaceError

MOST = 50
BATCH_SECONDS = 4.5
"""No new candidate is begun after that; those at work come to their end."""

Splice = tuple[str, int, int, str]
"""Path, first byte, byte past the end, new text."""


class CandidateEdit(BaseModel):
    """Exchange one text for another in one file."""

    model_config = ConfigDict(extra="forbid")

    path: str
    old: str
    """The text to replace, exactly; it must occur once, or begin at `line`."""
    new: str
    line: int | None = None
    """The line at whose beginning `old` stands, from 1; wanted where it occurs more than once."""


class CandidatePatch(BaseModel):
    """Edits that belong together, all against the workspace as it is."""

    model_config = ConfigDict(extra="forbid")

    edits: Annotated[list[CandidateEdit], Field(min_length=1, max_length=20)]


class _Refused(NamedTuple):
    why: str


@tool(kind="read", timeout=math.inf)
async def evaluate_candidates(
    candidates: list[CandidatePatch], select: list[str] | None = None, patience: float = 1.0, *, context: ToolContext
) -> ToolResult:
    """Try up to 50 patches at once, without changing the workspace, and say which make all tests pass.

    Each candidate is a list of edits {path, old, new, line}: `old` is exact text that occurs once, or begins at
    the start of line `line`. Verdicts: plausible (all tests pass), fails, timeout, invalid. A call works for about
    5 s; candidates without a verdict were not tried: ask for them again.
    select: node ids of failing tests to run first. patience: 1 to 10, multiplies the time that a test may take.
    """
    if not 1 <= len(candidates) <= MOST:
        return ToolResult(content=f"give 1 to {MOST} candidates, not {len(candidates)}", is_error=True)
    if not 1 <= patience <= 10:
        return ToolResult(content="patience is 1 to 10", is_error=True)
    splices = await asyncio.to_thread(lambda: [_located(each, context) for each in candidates])
    usable = [(index, each) for index, each in enumerate(splices) if not isinstance(each, _Refused)]
    try:
        events = await _evaluated([each for _, each in usable], select or [], patience, context) if usable else []
    except CommandLost as lost:
        return ToolResult(content=f"the candidates could not be tried: {lost}", is_error=True)
    verdicts: dict[int, dict[str, Any]] = {
        index: {"verdict": "invalid", "why": each.why}
        for index, each in enumerate(splices)
        if isinstance(each, _Refused)
    }
    verdicts |= {usable[each["i"]][0]: each for each in events if each["e"] == "candidate"}
    baseline = next((each for each in events if each["e"] == "baseline"), None)
    return _result(len(candidates), verdicts, baseline)


async def _evaluated(
    splices: Sequence[Sequence[Splice]], select: Sequence[str], patience: float, context: ToolContext
) -> list[dict[str, Any]]:
    async with waiting_tests(context) as tests:
        survey = tests.surveyed or await tests.survey()
        if tests.warm and survey["timed_out"]:
            raise CommandTimedOut(
                f"the tests did not end within {survey['duration']:.0f} s, and none failed until then"
            )
        limit = max(2.0, 5 * survey["duration"])
        return await tests.evaluate(splices, first=list(select), limit=limit, seconds=BATCH_SECONDS, patience=patience)


def _located(candidate: CandidatePatch, context: ToolContext) -> list[Splice] | _Refused:
    """The edits as bytes of the files themselves, links followed, or why there is no such candidate."""
    found: list[Splice] = []
    for edit in candidate.edits:
        try:
            path = context.workspace.resolve(edit.path)
            text = context.workspace.read(path).decode(errors="surrogateescape")
        except WorkspaceError as error:
            return _Refused(str(error))
        if (is_test_file(edit.path) or is_test_file(path)) and not context.work.get("allow_test_edits"):
            return _Refused(f"{edit.path} is a test file, which is read-only here")
        old, new = _with_line_ends(text, edit)
        start = _position(text, old, edit.line)
        if isinstance(start, _Refused):
            return _Refused(f"{start.why} in {edit.path}")
        first = len(text[:start].encode(errors="surrogateescape"))
        found.append((path, first, first + len(old.encode(errors="surrogateescape")), new))
    return found if not _overlap(found) else _Refused("its edits overlap")


def _with_line_ends(text: str, edit: CandidateEdit) -> tuple[str, str]:
    if "\r\n" in text and "\r" not in edit.old + edit.new and edit.old.count("\n") + edit.new.count("\n"):
        return edit.old.replace("\n", "\r\n"), edit.new.replace("\n", "\r\n")
    return edit.old, edit.new


def _position(text: str, old: str, line: int | None) -> int | _Refused:
    if line is not None:
        lines = text.split("\n")
        start = sum(len(each) + 1 for each in lines[: line - 1])
        if 1 <= line <= len(lines) and text.startswith(old, start):
            return start
        return _Refused(f"the text does not stand at line {line}")
    count = text.count(old) if old else 0
    if count != 1:
        return _Refused(f"the text occurs {count} times")
    return text.index(old)


def _overlap(splices: Sequence[Splice]) -> bool:
    ordered = sorted(splices)
    return any(one[0] == other[0] and other[1] < one[2] for one, other in itertools.pairwise(ordered))


def _result(given: int, verdicts: dict[int, dict[str, Any]], baseline: dict[str, Any] | None) -> ToolResult:
    if baseline is not None and not baseline["failing"]:
        return ToolResult(content="no candidate was tried: the tests pass without any edit", is_error=True)
    plausible = [index for index, each in sorted(verdicts.items()) if each["verdict"] == "plausible"]
    summary = f"{len(plausible)} of {len(verdicts)} candidates pass all tests"
    left = [str(index) for index in range(given) if index not in verdicts]
    lines = [f"{summary}:", *(f"{index} {_in_words(verdicts[index])}" for index in sorted(verdicts))]
    if left:
        lines.append(f"not tried, ask again: {' '.join(left)}")
    return ToolResult(
        content="\n".join(lines),
        facts={"evaluated": len(verdicts), "plausible": list(plausible), "summary": summary, "left": len(left)},
    )


def _in_words(event: dict[str, Any]) -> str:
    verdict = event["verdict"]
    if verdict == "invalid":
        return f"invalid: {event['why']}"
    counts = f"{event['passed']} of {event['of']}"
    if verdict == "plausible":
        return "plausible"
    then = f", then {event['failed'][0]} fails" if event.get("broke") and event["failed"] else ""
    return f"{verdict}: passes {counts} of the failing tests{then}"
