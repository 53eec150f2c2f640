"""What a run of the test command means, from what the relay reports.

`failed` means that there is something to repair: tests ran and failed, or could not be collected because of an
error that arises in the project's own code (a defect at import time is a defect). `unreachable` means that the
tests can't be run for another reason: no such command, no such interpreter, a mistake in the options, an error in
the tests' own files, a dependency that is not installed, a command that fails without a word of any test, or a
project module that comes from outside the workspace, whose result would be false.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from tools.testfiles import is_test_file

Outcome = Literal["passed", "failed", "unreachable", "timeout", "no_tests"]
Event = Mapping[str, Any]

_NOT_FOUND = (126, 127)
_NO_TESTS = 5
_CANT_START = re.compile(
    r"^(?:\S*python\S*: )?(No module named [\w.]+|can't open file .*|\S*: not found"
    r"|ERROR: file or directory not found: .*)$",
    re.MULTILINE,
)
_PYTEST_FRAME = re.compile(r"^(\S+\.py):(\d+): in ", re.MULTILINE)
_PYTHON_FRAME = re.compile(r'^\s*File "([^"]+\.py)", line (\d+)', re.MULTILINE)
_ERROR = re.compile(r"^(?:E\s+)?(\w+(?:Error|Exception|Interrupt)): ?(.*)$", re.MULTILINE)
_PYTEST_END = re.compile(r"^=* ?((?:\d+ \w+,? ?)+)in [\d.]+s", re.MULTILINE)
_PYTEST_FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+::\S+)", re.MULTILINE)
_OF_A_TEST = re.compile(
    r"\b(?:FAIL(?:ED|URES?)?|not ok|Failed example|[1-9]\d* (?:tests? )?(?:failed|failures?|errors?))\b"
    r"|^Traceback \(most recent call last\):",
    re.MULTILINE,
)
"""How commands that are not pytest say that a test failed; a script that tests by itself ends with a traceback."""
_SIGNALLED = 128
"""From there on a shell's exit code says that its command was ended by a signal, as one that crashes is."""
_UNITTEST = re.compile(r"^Ran (\d+) tests? in", re.MULTILINE)
_UNITTEST_END = re.compile(r"^(?:OK|FAILED)(?: \((.*)\))?$", re.MULTILINE)
_UNITTEST_FAILED = re.compile(r"^(?:FAIL|ERROR): (\S+) \(([\w.]+)\)", re.MULTILINE)


class Judged(NamedTuple):
    """The outcome, and why, in one sentence (empty where the numbers say it all)."""

    outcome: Outcome
    why: str


def judge(event: Event, *, root: str, own: frozenset[str]) -> Judged:
    """`root` is where the command saw the workspace; `own` are the top-level names of the project's modules."""
    if event.get("timed_out"):
        return Judged(
            "timeout", f"the command did not end within {event['duration']:.0f} s{_meanwhile(event)} and was stopped"
        )
    if event.get("foreign"):
        name, path = event["foreign"][0]
        return Judged("unreachable", f"the module {name} was imported from {path}, outside the workspace")
    if event.get("collect_errors"):
        return _not_collected(event["collect_errors"], own)
    if event.get("status") == _NO_TESTS or (event.get("status") == 0 and not event["tests"]):
        return Judged("no_tests", "no test was found")
    if event.get("failing"):
        return Judged("failed", f"{event['left']} tests were not run to their end" if event.get("left") else "")
    if event.get("status") == 0 and event.get("exit_code") in (0, None):
        return Judged("passed", "")
    return _by_exit_code(event, root, own)


def _meanwhile(event: Event) -> str:
    """What it was at when it was stopped, as far as that is known."""
    at = " (at {}:{})".format(*event["stuck_at"]) if event.get("stuck_at") else ""
    if event.get("running"):
        return f" while {event['running']} ran{at}"
    return f" while the tests were collected{at}" if event.get("collecting") else ""


def _not_collected(errors: Sequence[Event], own: frozenset[str]) -> Judged:
    repairable = [each for each in errors if _is_repairable(each["error"], own)]
    error = (repairable or list(errors))[0]
    what = f"{error['id']} can't be collected: {error['error']['type']}: {first_line(error['error']['message'])}"
    return Judged("failed" if repairable else "unreachable", what)


def _is_repairable(error: Event, own: frozenset[str]) -> bool:
    """It arises in the project's own code, and is not just a dependency that is missing."""
    missing = re.search(r"No module named '(\w+)", error["message"]) if error["type"] == "ModuleNotFoundError" else None
    if missing is not None and missing[1] not in own:
        return False
    return any(not is_test_file(path) for path, _ in error["frames"][-1:])


def _by_exit_code(event: Event, root: str, own: frozenset[str]) -> Judged:
    code, output = event.get("exit_code"), str(event.get("output", ""))
    status = event.get("status")
    if code in _NOT_FOUND:
        return Judged("unreachable", f"the command can't be run (exit code {code})")
    if status is None and (found := _CANT_START.search(output)):
        return Judged("unreachable", found[0].strip())
    if status is None and code == 0 and (event["tests"] or event["running"]):
        return Judged("failed", "the command ended before the tests that it had begun (exit code 0)")
    if status is None and code == 0:
        return Judged("passed", "")
    if status in (2, 3, 4) or (status is None and code in (3, 4) and "pytest" in output):
        error = error_in(output, root)
        if error is not None and _is_repairable(error, own):
            return Judged("failed", f"{error['type']}: {first_line(error['message'])}")
        return Judged(
            "unreachable", f"pytest could not run the tests (exit code {status if status is not None else code})"
        )
    if status == 0:
        return Judged("failed", f"all tests passed, but the command ended with exit code {code}")
    if status is None and _without_a_test(event, output):
        return Judged("unreachable", f"the command ended with exit code {code}, and no test ran")
    return Judged("failed", f"the command ended with exit code {code}")


def _without_a_test(event: Event, output: str) -> bool:
    """Whether a command that failed gives no sign of a test: none was begun, and none is spoken of."""
    if event["tests"] or event["running"] or printed_counts(output) or _OF_A_TEST.search(output):
        return False
    return 0 < int(event.get("exit_code") or 0) < _SIGNALLED


def error_in(output: str, root: str) -> dict[str, Any] | None:
    """The last error that an output shows a traceback of, with the frames that lie in the workspace."""
    errors = _ERROR.findall(output)
    frames = [[path, int(line)] for path, line in _frames(output, root)]
    if not errors or not frames:
        return None
    return {"type": errors[-1][0], "message": errors[-1][1], "frames": frames[-20:], "where": frames[-1]}


def _frames(output: str, root: str) -> Iterator[tuple[str, str]]:
    for path, line in [*_PYTEST_FRAME.findall(output), *_PYTHON_FRAME.findall(output)]:
        inside = path.removeprefix(root.rstrip("/") + "/")
        if not inside.startswith(("/", "<", "..")) and "site-packages" not in inside:
            yield inside, line


def printed_counts(output: str) -> dict[str, int] | None:
    """What unittest, or a pytest without our plugin, printed at its end; None where it was neither."""
    if ran := _UNITTEST.search(output):
        return _unittest_counts(int(ran[1]), output)
    ends = _PYTEST_END.findall(output)
    if not ends:
        return None
    said = {name.rstrip("s"): int(count) for count, name in re.findall(r"(\d+) (\w+)", ends[-1])}
    counts = {name: said.get(name.rstrip("s"), 0) for name in ("passed", "failed", "errors", "skipped")}
    return {"tests": sum(counts.values()), **counts}


def _unittest_counts(total: int, output: str) -> dict[str, int]:
    ends = _UNITTEST_END.findall(output)
    said = dict(re.findall(r"(\w+)=(\d+)", ends[-1])) if ends else {}
    failed, errors, skipped = (int(said.get(name, 0)) for name in ("failures", "errors", "skipped"))
    passed = total - failed - errors - skipped
    return {"tests": total, "passed": passed, "failed": failed, "errors": errors, "skipped": skipped}


def printed_failing(output: str) -> list[str]:
    """The names of failed tests in that output."""
    named = [
        f"{place}.{name}" if not place.endswith(name) else place for name, place in _UNITTEST_FAILED.findall(output)
    ]
    return named or _PYTEST_FAILED.findall(output)


def first_line(message: str) -> str:
    """A message on one line, short enough for a list."""
    text = " ".join(message.split())
    return text if len(text) <= 300 else text[:297] + "..."
