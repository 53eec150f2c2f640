"""Folders for a while: what a killed process left is removed, and nothing else."""

from __future__ import annotations

import os
from pathlib import Path

from tools.sandbox import selftest
from tools.scratch import scratch_folder

PREFIX = "devfix-x-"


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_folder_is_there_until_it_is_closed(tmp_path: Path) -> None:
    """Whatever the modes of what lies in it."""
    made = scratch_folder(tmp_path, PREFIX)
    (made.path / "shut").mkdir()
    (made.path / "shut" / "file").touch()
    (made.path / "shut").chmod(0)
    made.close()
    assert names(tmp_path) == []


def test_what_nobody_holds_any_more_is_removed(tmp_path: Path) -> None:
    """A folder that is in use stays, one that has just been made too, and so does what a link leads to."""
    held, left, fresh = (scratch_folder(tmp_path, PREFIX) for _ in range(3))
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    link = tmp_path / f"{PREFIX}link"
    link.symlink_to(theirs)
    for each in (held.path, left.path, link):
        os.utime(each, (0, 0), follow_symlinks=False)
    os.close(left.lock)
    os.close(fresh.lock)
    mode = tmp_path.stat().st_mode
    new = scratch_folder(tmp_path, PREFIX)
    assert names(tmp_path) == sorted(["theirs", *(each.name for each in (held.path, fresh.path, new.path, link))])
    assert tmp_path.stat().st_mode == mode
    for each in (held, new):
        each.close()


def test_what_a_killed_self_test_has_planted_is_removed(tmp_path: Path) -> None:
    """From the user's own folder; what a self-test has planted just now stays."""
    old, new = tmp_path / f"{selftest._PLANTED}old", tmp_path / f"{selftest._PLANTED}new"
    for each in (old, new, tmp_path / "their own"):
        each.touch()
    os.utime(old, (0, 0))
    selftest._sweep(tmp_path)
    assert names(tmp_path) == sorted([new.name, "their own"])
