"""Workers: runs go on in the background, whatever becomes of the process that is at them."""

from __future__ import annotations

import os
import signal
import time
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.helpers.cli import FIX, SECONDS, Cli, standing

pytestmark = pytest.mark.acceptance

AGAIN = [{"content": "", "tool_calls": [{"name": "run_tests", "args": {}}]}, *FIX]
"""Runs the tests once more before it repairs anything."""


@pytest.fixture
def cli(database_url: str, tmp_path: Path) -> Cli:
    """A database of the test's own: a worker takes whatever is queued."""
    return Cli(tmp_path, database_url)


SLOW = """
import time

from calc import add


def test_slow():
    if {always} or add(1, 2) != 3:
        with open("/proc/self/comm", "w") as name:
            name.write({name!r})
        time.sleep({seconds})
"""
"""A test that can be seen from outside while it sleeps, by the name of its process; it does as long as the defect is
there, or always."""


def repository(cli: Cli, seconds: float, *, always: bool = False) -> Path:
    path = cli.repository()
    if seconds:
        slow = SLOW.format(name=name_of_slow(cli), seconds=seconds, always=always)
        (path / "test_slow.py").write_text(slow)
    return path


def name_of_slow(cli: Cli) -> str:
    """At most 15 characters, and no other's: the same tests may run beside these."""
    return f"slow-{zlib.crc32(f'{os.getpid()} {cli.folder}'.encode()):08x}"


def queued(cli: Cli, *, seconds: float = 0.0, turns: Any = FIX) -> str:
    """A new run for a worker; its id."""
    started = cli.here("run", repository(cli, seconds), "--model", cli.script(turns), "--detach", "--json")
    assert (started.code, standing(started.facts)) == (0, "queued: new"), started
    return str(started.facts["run_id"])


def until(cli: Cli, run_id: str, wanted: str, *, seconds: float = SECONDS) -> Any:
    """The run's facts, once it stands so."""
    deadline = time.monotonic() + seconds
    while standing(facts := cli.here("show", run_id, "--json").facts) != wanted:
        assert time.monotonic() < deadline, f"it stands {standing(facts)}, not {wanted}: {facts['report']}"
        time.sleep(0.1)
    return facts


def until_asleep(cli: Cli, asleep: bool = True) -> None:
    """Wait until a run's tests are in the middle of the slow one; or until none are."""
    deadline = time.monotonic() + SECONDS
    while (name_of_slow(cli) in names_of_processes()) != asleep:
        assert time.monotonic() < deadline, "the tests did not begin, or end"
        time.sleep(0.02)


def until_saved(cli: Cli, run_id: str, steps: int) -> None:
    """Wait for the very moment at which the run has so many steps."""
    deadline = time.monotonic() + SECONDS
    with psycopg.connect(cli.environment["DEVFIX_DATABASE_URL"], autocommit=True) as connection:
        statement = "SELECT step >= %s FROM devfix.runs WHERE run_id = %s"
        while connection.execute(statement, (steps, run_id)).fetchone() != (True,):
            assert time.monotonic() < deadline, "the run did not come so far"


def names_of_processes() -> set[str]:
    names = set()
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            with suppress(OSError):
                names.add((process / "comm").read_text().strip())
    return names


def is_whole(cli: Cli, run_id: str) -> bool:
    """No step is missing, and the patch was applied once."""
    steps = [each["step"] for each in cli.here("history", run_id, "--json").facts]
    effects = [each["state"] for each in cli.here("effects", run_id, "--json").facts]
    return steps == list(range(1, len(steps) + 1)) and effects == ["settled"]


def test_a_worker_goes_on_with_what_is_queued_and_with_what_is_answered(cli: Cli) -> None:
    """`run --detach` and `approve --detach` only record; the worker ends with 0 at a signal."""
    with cli.running("worker") as worker:
        run_id = queued(cli)
        until(cli, run_id, "waiting: approval")
        answered = cli.here("approve", run_id, "--detach", "--json")
        assert (answered.code, answered.facts["pending"]) == (0, [])
        until(cli, run_id, "completed: done")
        worker.signal(signal.SIGTERM)
        assert worker.end().code == 0
    assert is_whole(cli, run_id)


def test_b80_a_killed_worker_is_replaced_by_another_one(cli: Cli) -> None:
    """B80: SIGKILL in the middle of a tool; nobody has to say anything for the run to go on."""
    run_id = queued(cli, seconds=6)  # longer than a worker takes to come up
    with cli.running("worker") as first:
        until_asleep(cli)
        with cli.running("worker") as second:
            second.until("goes on with runs")
            first.signal(signal.SIGKILL)
            second.until("is taken over")
            until(cli, run_id, "waiting: approval")
            cli.here("approve", run_id, "--detach")
            until(cli, run_id, "completed: done")
    assert is_whole(cli, run_id)


@pytest.mark.parametrize("steps", [2, 5])
def test_b85_a_run_whose_worker_died_between_two_steps_keeps_no_other_waiting(cli: Cli, steps: int) -> None:
    """B85: SIGKILL as soon as a step is saved, of a worker that takes one run at a time; the next one takes both on."""
    stuck, behind = queued(cli, turns=AGAIN), queued(cli, turns=AGAIN)
    with cli.running("worker", "--concurrency", "1") as first:
        until_saved(cli, stuck, steps)
        first.signal(signal.SIGKILL)
        first.process.wait()
    with cli.running("worker", "--concurrency", "1"):
        for run_id in (stuck, behind):
            until(cli, run_id, "waiting: approval")
            cli.here("approve", run_id, "--detach")
        for run_id in (stuck, behind):
            until(cli, run_id, "completed: done")
            assert is_whole(cli, run_id)


def test_a_frozen_worker_is_overtaken_and_goes_on_with_other_work_when_it_wakes(cli: Cli) -> None:
    """SIGSTOP past the lease, SIGCONT: its attempt was fenced, and the worker is as good as before."""
    cli.environment["DEVFIX_LEASE_SECONDS"] = "3"
    run_id = queued(cli, seconds=2)
    with cli.running("worker") as first:
        until_asleep(cli)
        first.signal(signal.SIGSTOP)
        with cli.running("worker") as second:
            second.until("is taken over")
            until(cli, run_id, "waiting: approval")
            second.signal(signal.SIGTERM)
            assert second.end().code == 0
        first.signal(signal.SIGCONT)
        first.until("another attempt holds this run now")
        cli.here("approve", run_id, "--detach")
        until(cli, run_id, "completed: done")
        first.signal(signal.SIGTERM)
        ended = first.end()
    assert ended.code == 0, ended
    assert "Traceback" not in ended.err
    assert is_whole(cli, run_id)


@pytest.mark.parametrize("signals", [1, 2])
def test_sigterm_puts_runs_down_and_the_next_worker_goes_on(cli: Cli, signals: int) -> None:
    """Once: at the next saved step. Twice: where it is. Either way the run stays queued for a worker."""
    run_id = queued(cli, seconds=2, turns=AGAIN)
    with cli.running("worker") as worker:
        until_asleep(cli)
        for _ in range(signals):
            worker.signal(signal.SIGTERM)
            worker.until("stopping once 1 runs")
        ended = worker.end()
    assert ended.code == 0, ended
    assert "is put down" in ended.err
    assert standing(cli.here("show", run_id, "--json").facts) == "queued: released"
    with cli.running("worker"):
        until(cli, run_id, "waiting: approval")


def test_a_run_in_the_foreground_is_left_alone_while_it_lives_and_taken_over_when_it_dies(cli: Cli) -> None:
    """B75: a tool that takes longer than the lease is not started a second time."""
    cli.environment["DEVFIX_LEASE_SECONDS"] = "3"
    with (
        cli.running("worker") as worker,
        cli.running("run", repository(cli, 5, always=True), "--model", cli.script(FIX), "--json") as foreground,
    ):
        worker.until("goes on with runs")
        until_asleep(cli)
        busy = cli.here("resume", "last", "--detach")
        assert (busy.code, "is held by command line" in busy.err) == (4, True), busy
        foreground.until("edit_file")
        facts = cli.here("show", "last", "--json").facts
        assert (facts["status"], facts["epoch"]) == ("running", 2), facts
        foreground.signal(signal.SIGKILL)
        worker.until("is taken over: command line")
        facts = until(cli, facts["run_id"], "waiting: approval")
        assert facts["epoch"] == 3


def test_b77_b78_a_cancel_reaches_a_tool_in_a_worker(cli: Cli) -> None:
    """B77, B78: it stops at once, stays cancelled, and the report names the call; `resume --detach` takes it up."""
    run_id = queued(cli, seconds=60)
    with cli.running("worker") as worker:
        until_asleep(cli)
        cancelled = cli.here("cancel", run_id, "--by", "ada", "--json").facts
        assert standing(cancelled) == "cancelled: by_person"
        assert "ada cancelled the run during run_tests (" in cancelled["report"]["summary"]
        assert cancelled["report"]["left"][0].startswith("run_tests (")
        worker.until("cancelled: by_person")
        again = cli.here("resume", run_id, "--detach", "--json")
        assert (again.code, standing(again.facts)) == (0, "queued: released")
        until(cli, run_id, "running: None")


def test_a_run_that_kills_its_workers_is_given_up_and_may_be_resumed(cli: Cli) -> None:
    """After max_crashes deaths in a row without a step (the first one had saved some): failed, with a report; a
    person's resume tries again."""
    cli.environment["DEVFIX_MAX_CRASHES"] = "2"
    run_id = queued(cli, seconds=1)
    for _ in range(3):
        with cli.running("worker") as worker:
            until_asleep(cli)
            worker.signal(signal.SIGKILL)
            worker.end()
            until_asleep(cli, False)
    with cli.running("worker") as worker:
        worker.until("is given up")
        facts = until(cli, run_id, "failed: internal")
        assert "2 processes in a row died" in facts["report"]["summary"]
        assert "run_tests" in facts["report"]["summary"]
        cli.here("resume", run_id, "--detach")
        until(cli, run_id, "waiting: approval")


def test_an_expired_approval_wakes_a_worker(cli: Cli) -> None:
    """Nobody has to answer for the run to say that nobody did."""
    cli.environment |= {"DEVFIX_APPROVAL_TTL_SECONDS": "1", "DEVFIX_LEASE_SECONDS": "3"}  # so often a worker looks
    run_id = queued(cli)
    with cli.running("worker"):
        until(cli, run_id, "waiting: escalation")


def test_b82_a_worker_goes_on_when_its_database_was_away(tmp_path: Path) -> None:
    """B82: the embedded PostgreSQL, which the worker itself started, is stopped under it; a killed worker leaves it."""
    cli = Cli(tmp_path, "")
    cli.environment["DEVFIX_LEASE_SECONDS"] = "3"
    try:
        with cli.running("worker") as worker:
            worker.until("goes on with runs")
            runs = [queued(cli, seconds=2) for _ in range(3)]
            until_asleep(cli)
            assert cli("db", "stop").code == 0
            for run_id in runs:
                until(cli, run_id, "waiting: approval")
            worker.signal(signal.SIGKILL)
            assert "Traceback" not in worker.end().err
        assert cli("db", "status", "--json").facts["state"] == "running"
    finally:
        cli("db", "stop")
