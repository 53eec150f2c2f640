"""The arithmetic of the figures: what is measured is what is said."""

from __future__ import annotations

import zlib
from pathlib import Path

import pytest

from scripts.bench import repair, step, storage
from scripts.bench.loop import Text
from scripts.bench.machine import Machine
from scripts.bench.spread import Spread, in_pairs, percentile, ratio

MACHINE = Machine(
    cores=2, memory_gb=1, python="3.11", system="Linux", load=0, postgresql="18", fsync="on", synchronous_commit="on"
)


def test_a_spread_is_median_and_percentiles() -> None:
    """Of 1 to 101: the middle, the sixth, the ninety-sixth; one measurement is all three."""
    assert Spread.of(list(range(101, 0, -1))) == Spread(median=51, p5=6, p95=96, count=101)
    assert Spread.of([7.0]) == Spread(median=7, p5=7, p95=7, count=1)
    assert percentile([0, 10], 0.25) == 2.5
    with pytest.raises(ValueError, match="nothing was measured"):
        Spread.of([])


def test_turns_go_to_and_fro() -> None:
    """A B B A: each is as often first as second."""
    assert in_pairs(4) == [True, False, False, True, True, False, False, True]
    assert sum(in_pairs(5)) == 5


def test_the_steps_ratio_is_ours_by_the_peers() -> None:
    """Of the medians of all steps; and of each pair of neighbouring runs."""
    runs = [[3, 3, 3], [2, 2, 2], [4, 4, 4], [4, 4, 4]]
    found = step.figures(MACHINE, runs, in_pairs(2), runs[0], steps=4, size=10)
    assert (found.ours_ms.median, found.peer_ms.median) == (3.5, 3.0)
    assert found.ratio == ratio(3.5, 3.0) == 1.167
    assert found.ratio_of_pairs.count == 2


def stored(saver: str, steps: int, size: int) -> storage.Stored:
    return storage.Stored(
        saver=saver,
        steps=steps,
        snapshot_every=1,
        raw_bytes=steps,
        stored_bytes=size,
        stored_to_raw=ratio(size, steps),
        tables={},
        trace_bytes=0,
        load_ms=Spread.of([1]),
    )


def test_storage_is_compared_at_the_same_number_of_steps() -> None:
    """The most that both have; where they share none, by each one's own raw bytes."""
    mine = [stored("a", 400, 800), stored("a", 4000, 9000)]
    assert storage.compared(mine, [stored("b", 400, 1600), stored("b", 2000, 1)]) == 0.5
    assert storage.compared(mine, [stored("b", 100, 400)]) == 0.5


def test_the_text_is_the_same_each_time_and_hard_to_compress() -> None:
    """So many letters, never the same twice in a row; deflate saves no more than letters always give away."""
    first, again = Text(2048), Text(2048)
    text = first.next()
    assert text == again.next()
    assert text != first.next()
    assert len(text) == 2048
    assert len(zlib.compress(text.encode(), 9)) > 0.5 * len(text)


def test_the_repaired_are_counted_against_all() -> None:
    """A repository that was not completed counts in the total."""
    fields = {"repository": "r", "standing": "", "seconds": 1, "steps": 1, "candidates": 0, "summary": ""}
    done = [repair.Repaired.model_validate({**fields, "completed": completed}) for completed in (True, True, False)]
    found = repair.figures(MACHINE, repair.Task(), done)
    assert (found.completed, found.total, found.ratio) == (2, 3, 0.667)


def test_repositories_are_the_folders_by_name(tmp_path: Path) -> None:
    """Only folders count, hidden ones do not, and the order is that of the names."""
    for name in ("b", "a", ".hidden", "__pycache__"):
        (tmp_path / name).mkdir()
    (tmp_path / "file").touch()
    assert [each.name for each in repair.repositories_in(tmp_path)] == ["a", "b"]
