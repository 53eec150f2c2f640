"""What a test run was: events of one pytest process, added up to one summary.

Runs inside the sandbox under the user's interpreter: Python 3.8 or newer, standard library only.
"""

from __future__ import annotations

import math
import os
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    Event = dict[str, Any]
    Line = tuple[str, int]

_FAILED = ("failed", "error")
_TEST_FOLDER = re.compile(r"(^|_)tests?(ing|cases|suite|data)?(_|$)", re.IGNORECASE)
_DEPENDENCIES = (".venv", "venv", "node_modules", "site-packages", "dist-packages", ".tox", ".nox", ".git")

SUSPICIOUS_LINES = 60
FAILING_TESTS = 40


def is_test_file(path: str) -> bool:
    """Whether a relative path is the tests' own code, which a fix must leave alone."""
    *folders, name = path.split("/")
    if name == "conftest.py" or name.startswith("test_") or name.endswith("_test.py"):
        return True
    return any(_TEST_FOLDER.search(folder) for folder in folders)


class Root:
    """The workspace as this process sees it."""

    def __init__(self, path: str) -> None:
        self.path = os.path.realpath(path)
        self._prefixes = tuple({self.path + os.sep, os.path.abspath(path) + os.sep})
        self._known: dict[str, str | None] = {}

    def relative(self, path: str) -> str | None:
        """The path below the root with `/`, or None for files that are elsewhere or are dependencies.

        Of a file behind a link it is the file's own, which is where it can be changed; a test stays what it is called.
        """
        if path not in self._known:
            self._known[path] = self._relative(path)
        return self._known[path]

    def source(self, path: str) -> str | None:
        """As `relative`, for the project's own Python files that are not tests."""
        found = self.relative(path)
        return found if found and found.endswith(".py") and not is_test_file(found) else None

    def _relative(self, path: str) -> str | None:
        if path.startswith("<"):
            return None
        called, real = self._below(os.path.abspath(path)), self._below(os.path.realpath(path))
        return called if called and is_test_file(called) else real

    def _below(self, absolute: str) -> str | None:
        for prefix in self._prefixes:
            if absolute.startswith(prefix):
                rest = absolute[len(prefix) :].replace(os.sep, "/")
                return None if any(part in _DEPENDENCIES for part in rest.split("/")[:-1]) else rest
        return None

    def top_level_names(self) -> set[str]:
        """What the project's own modules are called: Python files and packages of the root, `src` and `lib`."""
        names: set[str] = set()
        for folder in (self.path, os.path.join(self.path, "src"), os.path.join(self.path, "lib")):
            if not os.path.isdir(folder):
                continue
            for name in os.listdir(folder):
                if os.path.isfile(os.path.join(folder, name, "__init__.py")):
                    names.add(name)
                elif name.endswith(".py"):
                    names.add(name[:-3])
        return {name for name in names if name not in ("setup", "conftest") and not is_test_file(name + ".py")}


class Summary:
    """Adds events up. Knows nothing of pytest, so that it can be fed across processes."""

    def __init__(self) -> None:
        self.collected: int | None = None
        self.tests: dict[str, Event] = {}
        self.running: str | None = None
        self.collect_errors: list[Event] = []
        self.foreign: list[list[str]] = []
        self.modules: list[str] = []
        self.status: int | None = None
        self.stuck_at: list[Any] | None = None
        """Path and line where the process was when its time was over."""

    def add(self, event: Event) -> None:
        kind = event["e"]
        if kind == "collected":
            self.collected = (self.collected or 0) + event["n"]
        elif kind == "start":
            self.running = event["id"]
        elif kind == "end":
            self.running = None
            self.tests[event["id"]] = event
        elif kind == "collect_error":
            self.collect_errors.append(event)
        elif kind == "finish":
            self.status = event["status"]
            self.foreign = event["foreign"]
            self.modules = event["modules"]
        elif kind == "stuck":
            self.stuck_at = event["where"]

    def stopped(self, seconds: float) -> None:
        """The process was killed while a test ran: that test did not end in time."""
        if self.running is not None:
            error: Event = {
                "type": "Timeout",
                "message": f"did not end in {seconds:.3g} s",
                "frames": [],
                "where": None,
            }
            self.add({"e": "end", "id": self.running, "outcome": "failed", "duration": seconds, "cpu": seconds,
                      "error": error, "stopped": True, "lines": {}})  # fmt: skip

    def forget_stopped(self, since: int) -> None:
        """The time was over for all: a test that was stopped for that, after the first `since`, was still running."""
        for name in list(self.tests)[since:]:
            if self.tests[name].get("stopped"):
                self.stuck_at = self.tests.pop(name)["error"]["where"]
                self.running = name

    def left(self) -> int:
        """How many of the collected tests have no outcome."""
        return max(0, (self.collected or 0) - len(self.tests))

    def ids(self, *outcomes: str) -> list[str]:
        return [name for name, test in self.tests.items() if test["outcome"] in outcomes]

    def failing(self) -> list[Event]:
        return [test for test in self.tests.values() if test["outcome"] in _FAILED]

    def longest(self, clock: str = "duration") -> float:
        """Seconds (of wall time, or of `cpu` time) that the slowest test took which came to an end."""
        return max([float(test[clock]) for test in self.tests.values() if not test.get("stopped")] or [0.0])

    def as_json(self) -> Event:
        failing = self.failing()
        return {
            "tests": self.collected if self.collected is not None else len(self.tests),
            "passed": len(self.ids("passed")),
            "failed": len(self.ids("failed")),
            "errors": len(self.ids("error")),
            "skipped": len(self.ids("skipped")),
            "failing": [_brief(test) for test in failing[:FAILING_TESTS]],
            "passing": self.ids("passed"),
            "stopped": sum(1 for test in failing if test.get("stopped")),
            "collect_errors": self.collect_errors[:FAILING_TESTS],
            "suspicious": self.suspicious(),
            "foreign": self.foreign[:5],
            "status": self.status,
            "running": self.running,
            "stuck_at": self.stuck_at,
            "longest": self.longest(),
        }

    def suspicious(self) -> list[list[Any]]:
        """The project's lines, most suspicious first: Ochiai over the lines that each test ran.

        Where no test could be collected, the lines of the traceback stand in for them, the innermost first.
        """
        failing = self.failing()
        if not failing:
            return _from_tracebacks(self.collect_errors)
        bad: dict[Line, int] = {}
        good: dict[Line, int] = {}
        for test in self.tests.values():
            if test["outcome"] != "skipped":
                counts = bad if test["outcome"] in _FAILED else good
                for line in _lines(test):
                    counts[line] = counts.get(line, 0) + 1
        scored = [(count / math.sqrt(len(failing) * (count + good.get(line, 0))), line) for line, count in bad.items()]
        scored.sort(key=lambda each: (-each[0], each[1]))
        if not scored:
            return _from_tracebacks(failing)
        return [[path, number, round(score, 3)] for score, (path, number) in scored[:SUSPICIOUS_LINES]]


def _brief(test: Event) -> Event:
    return {key: test.get(key) for key in ("id", "outcome", "duration", "error", "stopped")}


def _lines(test: Event) -> set[Line]:
    found = {(path, number) for path, numbers in test.get("lines", {}).items() for number in numbers}
    error = test.get("error") or {}
    found.update((path, number) for path, number in error.get("frames", []) if not is_test_file(path))
    return found


def _from_tracebacks(events: list[Event]) -> list[list[Any]]:
    scores: dict[Line, float] = {}
    for event in events:
        score = 1.0
        for path, number in reversed((event.get("error") or {}).get("frames", [])):
            if not is_test_file(path):
                scores[path, number] = max(score, scores.get((path, number), 0.0))
                score *= 0.7
    ranked = sorted(scores.items(), key=lambda each: (-each[1], each[0]))
    return [[path, number, round(score, 3)] for (path, number), score in ranked[:SUSPICIOUS_LINES]]
