"""What the tools' answers say, read from their text: the model sees no more than any chat model does.

Answers may have been shortened on the way. What can't be read is left out; nothing here raises.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from graph.models.search_repair.candidates import Edit, Suspicion
from graph.models.search_repair.templates import Failure

_OUTCOME = re.compile(r"^(passed|failed|unreachable|timeout|no_tests): (.*)$", re.MULTILINE)
_FAILED = re.compile(r"^FAILED (.+)\n    (\w+)?(?: at (.+?):(\d+))?: ?(.*)$", re.MULTILINE)
_SUSPICIOUS = re.compile(r"^suspicious (.+):(\d+) ([\d.]+)$", re.MULTILINE)
_VERDICT = re.compile(r"^(\d+) (plausible|fails|timeout|invalid)(?:.*?(\d+) of (\d+))?", re.MULTILINE)
_WINDOW = re.compile(r"^(.*): lines (\d+)-(\d+) of (\d+)[^\n]*$")
_SHORTENED = re.compile(r"\n\[\.\.\. \d+ bytes in all; [^\n]*\]\n")

_CRASH_BONUS = 1.25


@dataclass(frozen=True)
class TestReport:
    """The answer of run_tests."""

    outcome: str
    summary: str
    failing: tuple[str, ...]
    failure: Failure
    suspicions: tuple[Suspicion, ...]


class Verdict(NamedTuple):
    """What evaluate_candidates said of one candidate."""

    word: str
    """plausible, fails, timeout, invalid"""
    passed: int
    """Of the tests that fail without a patch and were tried first."""
    of: int


class Window(NamedTuple):
    """Some lines of a file."""

    text: str
    first: int
    last: int
    total: int
    shortened: bool


def read_tests(text: str) -> TestReport | None:
    """None for a text that is no test report."""
    head = _OUTCOME.search(text)
    if head is None:
        return None
    failed = _FAILED.findall(text)
    places = {(path, int(line)) for _, _, path, line, _ in failed if path}
    suspicions = [
        Suspicion(path, int(line), min(1.0, float(score)) * (_CRASH_BONUS if (path, int(line)) in places else 1.0))
        for path, line, score in _SUSPICIOUS.findall(text)
    ]
    return TestReport(
        outcome=head[1],
        summary=head[2],
        failing=tuple(each[0] for each in failed),
        failure=Failure(
            errors=frozenset(each[1] for each in failed if each[1]), messages=tuple(each[4] for each in failed)
        ),
        suspicions=tuple(suspicions),
    )


def read_window(text: str) -> Window | None:
    """None for an answer that shows no file, such as an error."""
    head, _, rest = text.partition("\n")
    if head.endswith(": empty"):
        return Window("", 1, 0, 0, shortened=False)
    match = _WINDOW.match(head)
    if match is None:
        return None
    return Window(rest, int(match[2]), int(match[3]), int(match[4]), shortened=_SHORTENED.search(rest) is not None)


def read_verdicts(text: str) -> dict[int, Verdict]:
    """Verdicts by the candidate's position in the call; those that were not evaluated are missing."""
    return {
        int(index): Verdict(word, int(passed or 0), int(of or 0)) for index, word, passed, of in _VERDICT.findall(text)
    }


def read_candidates(arguments: Mapping[str, Any]) -> list[tuple[Edit, ...]]:
    """The candidates of an earlier call, as they were given."""
    found = []
    for candidate in _list(arguments.get("candidates")):
        edits = _list(candidate.get("edits")) if isinstance(candidate, dict) else []
        found.append(tuple(_edit(each) for each in edits if isinstance(each, dict)))
    return found


def _edit(given: Mapping[str, Any]) -> Edit:
    line = given.get("line")
    return Edit(
        str(given.get("path")), line if isinstance(line, int) else 0, str(given.get("old")), str(given.get("new"))
    )


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
