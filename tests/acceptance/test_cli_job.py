"""A job of the user's own, named by DEVFIX_JOB, on the same command line and with the same promises."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from tests.helpers.cli import Cli, standing
from tests.helpers.refunds import JOB, TURNS
from tests.helpers.shop import Shop, open_shop


@pytest.fixture
def refunds(cli: Cli) -> Cli:
    cli.environment["DEVFIX_JOB"] = JOB
    return cli


def begun(cli: Cli, shop: Shop, *options: object) -> list[object]:
    given = ["run", "--option", "order=7", "--option", f"shop={shop.address}", "--model", cli.script(TURNS)]
    return [*given, *options, "--json"]


def counts(shop: Shop) -> tuple[int, int]:
    return len(shop.refunds), len(shop.letters)


def test_a_job_of_ones_own_asks_refunds_and_writes(refunds: Cli) -> None:
    """Each effect after its own approval, and completed by the receipts."""
    with open_shop() as shop:
        asked = refunds(*begun(refunds, shop))
        assert (asked.code, standing(asked.facts)) == (3, "waiting: approval"), asked
        assert counts(shop) == (0, 0)
        again = refunds("approve", "last", "--json")
        assert (again.code, standing(again.facts)) == (3, "waiting: approval"), again
        assert counts(shop) == (1, 0)
        ended = refunds("approve", "last", "--json")
        assert (ended.code, standing(ended.facts)) == (0, "completed: done"), ended
        assert counts(shop) == (1, 1)
    assert ended.facts["report"]["summary"] == "40.0 refunded; ada@example.com was told."


def test_under_kills_it_refunds_once_and_writes_once(refunds: Cli) -> None:
    """SIGKILL again and again, also while the shop is at it; whoever comes next goes on."""
    chance = random.Random(7)
    with open_shop(seconds=0.4) as shop:
        queued = refunds(*begun(refunds, shop, "--detach"))
        run_id = queued.facts["run_id"]
        kills = 0
        for _ in range(12):
            with refunds.running("resume", run_id, "--yes", "--json") as running:
                until = time.monotonic() + chance.uniform(1.2, 3.5)
                while running.process.poll() is None and time.monotonic() < until:
                    time.sleep(0.02)
                if running.process.poll() is not None:
                    break
                running.process.kill()
                kills += 1
        ended = refunds("show", run_id, "--json") if kills < 12 else refunds("resume", run_id, "--yes", "--json")
        assert standing(ended.facts) == "completed: done", ended
        assert counts(shop) == (1, 1)
        assert kills


@pytest.mark.parametrize(
    ("job", "told"),
    [
        ("no.such.module:JOB", "No module named"),
        ("tests.jobs.refund:NOTHING", "NOTHING"),
        ("tests.jobs.refund:RefundWork", "is no Job"),
        ("refund", "there is no job"),
    ],
)
def test_a_job_that_is_none_is_refused(cli: Cli, tmp_path: Path, job: str, told: str) -> None:
    """In one sentence, before there is a run."""
    cli.environment["DEVFIX_JOB"] = job
    refused = cli("run", "--option", "order=7")
    assert refused.code == 2
    assert told in refused.err
    assert "Traceback" not in refused.err


TAKEN = """
from dataclasses import replace
from tests.jobs.refund import REFUND
JOB = replace(REFUND, name="repair")
"""


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("raise SystemExit(3)", "SystemExit: 3"),
        (
            "from dataclasses import replace\nfrom tests.jobs.refund import REFUND\nJOB = replace(REFUND, toolbox=[])",
            "Toolbox.of",
        ),
        (TAKEN, "give it another one"),
    ],
)
def test_a_job_with_a_mistake_is_refused(cli: Cli, text: str, told: str) -> None:
    """Not taken for a run that waits, nor for a bug of DevFix."""
    (cli.folder / "mistaken.py").write_text(text)
    cli.environment |= {"DEVFIX_JOB": "mistaken:JOB", "PYTHONPATH": f"{cli.environment['PYTHONPATH']}:{cli.folder}"}
    refused = cli("run", "--option", "order=7")
    assert (refused.code, told in refused.err) == (2, True), refused


def test_options_that_do_not_fit_are_refused(refunds: Cli) -> None:
    """Missing, unknown, of another type, in another form."""
    for option, told in (("order=x", "order"), ("wishes=3", "no option wishes"), ("order", "NAME=VALUE")):
        refused = refunds("run", "--option", option)
        assert (refused.code, told in refused.err) == (2, True), refused


def test_a_process_that_does_not_know_the_job_leaves_the_run_alone(refunds: Cli) -> None:
    """It waits for one that does."""
    with open_shop() as shop:
        asked = refunds(*begun(refunds, shop))
        del refunds.environment["DEVFIX_JOB"]
        refused = refunds("approve", "last", "--json")
        assert refused.code == 2
        assert "no job 'refund'" in refused.err
        assert counts(shop) == (0, 0)
        refunds.environment["DEVFIX_JOB"] = JOB
        assert refunds("show", "last", "--json").facts["pending"], "nothing was decided"
        for _ in range(2):
            ended = refunds("resume", "last", "--yes", "--json")
        assert (standing(ended.facts), counts(shop)) == ("completed: done", (1, 1)), asked
