"""Disks that are full or read-only: one clear line, nothing half-written, and the run goes on once there is room."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.apart import Apart, apart, read_only, small
from tests.helpers.cli import CALC, FIX, TEST, Cli, Ended, standing

pytestmark = pytest.mark.acceptance

AGAIN = [*FIX, FIX[1]]
"""The model asks once more for what could not be applied."""


@pytest.fixture
def disk(cli: Cli, request: pytest.FixtureRequest) -> Path:
    """A folder to mount something on."""
    place = cli.folder / request.node.name
    place.mkdir()
    return place


def test_a_disk_without_room_for_the_database_is_told_and_nothing_is_left(cli: Cli, disk: Path) -> None:
    """Exit 4 and one line, from run and doctor alike; no half cluster, and the repository as it was."""
    repository = cli.repository()
    with apart(cli, small(disk, 20)) as there:
        home = {"DEVFIX_HOME": str(disk), "DEVFIX_DATABASE_URL": ""}
        refused = there("run", repository, "--model", cli.script(FIX), "--yes", **home)
        assert (refused.code, refused.out, refused.err.count("\n")) == (4, "", 1), refused
        assert "the disk is full; free some space and try again" in refused.err
        doctor = there("doctor", "--json", **home)
        assert (doctor.code, doctor.facts["database"]["ok"], doctor.facts["disk"]["ok"]) == (4, False, False)
        assert list(there.path(disk / "postgres").glob("data*")) == []
    _is_as_it_was(repository)


def test_an_approval_outlives_a_full_database(cli: Cli, disk: Path) -> None:
    """Approved while nothing can be saved: exit 4 and the way on; with room again resume applies the patch, once."""
    repository = cli.repository()
    with apart(cli, small(disk, 80)) as there:
        home = {"DEVFIX_HOME": str(disk), "DEVFIX_DATABASE_URL": ""}
        try:
            waiting = there("run", repository, "--model", cli.script(FIX), "--json", **home)
            assert waiting.code == 3, waiting
            _fill(there, disk)
            full = there("approve", "last", **home)
            assert (full.code, full.out) == (4, ""), full
            assert "The database can't be written: its disk is full; what was saved before is kept" in _last(full)
            _is_as_it_was(repository)
            _free(there, disk)
            ended = there("resume", "last", "--yes", "--json", **home)
            assert (ended.code, standing(ended.facts)) == (0, "completed: done"), ended
            assert [each["state"] for each in there("effects", "last", "--json", **home).facts] == ["settled"]
        finally:
            assert there("db", "stop", **home).code == 0
    assert "return a + b" in (repository / "calc.py").read_text()


def test_a_patch_waits_for_room_on_a_full_disk(cli: Cli, disk: Path) -> None:
    """Approved, the run escalates with the reason, the folder as it was; with room, trying again applies it."""
    with apart(cli, small(disk, 1)) as there:
        repository = disk / "repository"
        seen = there.path(repository)
        seen.mkdir()
        (seen / "calc.py").write_text(CALC + "#" * 10_000)
        (seen / "test_calc.py").write_text(TEST)
        assert there("run", repository, "--model", cli.script(AGAIN), "--json").code == 3
        _fill(there, disk)
        _escalates(there, "the disk is full; nothing was changed in your folder")
        assert sorted(each.name for each in seen.iterdir()) == ["calc.py", "test_calc.py"]
        assert (seen / "calc.py").read_text().startswith(CALC)
        _free(there, disk)
        _tried_again(there)
        assert "return a + b" in (seen / "calc.py").read_text()


def test_a_patch_waits_for_a_read_only_repository(cli: Cli) -> None:
    """As on a full disk; and a run is refused at its start where its patch could not be applied."""
    repository = cli.repository()
    with apart(cli) as there:
        assert there("run", repository, "--model", cli.script(AGAIN), "--json").code == 3
        there.mount(read_only(repository))
        _escalates(there, "read-only; nothing was changed in your folder")
        refused = there("run", repository, "--model", cli.script(FIX))
        assert (refused.code, refused.out, refused.err.count("\n")) == (2, "", 1), refused
        assert "is read-only, so no patch could be applied there" in refused.err
        _is_as_it_was(repository)
        there.unmount(repository)
        _tried_again(there)
    assert "return a + b" in (repository / "calc.py").read_text()


def test_a_read_only_home_puts_a_run_down(cli: Cli, tmp_path: Path) -> None:
    """Exit 4 and one line that says where; the answer is kept, and resume goes on once the folder can be written."""
    repository = cli.repository()
    home = {"DEVFIX_HOME": str(tmp_path)}
    with apart(cli) as there:
        assert there("run", repository, "--model", cli.script(FIX), "--json", **home).code == 3
        there.mount(read_only(tmp_path))
        for command in (("approve", "last"), ("resume", "last"), ("run", repository, "--model", cli.script(FIX))):
            stopped = there(*command, **home)
            assert (stopped.code, stopped.out) == (4, ""), stopped
            assert f"DevFix can't write in {tmp_path}" in _last(stopped)
            assert "Traceback" not in stopped.err
        assert there("demo", **home).code == 2
        shown = [each for each in there("runs", "--json", **home).facts if each["status"] == "queued"]
        assert [each["reason"] for each in shown] == ["released", "released"]
        _is_as_it_was(repository)
        there.unmount(tmp_path)
        ended = there("resume", shown[1]["run_id"], "--json", **home)
    assert (ended.code, standing(ended.facts)) == (0, "completed: done"), ended
    assert "return a + b" in (repository / "calc.py").read_text()


def _fill(there: Apart, disk: Path) -> None:
    assert there.shell(f"head -c 200m /dev/zero > {disk}/fill").code != 0


def _free(there: Apart, disk: Path) -> None:
    there.path(disk / "fill").unlink()


def _escalates(there: Apart, why: str) -> None:
    approved = there("approve", "last", "--json")
    assert (approved.code, standing(approved.facts)) == (3, "waiting: escalation"), approved
    assert why in approved.facts["report"]["summary"]
    assert there("effects", "last", "--json").facts == []


def _tried_again(there: Apart) -> None:
    assert standing(there("approve", "last", "--json").facts) == "waiting: approval"
    ended = there("approve", "last", "--json")
    assert (ended.code, standing(ended.facts)) == (0, "completed: done"), ended


def _is_as_it_was(repository: Path) -> None:
    assert sorted(each.name for each in repository.iterdir()) == ["calc.py", "test_calc.py"]
    assert (repository / "calc.py").read_text() == CALC


def _last(ended: Ended) -> str:
    line = ended.err.splitlines()[-1]
    assert line.startswith("devfix: "), ended
    return line
