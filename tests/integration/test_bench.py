"""The figures, a few steps of each: their shape, never a time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from scripts.bench import layer, load, queue, step, storage
from scripts.bench.commands import devfix, facts_of
from scripts.bench.loop import Text, ours, plain
from scripts.cli.main import guarded
from state.settings import Settings


@pytest.fixture
def settings(database_url: str, tmp_path: Path) -> Settings:
    return Settings(database_url=database_url, home=tmp_path / "home")


@pytest.fixture
def nothing_left(database_url: str) -> Iterator[None]:
    """Each figure drops its schemas."""
    yield
    with psycopg.connect(database_url) as connection:
        left = connection.execute("SELECT nspname FROM pg_namespace WHERE nspname LIKE 'devfix_bench%'").fetchall()
    assert left == []


@pytest.mark.usefixtures("nothing_left")
async def test_steps_are_measured_on_both_savers(settings: Settings) -> None:
    """As many steps of each, and one ratio."""
    found = await step.measure(settings, steps=4, size=100, repetitions=2)
    assert found.ours_ms.count == found.peer_ms.count == 6
    assert found.ratio > 0
    assert found.machine.fsync == "off"


@pytest.mark.usefixtures("nothing_left")
async def test_storage_is_measured_on_both_savers(settings: Settings) -> None:
    """All that was stored comes back, from tables that hold this run alone."""
    found = await storage.measure(settings, steps=[5], peer_steps=[5], size=100, every=2)
    (mine,), (peer,) = found.ours, found.peers
    assert set(mine.tables) == set(storage.TABLES)
    assert set(peer.tables) == set(storage.TABLES) - {"steps"}
    assert mine.trace_bytes > peer.trace_bytes == 0
    assert mine.raw_bytes == peer.raw_bytes == 500
    assert mine.stored_bytes == sum(mine.tables.values())


@pytest.mark.usefixtures("nothing_left")
async def test_the_two_run_the_same_graph(settings: Settings) -> None:
    """Step by step the same texts on both savers; ours with a row of `steps` for each."""
    async with ours(settings) as mine, plain(settings) as peer:
        texts = []
        for bench in (mine, peer):
            run = await bench.run(3, 50)
            graph = bench.compiled(Text(0), [], every=10)
            texts.append((await graph.aget_state(run.config)).values["messages"])
    assert [each["content"] for each in texts[0]] == [each["content"] for each in texts[1]]


@pytest.mark.usefixtures("nothing_left")
async def test_commands_run_in_a_home_of_their_own(settings: Settings) -> None:
    """The bench's runs are not among the user's."""
    async with devfix(settings) as commands:
        assert facts_of(commands.start("runs", "--json"), seconds=60) == []
        assert "error" in facts_of(commands.start("run", "/nowhere", "--json"), seconds=60)
    assert not settings.home.exists()


def test_the_command_line_prints_one_json_object(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the machine's size, and the ratio at the top."""
    monkeypatch.setenv("DEVFIX_DATABASE_URL", str(settings.database_url))
    assert guarded(["bench", "step", "--steps", "3", "--repetitions", "1", "--size", "10", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {"ratio", "machine", "ours_ms", "peer_ms"} <= set(found)
    assert {"cores", "memory_gb", "python", "postgresql", "fsync"} <= set(found["machine"])


@pytest.mark.skipif(sys.platform != "linux", reason="orphans are adopted on Linux only")
def test_an_orphan_is_seen_and_a_dead_one_is_not() -> None:
    """What a killed process leaves behind is counted; a process that has ended is not."""
    program = (
        "import subprocess, sys; sleeping = [sys.executable, '-c', 'import time; time.sleep(60)']; "
        "print(subprocess.Popen(sleeping, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).pid)"
    )
    watch = (
        "import os, subprocess, sys; from scripts.bench.crash.orphans import adopt_orphans, left_processes; "
        "adopt_orphans(); "
        f"pid = int(subprocess.check_output([sys.executable, '-W', 'ignore', '-c', {program!r}])); "
        "(left,) = left_processes(); assert 'time.sleep(60)' in left, left; "
        "os.kill(pid, 9); assert left_processes() == []"
    )
    done = subprocess.run(
        [sys.executable, "-c", watch], env={**os.environ}, capture_output=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.usefixtures("nothing_left")
async def test_the_layer_is_measured_beside_the_bare_model(settings: Settings) -> None:
    """As many calls of each, of which each begins before it ends."""
    found = await layer.measure(settings, calls=3)
    assert found.ours_ms.count == found.peer_ms.count == found.calls == 3
    assert 0 < found.first_ours_ms.median <= found.ours_ms.median
    assert 0 < found.first_peer_ms.median <= found.peer_ms.median


@pytest.mark.usefixtures("nothing_left")
async def test_workers_are_killed_and_answered(settings: Settings) -> None:
    """Another one takes over; a cancel is reported; the effect comes after the answer."""
    found = await queue.measure(settings, kills=1, cancels=1, answers=1)
    assert (found.takeover_seconds.count, found.cancel_seconds.count, found.answer_ms.count) == (1, 1, 1)
    assert found.takeover_seconds.median > 0
    assert found.answer_ms.median > 0


@pytest.mark.usefixtures("nothing_left")
async def test_many_runs_share_a_worker(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that wait and those that work all write their one line, and the steps of both are measured."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    found = await load.measure(settings, active=2, waiting=3, workers=1, call_seconds=0.01)
    assert (found.effects, found.doubled, found.lost) == (6, 0, 0)
    assert found.step_ms.count == 2 * found.alone_step_ms.count > 0
    assert found.most_connections > 0
