"""A pytest process that waits before collection and forks itself for each thing to be tried.

Starting pytest takes 0.5 to 1.8 s, a fork 5 ms. What matters is *when* to fork: the project's modules must be
imported late, in the fork, so that a candidate's source takes effect in decorators, closures and `from x import
y` alike. So the process waits just before collection, when plugins and conftest files are loaded. Where those
have already imported project modules, it waits earlier, before pytest has read its configuration.

Runs inside the sandbox under the user's interpreter: Python 3.8 or newer, standard library only.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import importlib.util
import json
import os
import select
import signal
import socket
import sys
import time
import warnings
from typing import TYPE_CHECKING, Any

from devfix_results import Root, Summary
from devfix_tasks import Task, limit_memory, serve_sources

if TYPE_CHECKING:
    from devfix_results import Event

    Edit = tuple[str, int, int, str]  # path, first byte, byte past the end, new text

SHORTEST_LIMIT = 0.3
"""Seconds of processor time; no test of a candidate is stopped earlier..."""
QUICK_LIMIT = 0.15
"""...except where tests came to an end in the survey, and the slowest took less than a tenth of this."""
CALIBRATION = 3.0
"""A test of a candidate may take so many times the processor time that it took in the survey, failing tests too."""
LONGEST_LIMIT = 60.0
LATE = 3.0
"""A test that the survey stopped may be endless or just slow. A candidate that passes all other failing tests has
earned so many times the survey's limit for it."""
FIRST_TESTS = 10
"""How many of the failing tests a candidate runs before all the others."""

_EARLY = 77
_NO_TESTS = 5
"""How pytest ends where all tests were left out."""
_HANGING_TESTS = 3
_LATER_HANGS = 0.5
_LAST_WORD = 1.0
"""Seconds in which a fork that is out of time may still say where it is."""


def connect(setup: dict[str, Any], root: Root) -> Server:
    channel = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    channel.connect(setup["socket"])
    return Server(channel, root, serves=setup["mode"] == "serve", jobs=setup["jobs"], seconds=setup["timeout"])


class _InChild(Exception):
    def __init__(self, task: Task) -> None:
        super().__init__()
        self.task = task


class _Child:
    """A fork at work, seen from the server."""

    def __init__(self, pid: int, fd: int, summary: Summary, until: float) -> None:
        self.pid = pid
        self.fd = fd
        self.summary = summary
        self.until = until
        self.quiet = self.idle = 0.0
        """Seconds of silence while a test runs, and while none does; then it waits for something that never comes."""
        self.began = self.heard = time.monotonic()
        self.asked: float | None = None
        self.late = False
        """Out of time as a whole, whatever it was at."""
        self.collecting: float | None = None
        """Seconds until the tests were known."""
        self.rest = b""

    def gone(self) -> bool:
        """Dead, though the pipe may be open: a process that a test left behind holds it, for ever perhaps."""
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def out_of_time(self) -> bool:
        now = time.monotonic()
        self.late = self.late or now > self.until
        return self.late or now - self.heard > (self.idle if self.summary.running is None else self.quiet)

    def give_up(self) -> bool:
        """Ask it where it is; when it has been asked before, kill it. True when it is dead."""
        if self.asked is None:
            self.asked = time.monotonic()
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGPROF)
        elif time.monotonic() > self.asked + _LAST_WORD:
            _kill(self.pid)
            return True
        return False

    def read(self) -> bool:
        """Take in what came; False at the end."""
        data = os.read(self.fd, 1 << 16)
        self.heard = time.monotonic()
        *lines, self.rest = (self.rest + data).split(b"\n")
        for line in lines:
            self.summary.add(json.loads(line.decode("utf-8")))
        if self.collecting is None and self.summary.collected is not None:
            self.collecting = self.heard - self.began
        return bool(data)

    def close(self) -> None:
        """Ends the child and whatever it started."""
        _kill(self.pid)
        os.waitpid(self.pid, 0)
        os.close(self.fd)
        if self.asked is not None:
            self.summary.stopped(self.asked - self.heard)


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


class Server:
    def __init__(self, channel: socket.socket, root: Root, *, serves: bool, jobs: int, seconds: float) -> None:
        self.channel = channel
        self.root = root
        self.serves = serves
        self.jobs = jobs
        self.seconds = seconds
        """The user's limit, which holds for each survey and each candidate."""
        self.surveyed = Summary()
        self.limits: dict[str, float] = {}
        self.late: set[str] = set()
        self.collecting = 4.0
        """Seconds from the fork until the tests were known."""
        self.quiet = 0.0
        """Seconds that a candidate's test may wait for something, beyond what its processor time allows."""
        self._waits_late = False

    def send(self, **event: Any) -> None:
        self.channel.sendall((json.dumps(event) + "\n").encode("utf-8", "replace"))

    def before_configuration(self) -> Task | None:
        """Waits here, in the first process, until the fork that waits late says that this is too late."""
        if not self.serves:
            return Task(self.channel.fileno(), forked=False, survey=True)
        pid = _fork()
        if pid == 0:
            self._waits_late = True
            return None
        _, status = os.waitpid(pid, 0)
        code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)
        if code == _EARLY:
            return self._serve(early=True)
        os._exit(code)

    def before_collection(self, session: Any) -> Task | None:
        if not self._waits_late:
            return None
        self._waits_late = False
        if any(self._is_project(module) for module in list(sys.modules.values())):
            os._exit(_EARLY)
        return self._serve(early=False)

    def _is_project(self, module: Any) -> bool:
        origin = getattr(module, "__file__", None)
        return isinstance(origin, str) and self.root.source(origin) is not None

    def _serve(self, *, early: bool) -> Task:
        self.send(e="ready", early=early)
        try:
            for line in self.channel.makefile("r", encoding="utf-8"):
                self._answer(json.loads(line))
        except _InChild as child:
            return child.task
        os._exit(0)

    def _answer(self, request: dict[str, Any]) -> None:
        if request["op"] == "survey":
            summary = self._surveyed(request)
            if request["keep"]:
                self.surveyed = summary
                self._preload(summary.modules)
        elif request["op"] == "evaluate":
            self._evaluate(request)
            self.send(e="done")

    # -- surveys ---------------------------------------------------------------------------------------------

    def _surveyed(self, request: dict[str, Any]) -> Summary:
        """Run the tests and say what came of it. Where the time was over first, failures that are known count more."""
        began = time.monotonic()
        summary = Summary()
        late = self._survey(
            summary, request["select"], request["limit"], quiet=request["quiet"], until=began + self.seconds,
            trace=request["trace"],
        )  # fmt: skip
        known = summary.failing() or summary.collect_errors
        self.send(e="surveyed", timed_out=late and not known, duration=time.monotonic() - began, left=summary.left(),
                  collecting=summary.collected is None, **summary.as_json())  # fmt: skip
        return summary

    def _survey(
        self, summary: Summary, select: list[str] | None, limit: float, *, quiet: float, until: float, trace: bool
    ) -> bool:
        """Every test, each within its limit. A test that does not end costs the process: the next goes on.

        True when the time was over first. The test that ran then may be slow or may never end: nobody knows.
        """
        hanging = 0
        while True:
            before, collected = len(summary.tests), summary.collected
            summary.collected = summary.status = None
            child = self._fork_child(
                summary, ids=select, skip=set(summary.tests), limit=limit, until=until, survey=True, trace=trace
            )
            child.quiet = quiet
            child.idle = self.seconds
            self._wait([child])
            child.close()
            if before == 0 and child.collecting is not None:
                self.collecting = child.collecting
            if summary.status is None and summary.running is not None:
                _died(summary)
            if before:
                summary.collected = collected if summary.collected is None else before + summary.collected
                if summary.status == _NO_TESTS:
                    summary.status = 1  # the test that cost the former process was the last one
            if child.late:
                summary.forget_stopped(before)
                return True
            if summary.status is not None or len(summary.tests) == before:
                return False
            hanging += 1
            if hanging >= _HANGING_TESTS:
                return False
            limit = min(limit, max(_LATER_HANGS, CALIBRATION * summary.longest("cpu")))
            quiet = max(limit, quiet / 3)

    # -- candidates ------------------------------------------------------------------------------------------

    def _evaluate(self, request: dict[str, Any]) -> None:
        tests = self.surveyed.tests
        failing = [test["id"] for test in self.surveyed.failing()]
        first = [each for each in request["first"] if each in tests] or failing
        limit = self._limit(self.surveyed.longest("cpu"), request["patience"])
        self.limits = {
            name: self._limit(test["cpu"], request["patience"])
            for name, test in tests.items()
            if not test.get("stopped")
        }
        stopped = {name for name in failing if tests[name].get("stopped")}
        self.late = stopped if len(stopped) < len(failing) else set()
        for name in self.late:
            self.limits[name] = max(limit, request["patience"] * min(LONGEST_LIMIT, LATE * tests[name]["cpu"]))
        self.quiet = CALIBRATION * self.surveyed.longest()
        self.quiet += LATE * request["patience"] * max([tests[each]["duration"] for each in self.late] or [0.0])
        broken = len(failing) + len(self.surveyed.collect_errors)
        self.send(e="baseline", failing=broken, tests=len(self.surveyed.tests), limit=limit)
        if broken:
            quick_first = sorted(_spread(first), key=lambda each: tests[each]["cpu"])
            self._try_all(request["candidates"], quick_first, limit, request["seconds"])

    def _limit(self, duration: float, patience: float) -> float:
        slowest = self.surveyed.longest("cpu")
        shortest = QUICK_LIMIT if 0 < slowest < QUICK_LIMIT / 10 else SHORTEST_LIMIT
        return patience * max(shortest, min(LONGEST_LIMIT, CALIBRATION * duration))

    def _try_all(self, candidates: list[list[Edit]], first: list[str], limit: float, seconds: float) -> None:
        until = time.monotonic() + seconds
        waiting = list(enumerate(candidates))[::-1]
        trials: list[_Trial] = []
        while trials or (waiting and time.monotonic() < until):
            while waiting and len(trials) < self.jobs and time.monotonic() < until:
                trial = self._begin(*waiting.pop(), first=first, limit=limit)
                if trial is not None:
                    trials.append(trial)
            ended = self._wait_any([trial.child for trial in trials])
            for trial in [each for each in trials if each.child in ended]:
                trials.remove(trial)
                trial.child.close()
                following = self._judge(trial, first, limit)
                if following is not None:
                    trials.append(following)

    def _begin(self, index: int, edits: list[Edit], *, first: list[str], limit: float) -> _Trial | None:
        sources = self._sources(edits)
        if isinstance(sources, str):
            self.send(e="candidate", i=index, verdict="invalid", why=sources)
            return None
        if not first:
            return self._try_everything(index, sources, limit)
        child = self._fork_child(
            Summary(), ids=first, limit=limit, limits=self.limits, late=self.late, sources=sources,
            until=time.monotonic() + self.seconds,
        )  # fmt: skip
        return _Trial(index, sources, child, everything=False)

    def _try_everything(self, index: int, sources: dict[str, bytes], limit: float) -> _Trial:
        """The whole suite in its own order, up to the first failure."""
        child = self._fork_child(
            Summary(), limit=limit, limits=self.limits, late=self.late, sources=sources, stop=True,
            until=time.monotonic() + self.seconds,
        )  # fmt: skip
        return _Trial(index, sources, child, everything=True)

    def _judge(self, trial: _Trial, first: list[str], limit: float) -> _Trial | None:
        """Says what came of it, or goes on to the whole suite."""
        summary = trial.child.summary
        passed = [each for each in first if each in summary.tests and summary.tests[each]["outcome"] == "passed"]
        if not trial.everything and len(passed) == len(first):
            return self._try_everything(trial.index, trial.sources, limit)
        failed = [test["id"] for test in summary.failing()]
        verdict = "fails"
        if trial.everything and not failed and summary.status is not None and self._nothing_lost(summary):
            verdict = "plausible"
        elif trial.child.asked is not None or any(test.get("stopped") for test in summary.failing()):
            verdict = "timeout"
        fixed = len(first) if trial.everything else len(passed)
        self.send(e="candidate", i=trial.index, verdict=verdict, passed=fixed, of=len(first), broke=trial.everything,
                  failed=failed[:2])  # fmt: skip
        return None

    def _nothing_lost(self, summary: Summary) -> bool:
        """A candidate that makes tests vanish or be skipped has not passed them."""
        wanted = set(self.surveyed.ids("passed", "failed", "error"))
        passed = set(summary.ids("passed"))
        return bool(passed) and wanted <= passed and not summary.collect_errors

    def _sources(self, edits: list[Edit]) -> Any:
        """The changed files by absolute path, or the sentence that says why there is no such candidate."""
        sources: dict[str, bytes] = {}
        for path, start, end, text in sorted(edits, key=lambda each: -each[1]):
            absolute = os.path.join(self.root.path, path)
            if absolute not in sources:
                with open(absolute, "rb") as file:
                    sources[absolute] = file.read()
            old = sources[absolute]
            sources[absolute] = old[:start] + text.encode("utf-8", "surrogateescape") + old[end:]
        for path, source in sources.items():
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    compile(source, path, "exec", dont_inherit=True)
            except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
                return f"{type(error).__name__}: {error}"
        return sources

    # -- forks -----------------------------------------------------------------------------------------------

    def _fork_child(
        self, summary: Summary, *, limit: float, until: float, sources: dict[str, bytes] | None = None, **task: Any
    ) -> _Child:
        ours, theirs = os.pipe()
        gc.freeze()
        pid = _fork()
        if pid == 0:
            os.setpgid(0, 0)
            os.close(ours)
            self.channel.close()
            limit_memory()
            serve_sources(sources or {})
            raise _InChild(Task(theirs, limit=limit, **task))
        with contextlib.suppress(PermissionError, ProcessLookupError):
            os.setpgid(pid, pid)
        os.close(theirs)
        child = _Child(pid, ours, summary, until)
        longest = max([limit, *(self.limits[each] for each in self.late)])
        # A busy machine gives processor time slowly: how slowly, the time that collecting took tells too.
        child.quiet = 2 * longest + 1.5 + self.collecting + self.quiet
        child.idle = child.quiet + self.collecting + 2.0
        return child

    def _wait(self, children: list[_Child]) -> None:
        rest = list(children)
        while rest:
            for child in self._wait_any(rest):
                rest.remove(child)

    def _wait_any(self, children: list[_Child]) -> list[_Child]:
        """Those that have come to an end: by themselves, or since their time was over."""
        if not children:
            return []
        while True:
            gone = [child for child in children if child.gone()]  # all that they said is in the pipe by now
            ready, _, _ = select.select([child.fd for child in children], [], [], 0.25)
            ended = [child for child in children if (not child.read() if child.fd in ready else child in gone)]
            for child in children:
                if child not in ended and child.out_of_time() and child.give_up():
                    ended.append(child)
            if ended:
                return ended

    def _preload(self, modules: list[str]) -> None:
        """Import what the tests needed from outside the project, so that each fork finds it there."""
        own = self.root.top_level_names()
        outside: dict[str, bool] = {}
        for name in modules:
            top = name.split(".")[0]
            if top not in outside:
                outside[top] = top not in own and not top.startswith("devfix_") and self._is_outside(top)
            if name not in sys.modules and outside[top]:
                _import_quietly(name)

    def _is_outside(self, name: str) -> bool:
        try:
            spec = importlib.util.find_spec(name)
        except (ImportError, ValueError, AttributeError):
            return False
        if spec is None or spec.origin is None:
            return False
        return spec.origin in ("built-in", "frozen") or self.root.relative(spec.origin) is None


class _Trial:
    """A candidate on its way."""

    def __init__(self, index: int, sources: dict[str, bytes], child: _Child, *, everything: bool) -> None:
        self.index = index
        self.sources = sources
        self.child = child
        self.everything = everything


def _died(summary: Summary) -> None:
    error: Event = {"type": "Crash", "message": "the process died", "frames": [], "where": None}
    summary.add({"e": "end", "id": summary.running, "outcome": "failed", "duration": 0.0, "cpu": 0.0, "error": error,
                 "lines": {}})  # fmt: skip


def _spread(ids: list[str]) -> list[str]:
    """At most FIRST_TESTS of them, from all over the list: neighbours tend to fail for the same reason."""
    if len(ids) <= FIRST_TESTS:
        return ids
    return [ids[index * len(ids) // FIRST_TESTS] for index in range(FIRST_TESTS)]


def _fork() -> int:
    sys.stdout.flush()
    sys.stderr.flush()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # threads that a library started; none of them holds a lock of ours
        return os.fork()


def _import_quietly(name: str) -> None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            importlib.import_module(name)
    except Exception:  # noqa: BLE001, S110 - only a short cut: what can't be imported now, each fork imports
        pass
