"""Answers under fire: many at once, and at the moment at which the run's process dies."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.helpers.cli import SECONDS, Cli, standing
from tests.helpers.refunds import JOB, TURNS
from tests.helpers.shop import Shop, open_shop

pytestmark = pytest.mark.acceptance

PROCESSES = 4
PEOPLE = 50


@pytest.fixture
def cli(database_url: str, tmp_path: Path) -> Cli:
    """A database of the test's own: a worker takes whatever is queued."""
    made = Cli(tmp_path, database_url)
    made.environment |= {"DEVFIX_LEASE_SECONDS": "3", "DEVFIX_JOB": JOB}
    return made


def queued(cli: Cli, shop: Shop) -> str:
    options = ("--option", "order=7", "--option", f"shop={shop.address}")
    started = cli.here("run", *options, "--model", cli.script(TURNS), "--detach", "--json")
    assert started.code == 0, started
    return str(started.facts["run_id"])


def until(look: Callable[[], Any], what: str) -> Any:
    """What `look` gives, once it gives something."""
    deadline = time.monotonic() + SECONDS
    while not (found := look()):
        assert time.monotonic() < deadline, f"{what} did not come"
        time.sleep(0.002)
    return found


def facts(cli: Cli, run_id: str) -> Any:
    return cli.here("show", run_id, "--json").facts


def test_of_two_hundred_answers_at_once_one_counts(cli: Cli) -> None:
    """From four processes: one effect; the other 199 are told who decided, what, and when."""
    with open_shop() as shop, cli.running("worker"):
        run_id = queued(cli, shop)
        (asked,) = until(lambda: facts(cli, run_id)["pending"], "the question")
        crowds = [crowd(cli, run_id, asked["call_id"], first) for first in range(0, PROCESSES * PEOPLE, PEOPLE)]
        told: dict[str, str] = {}
        for each in crowds:
            assert each.stdin is not None
            each.stdin.write(b"go\n")
            each.stdin.flush()
        for each in crowds:
            told |= json.loads(each.communicate(timeout=SECONDS)[0])
        (winner,) = [name for name, answer in told.items() if answer == "decided"]
        losers = [answer for name, answer in told.items() if name != winner]
        assert len(losers) == PROCESSES * PEOPLE - 1
        assert {answer.split(", at ")[0] for answer in losers} == {
            f"{winner} already decided {asked['call_id']}: approve"
        }
        until(lambda: facts(cli, run_id)["pending"], "the next question")
        assert (len(shop.refunds), len(shop.letters)) == (1, 0)


def crowd(cli: Cli, run_id: str, call_id: str, first: int) -> subprocess.Popen[bytes]:
    """A process of people who are about to answer."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.helpers.answers", run_id, call_id, str(first), str(PEOPLE)],
        env=cli.environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    return process


@pytest.mark.parametrize("milliseconds", [0, 20])
def test_an_answer_counts_while_the_run_is_being_rescued(cli: Cli, milliseconds: int) -> None:
    """The worker is killed as soon as it has asked, and the answer is there before anybody has taken the run over."""
    with open_shop() as shop:
        run_id = queued(cli, shop)
        for _ in ("the refund", "the letter"):
            with cli.running("worker") as worker:
                call_id = until(lambda: open_question(cli, run_id), "the question")
                time.sleep(milliseconds / 1000)
                worker.signal(signal.SIGKILL)
                worker.process.wait()
            answered = cli.here("approve", run_id, call_id, "--detach", "--json")
            assert answered.code == 0, answered
        with cli.running("worker"):
            until(lambda: standing(facts(cli, run_id)) == "completed: done", "the end")
        assert (len(shop.refunds), len(shop.letters)) == (1, 1)


def open_question(cli: Cli, run_id: str) -> str | None:
    """The id of the call that is put to a person, from the moment at which its row is there; the interrupt may not be
    saved yet."""
    with psycopg.connect(cli.environment["DEVFIX_DATABASE_URL"], autocommit=True) as connection:
        statement = "SELECT call_id FROM devfix.approvals WHERE run_id = %s AND decision IS NULL"
        row = connection.execute(statement, (run_id,)).fetchone()
    return str(row[0]) if row else None
