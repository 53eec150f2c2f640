"""The pytest plugin that tells DevFix what each test did. Loaded with `-p devfix_pytest`; inert without its channel.

It never changes how the user's tests run when it only reports. As a server (see devfix_server) it lets the
process wait just before collection and forks it for each thing to be tried.

Runs inside the sandbox under the user's interpreter: Python 3.8 or newer, standard library and pytest only.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import devfix_server
import devfix_tasks
import pytest
from devfix_results import Root
from devfix_spectrum import Spectrum

if TYPE_CHECKING:
    from devfix_results import Event
from devfix_tasks import Task

_MESSAGE_LENGTH = 600
_FRAMES = 20


class Reporter:
    """Follows one session and sends an event for each thing that happened."""

    def __init__(self, task: Task, root: Root) -> None:
        self.task = task
        self.root = root
        self.spectrum = Spectrum(root) if task.trace else None
        self.current: str | None = None
        self.began = 0.0
        self.began_at = 0.0
        self.outcomes: dict[str, Event] = {}

    def send(self, **event: Any) -> None:
        self.task.send(event)

    def begin(self, test: str) -> None:
        self.current = test
        self.send(e="start", id=test)
        self.task.start_clock(test, self.out_of_time)
        self.began = time.process_time()
        self.began_at = time.monotonic()
        if self.spectrum:
            self.spectrum.start()

    def finish(self, test: str) -> None:
        lines = self.spectrum.stop() if self.spectrum else {}
        self.task.stop_clock()
        self.current = None
        event = self.outcomes.pop(test, None)
        if event is not None:
            event["cpu"] = time.process_time() - self.began
            self.send(e="end", lines=lines, **event)
            self.task.after(event)

    def out_of_time(self, limit: float, frame: Any) -> None:
        """Called from a signal, the timer's or the server's: the test is lost, and with it this process."""
        lines = self.spectrum.stop() if self.spectrum else {}
        frames = self.frames_of_stack(frame)
        where = frames[-1] if frames else None
        if self.current is None:
            self.send(e="stuck", where=where)
            os._exit(0)
        cpu, seconds = time.process_time() - self.began, time.monotonic() - self.began_at
        message = f"waited for something for {seconds:.0f} s"
        if cpu > 0.9 * limit:
            cpu = seconds = limit  # the same each time
            message = f"did not end in {limit:.3g} s"
        error = {"type": "Timeout", "message": message, "frames": frames, "where": where}
        self.send(e="end", id=self.current, outcome="failed", duration=seconds, cpu=cpu,
                  error=error, stopped=True, lines=lines)  # fmt: skip
        os._exit(0)

    def report(self, report: Any) -> None:
        event = self.outcomes.setdefault(
            report.nodeid, {"id": report.nodeid, "outcome": None, "duration": 0.0, "error": None}
        )
        event["duration"] += report.duration
        if report.outcome == "failed":
            event["outcome"] = "failed" if report.when == "call" else "error"
            event["error"] = getattr(report, "devfix_error", None) or error_of_report(report)
        elif report.outcome == "skipped" and event["outcome"] is None:
            event["outcome"] = "skipped"
        elif report.when == "call" and event["outcome"] is None:
            event["outcome"] = "passed"

    def error(self, excinfo: Any) -> Event:
        frames = self.frames_of_traceback(excinfo.tb, excinfo.value)
        kind = excinfo.type.__name__
        return {"type": kind, "message": message_of(excinfo.value), "frames": frames,
                "where": frames[-1] if frames else None}  # fmt: skip

    def frames_of_traceback(self, traceback: Any, value: Any) -> list[list[Any]]:
        found: list[list[Any]] = []
        while traceback is not None:
            self.keep(found, traceback.tb_frame.f_code.co_filename, traceback.tb_lineno)
            traceback = traceback.tb_next
        if isinstance(value, SyntaxError) and value.filename and value.lineno:
            self.keep(found, value.filename, value.lineno)
        return found

    def frames_of_stack(self, frame: Any) -> list[list[Any]]:
        found: list[list[Any]] = []
        while frame is not None:
            self.keep(found, frame.f_code.co_filename, frame.f_lineno)
            frame = frame.f_back
        return found[::-1]

    def keep(self, found: list[list[Any]], filename: str, number: int) -> None:
        path = self.root.relative(filename)
        if path is not None:
            found.append([path, number])
            if len(found) > _FRAMES:
                del found[1]  # a deep recursion: where it began and where it ended are what matters

    def foreign_modules(self) -> list[list[str]]:
        """Modules with the project's own names that came from somewhere else."""
        found: list[list[str]] = []
        for name in sorted(self.root.top_level_names()):
            origin = getattr(sys.modules.get(name), "__file__", None)
            if not isinstance(origin, str):
                continue
            inside = os.path.realpath(origin).startswith(self.root.path + os.sep)
            if not inside and not _is_standard(name):
                found.append([name, origin])
        return found


def message_of(value: BaseException) -> str:
    try:
        text = str(value)
    except Exception as error:  # noqa: BLE001 - the code under test may break its own errors
        text = "its message can't be shown: " + type(error).__name__
    return text[:_MESSAGE_LENGTH]


def error_of_report(report: Any) -> Event:
    """What a report from another process (xdist) still tells."""
    crash = getattr(report.longrepr, "reprcrash", None)
    message = crash.message if crash is not None else str(report.longrepr)
    kind, _, rest = message.partition(":")
    known = kind.isidentifier()
    return {"type": kind if known else "", "message": (rest.strip() if known else message)[:_MESSAGE_LENGTH],
            "frames": [], "where": None}  # fmt: skip


def _is_standard(name: str) -> bool:
    return name in getattr(sys, "stdlib_module_names", sys.builtin_module_names)


_setup = devfix_tasks.take_setup()
_root = Root(_setup["root"]) if _setup else None
_server = devfix_server.connect(_setup, _root) if _setup and _root else None
_reporter: Reporter | None = None


def _start(task: Task | None) -> None:
    global _reporter
    if task is not None and _root is not None:
        _reporter = Reporter(task, _root)


if _server is not None:
    _start(_server.before_configuration())


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: Any) -> None:
    if _server is not None and _server.serves:
        devfix_tasks.take_over_options(config)


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: Any) -> None:
    if _server is not None:
        _start(_server.before_collection(session))
        if _reporter is not None:
            _reporter.task.prepare(session, _reporter.out_of_time)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(session: Any, config: Any, items: list[Any]) -> None:
    if _reporter is not None:
        _reporter.task.choose(items)


@pytest.hookimpl(trylast=True)
def pytest_collection_finish(session: Any) -> None:
    if _reporter is not None:
        _reporter.send(e="collected", n=len(session.items))


def pytest_collectreport(report: Any) -> None:
    if _reporter is not None and report.failed:
        error = getattr(report, "devfix_error", None) or error_of_report(report)
        _reporter.send(e="collect_error", id=report.nodeid, error=error)


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_make_collect_report(collector: Any) -> Generator[None, Any, None]:
    outcome = yield
    if _reporter is not None and outcome.excinfo is None:
        report = outcome.get_result()
        call = getattr(report, "call", None)
        if report.failed and call is not None and call.excinfo is not None:
            report.devfix_error = _reporter.error(_cause(call.excinfo))


def _cause(excinfo: Any) -> Any:
    """pytest wraps an import error of a test module in its own CollectError; the cause has the traceback."""
    inner = excinfo.value.__cause__
    if inner is None or excinfo.type.__name__ != "CollectError":
        return excinfo
    return pytest.ExceptionInfo.from_exc_info((type(inner), inner, inner.__traceback__))


def pytest_runtest_logstart(nodeid: str) -> None:
    if _reporter is not None and _reporter.task.remote:
        _reporter.begin(nodeid)


def pytest_runtest_logfinish(nodeid: str) -> None:
    if _reporter is not None and _reporter.task.remote:
        _reporter.finish(nodeid)


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: Any) -> Generator[None, Any, None]:
    if _reporter is None or _reporter.task.remote:
        yield
        return
    _reporter.begin(item.nodeid)
    yield
    _reporter.finish(item.nodeid)


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_runtest_makereport(item: Any, call: Any) -> Generator[None, Any, None]:
    outcome = yield
    if _reporter is not None and call.excinfo is not None and outcome.excinfo is None:
        report = outcome.get_result()
        if report.outcome == "failed":
            report.devfix_error = _reporter.error(call.excinfo)


def pytest_runtest_logreport(report: Any) -> None:
    if _reporter is not None:
        _reporter.report(report)


class Terse:
    """In a fork pytest's own failure report is left out: for a RecursionError alone it takes 0.25 s."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_makereport(self, item: Any, call: Any) -> Any:
        if call.excinfo is None or call.excinfo.errisinstance(_skipping()):
            return None
        return pytest.TestReport(
            nodeid=item.nodeid,
            location=item.location,
            keywords={},
            outcome="failed",
            longrepr=call.excinfo.type.__name__,
            when=call.when,
            duration=getattr(call, "duration", 0.0) or time.time() - call.start,
        )


def _skipping() -> Any:
    import unittest

    return (pytest.skip.Exception, unittest.SkipTest, pytest.xfail.Exception)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: Any, exitstatus: int) -> None:
    if _reporter is None:
        return
    modules = list(sys.modules) if _reporter.task.trace or _reporter.task.survey else []
    _reporter.send(e="finish", status=int(exitstatus), foreign=_reporter.foreign_modules(), modules=modules)
    _reporter.task.end()
