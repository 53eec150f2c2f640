"""The campaign's small sibling: each way to strike, at each kind of point, once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from scripts.bench.commands import PROGRAM
from scripts.bench.crash.campaign import Server, campaign, own_server
from scripts.bench.crash.figures import Fault, Kind, Point
from scripts.bench.crash.wire import Side
from tests.helpers.refunds import refunds
from tests.helpers.shop import open_shop
from tools.sandbox.processes import holders

pytestmark = [
    pytest.mark.acceptance,
    pytest.mark.timeout(600),
    pytest.mark.skipif(sys.platform != "linux", reason="who owns a connection is seen on Linux only"),
]

REFUND = "POST /orders/*/refunds"
LETTER = "POST /letters"


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with own_server() as made:
        yield made


def at(kind: Kind, side: Side, place: str, number: int = 1) -> Fault:
    return Fault(kind, Point(place, side, number))


RUNS = [
    [at("kill", "before", "claim_effect"), at("kill", "before", REFUND), at("kill", "done", LETTER)],
    [at("kill", "done", "change_effect"), at("cut", "done", "claim_effect", 2)],
    [at("cut", "before", "save_writes"), at("restart", "done", REFUND), at("kill", "answered", LETTER)],
    [at("freeze", "done", "claim_effect"), at("freeze", "answered", LETTER)],
    [at("freeze", "before", "claim_effect")],
]


def test_a_campaign_that_is_stopped_leaves_nothing(tmp_path: Path) -> None:
    """Not its PostgreSQL, not a worker, not a file."""
    mark = f"TMPDIR={tmp_path}"
    options = ["--kills", "1", "--freezes", "0", "--cuts", "0", "--restarts", "0"]
    with subprocess.Popen(
        [*PROGRAM, "bench", "crash", *options], env={**os.environ, "TMPDIR": str(tmp_path)}
    ) as process:
        while not list(tmp_path.glob("devfix-bench-*/*/worker-*.log")):
            time.sleep(0.05)
        process.terminate()
        assert process.wait(60) == 128 + signal.SIGTERM
    assert holders(mark) == []
    assert list(tmp_path.glob("devfix-bench-*")) == []


async def test_refunds_once_and_writes_once_whatever_happens(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed, frozen, cut off and with PostgreSQL restarted, around the commits and around the effects."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))  # where the workers find the job
    with open_shop() as shop:
        taken_over = []
        async with campaign(server, refunds(tmp_path, shop)) as under_way:
            places = {point.place for point in under_way.points}
            assert {REFUND, LETTER, "claim_effect", "change_effect", "save_writes"} <= places
            for faults in RUNS:
                before = len(shop.refunds), len(shop.letters)
                outcome = await under_way.run(faults)
                assert outcome.whole, outcome
                assert outcome.standing == "completed: done"
                assert (len(shop.refunds), len(shop.letters)) == (before[0] + 1, before[1] + 1)
                assert sorted(outcome.struck) == sorted(map(str, faults))
                taken_over += outcome.taken_over_after
        assert taken_over
