"""The sample repository of `devfix demo`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.sample_repository import copy_sample
from state.errors import Refused
from tools.git import head


def run_tests(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:asyncio"]
    environment = {"PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_the_sample_has_one_defect_that_shows_elsewhere(tmp_path: Path) -> None:
    """Three tests of two modules fail; the tests of the module at fault all pass."""
    finished = run_tests(copy_sample(tmp_path / "demo"))
    failed = sorted(line.split()[1] for line in finished.stdout.splitlines() if line.startswith("FAILED"))
    assert failed == [
        "tests/test_invoice.py::test_solar_panels_for_the_first_customer_of_the_year",
        "tests/test_invoice.py::test_work_delivered_on_new_years_day",
        "tests/test_statement.py::test_tax_of_the_third_quarter",
    ]
    assert "26 passed" in finished.stdout


async def test_each_copy_is_the_same_commit(tmp_path: Path) -> None:
    """A run on the sample starts from the same commit on every machine, whoever copies it."""
    first = await head(copy_sample(tmp_path / "first"))
    second = await head(copy_sample(tmp_path / "second"))
    assert first is not None
    assert first == second


def test_a_folder_in_use_is_left_alone(tmp_path: Path) -> None:
    """Somebody's files are never mixed with the sample's."""
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(Refused, match="not empty"):
        copy_sample(tmp_path)
    assert [each.name for each in tmp_path.iterdir()] == ["mine.txt"]
