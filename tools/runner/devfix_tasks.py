"""What a forked pytest is to do with its session, and the world that it does it in.

Runs inside the sandbox under the user's interpreter: Python 3.8 or newer, standard library only.
"""

from __future__ import annotations

import json
import linecache
import os
import resource
import signal
from importlib.machinery import SourceFileLoader
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from devfix_results import Event

SETUP = "DEVFIX_RUNNER"
ENOUGH = 0.25
"""Seconds; when a candidate has failed a test already, no more are run beyond that: they only measure progress."""

_MEMORY = 1536 * 1024 * 1024


def take_setup() -> dict[str, Any] | None:
    """The channel's description, taken out of the environment, so that the tests see the user's own."""
    raw = os.environ.pop(SETUP, None)
    if raw is None:
        return None
    setup: dict[str, Any] = json.loads(raw)
    for name, value in setup["restore"].items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    return setup


def take_over_options(config: Any) -> None:
    """Options that would run the tests elsewhere, or stop early, or in another order, do not apply here."""
    for name, value in (
        ("numprocesses", None),
        ("dist", "no"),
        ("tx", []),
        ("distload", False),
        ("maxfail", 0),
        ("usepdb", False),
        ("lf", False),
        ("failedfirst", False),
        ("newfirst", False),
        ("stepwise", False),
        ("no_cov", True),
    ):
        if hasattr(config.option, name):
            setattr(config.option, name, value)


class Task:
    """What this process is to do with its session."""

    def __init__(self, fd: int, *, ids: list[str] | None = None, skip: set[str] | None = None, limit: float = 0.0,
                 limits: dict[str, float] | None = None, late: set[str] | None = None, survey: bool = False,
                 trace: bool = False, forked: bool = True, stop: bool = False) -> None:  # fmt: skip
        self.fd = fd
        self.ids = ids
        self.skip = skip or set()
        self.limit = limit
        self.limits = limits or {}
        self.late = late or set()
        self.survey = survey
        self.trace = trace
        self.forked = forked
        self.stop = stop
        self.remote = False
        self.spent = 0.0
        self.failed = False

    def send(self, event: Event) -> None:
        data = (json.dumps(event) + "\n").encode("utf-8", "replace")
        while data:
            data = data[os.write(self.fd, data) :]

    def prepare(self, session: Any, expired: Callable[[float, Any], None]) -> None:
        config = session.config
        self.remote = getattr(config.option, "dist", "no") != "no"
        if not self.forked:
            return
        signal.signal(signal.SIGPROF, lambda number, frame: expired(0.0, frame))
        _stop_capturing(config)
        import devfix_pytest

        config.pluginmanager.register(devfix_pytest.Terse(), "devfix_terse")
        if self.ids is not None:
            root = str(getattr(config, "rootpath", None) or config.rootdir)
            config.args = [os.path.join(root, each) for each in self.ids]

    def choose(self, items: list[Any]) -> None:
        if self.ids is not None or self.skip:
            wanted = None if self.ids is None else set(self.ids)
            items[:] = [each for each in items
                        if each.nodeid not in self.skip and (wanted is None or each.nodeid in wanted)]  # fmt: skip
        if self.ids is not None and not self.survey:
            order = {each: place for place, each in enumerate(self.ids)}
            items.sort(key=lambda each: order[each.nodeid])

    def start_clock(self, test: str, expired: Callable[[float, Any], None]) -> None:
        """Processor time, not wall time: a busy machine must not change what a search finds."""
        if self.failed and test in self.late:
            os._exit(0)
        if self.limit:
            limit = self.limits.get(test, self.limit)
            signal.signal(signal.SIGPROF, lambda number, frame: expired(limit, frame))
            signal.setitimer(signal.ITIMER_PROF, limit)

    def stop_clock(self) -> None:
        if self.limit:
            signal.setitimer(signal.ITIMER_PROF, 0)

    def after(self, event: Event) -> None:
        """A candidate that has failed is not worth much more time."""
        if self.survey:
            return
        self.spent += event["cpu"]
        self.failed = self.failed or event["outcome"] in ("failed", "error")
        if self.failed and (self.stop or self.spent > ENOUGH):
            os._exit(0)

    def end(self) -> None:
        if self.forked:
            os._exit(0)


def _stop_capturing(config: Any) -> None:
    """Forks would share the one temporary file of pytest's capture; what they print is not wanted anyhow."""
    manager = config.pluginmanager.getplugin("capturemanager")
    if manager is not None:
        manager.stop_global_capturing()
        manager._method = "no"
        manager.start_global_capturing()
    _silence()


def _silence() -> None:
    nothing = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(nothing, fd)
    os.close(nothing)


def limit_memory() -> None:
    """So much more than the process has already: a loop that appends for ever must not take the machine."""
    with open("/proc/self/statm", encoding="ascii") as file:
        pages = int(file.read().split()[0])
    wanted = pages * resource.getpagesize() + _MEMORY
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    for limit in (soft, hard):
        if limit != resource.RLIM_INFINITY:
            wanted = min(wanted, limit)
    resource.setrlimit(resource.RLIMIT_AS, (wanted, hard))


def serve_sources(sources: dict[str, bytes]) -> None:
    """From now on these files read as given when they are imported; nothing on the disk changes."""
    if not sources:
        return
    get_data, path_stats = SourceFileLoader.get_data, SourceFileLoader.path_stats

    def changed(path: str) -> bytes | None:
        return sources.get(os.path.realpath(path)) if path.endswith(".py") else None

    def served_data(self: Any, path: str) -> bytes:
        source = changed(path)
        return get_data(self, path) if source is None else source

    def served_stats(self: Any, path: str) -> Any:
        if changed(path) is not None:
            raise OSError("no bytecode is kept for a candidate")
        return path_stats(self, path)

    SourceFileLoader.get_data = served_data  # type: ignore[method-assign]
    SourceFileLoader.path_stats = served_stats  # type: ignore[method-assign]
    for path, source in sources.items():
        text = source.decode("utf-8", "replace")
        linecache.cache[path] = (len(source), None, text.splitlines(True), path)
