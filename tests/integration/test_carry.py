"""Carrying changes into a person's folder."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from state.errors import EffectRefused
from tools.carry import FolderChanges, PatchConflict, apply_changes, forget, look, take_back
from tools.journal import Journal
from tools.unified import EXECUTABLE, FILE, LINK, FileChange, Mode, Version


def change(path: str, old: bytes | None, new: bytes | None, *, mode: Mode = FILE) -> FileChange:
    return FileChange(path, None if old is None else Version(mode, old), None if new is None else Version(mode, new))


def content(root: Path) -> dict[str, str | bytes | None]:
    """Every path: a link's target, a file's bytes, None for a folder."""
    found: dict[str, str | bytes | None] = {}
    for path in sorted(root.rglob("*")):
        name = os.fsdecode(path.relative_to(root))
        found[name] = os.readlink(path) if path.is_symlink() else None if path.is_dir() else path.read_bytes()
    return found


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / 'it\'s a "folder"'
    folder.mkdir()
    return folder


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path / "home", "run:call")


@contextmanager
def ordinary_users_folder() -> Iterator[Path]:
    """A folder, and the rights of somebody who is not root."""
    base = Path(tempfile.mkdtemp())
    if os.getuid() == 0:
        os.chown(base, 65534, 65534)
        os.seteuid(65534)
    try:
        yield base
    finally:
        if os.getuid() == 0:
            os.seteuid(0)
        for folder in base.rglob("*"):
            if folder.is_dir():
                folder.chmod(0o755)
        shutil.rmtree(base)


def left_behind(journal: Journal) -> list[str]:
    return [each.name for each in (journal.home / "patches").iterdir()]


ODD = os.fsdecode(b"odd \xff \"name'.bin")


def test_every_kind_of_change(root: Path, journal: Journal) -> None:
    """Modify, add with folders, remove, executable bit, links, CRLF, binary, undecodable names; again is a no-op."""
    (root / "crlf.txt").write_bytes(b"one\r\ntwo\r\n")
    (root / "gone.txt").write_bytes(b"bye")
    (root / "run.sh").write_bytes(b"#!/bin/sh\n")
    (root / "link").symlink_to("crlf.txt")
    (root / ODD).write_bytes(b"\0\1")
    changes = FolderChanges(
        [
            change("crlf.txt", b"one\r\ntwo\r\n", b"one\r\n2\r\n"),
            change("gone.txt", b"bye", None),
            FileChange("run.sh", Version(FILE, b"#!/bin/sh\n"), Version(EXECUTABLE, b"#!/bin/sh\n")),
            change("link", b"crlf.txt", b"/nowhere", mode=LINK),
            change(ODD, b"\0\1", b"\0\2"),
            change("new/deep/file.py", None, b"x = 1\n"),
        ]
    )
    applied = apply_changes(root, changes, journal=journal)
    assert (len(applied.written), applied.already) == (6, [])
    expected = {
        "crlf.txt": b"one\r\n2\r\n",
        "run.sh": b"#!/bin/sh\n",
        "link": "/nowhere",
        ODD: b"\0\2",
        "new": None,
        "new/deep": None,
        "new/deep/file.py": b"x = 1\n",
    }
    assert content(root) == expected
    assert (root / "run.sh").stat().st_mode & 0o111 == 0o111
    again = apply_changes(root, changes, journal=journal)
    assert (again.written, len(again.already)) == ([], 6)
    assert left_behind(journal) == []


def test_permissions_of_the_person_stay(root: Path, journal: Journal) -> None:
    """A file's own permissions survive its new content, and are no conflict."""
    (root / "secret.py").write_bytes(b"a")
    (root / "secret.py").chmod(0o640)
    apply_changes(root, FolderChanges([change("secret.py", b"a", b"b", mode=EXECUTABLE)]), journal=journal)
    assert (root / "secret.py").read_bytes() == b"b"
    assert (root / "secret.py").stat().st_mode & 0o777 == 0o640


def test_files_and_folders_take_each_others_places(root: Path, journal: Journal) -> None:
    """A file becomes a package, a package a file, a link a folder."""
    (root / "module").write_bytes(b"m")
    (root / "package" / "sub").mkdir(parents=True)
    (root / "package" / "sub" / "a.py").write_bytes(b"a")
    (root / "alias").symlink_to("package")
    changes = FolderChanges(
        [
            change("alias", b"package", None, mode=LINK),
            change("alias/b.py", None, b"b"),
            change("module", b"m", None),
            change("module/__init__.py", None, b"m"),
            change("package", None, b"p"),
            change("package/sub/a.py", b"a", None),
        ],
        added_folders=["alias", "module"],
        removed_folders=["package", "package/sub"],
    )
    apply_changes(root, changes, journal=journal)
    assert content(root) == {
        "alias": None,
        "alias/b.py": b"b",
        "module": None,
        "module/__init__.py": b"m",
        "package": b"p",
    }


def test_any_conflict_means_that_nothing_is_written(root: Path, journal: Journal) -> None:
    """Each path that somebody changed is named with what happened to it; the others are untouched."""
    for name in ("fine.py", "edited.py", "gone.py"):
        (root / name).write_bytes(b"base")
    (root / "edited.py").write_bytes(b"mine")
    (root / "gone.py").unlink()
    (root / "surprise.py").write_bytes(b"here already")
    before = content(root)
    changes = FolderChanges(
        [change(name, b"base", b"new") for name in ("fine.py", "edited.py", "gone.py")]
        + [change("surprise.py", None, b"new")]
    )
    with pytest.raises(PatchConflict, match=r"edited\.py, gone\.py, surprise\.py") as refused:
        apply_changes(root, changes, journal=journal)
    assert [(each.change.path, each.why) for each in refused.value.conflicts] == [
        ("edited.py", "its content is another now"),
        ("gone.py", "it is gone"),
        ("surprise.py", "its content is another now"),
    ]
    assert content(root) == before


def test_a_folder_with_something_of_its_own_is_not_replaced(root: Path, journal: Journal) -> None:
    """A file takes a folder's place only where the patch removes all that is in there."""
    (root / "package").mkdir()
    (root / "package" / "a.py").write_bytes(b"a")
    (root / "package" / "notes.txt").write_bytes(b"mine")
    changes = FolderChanges(
        [change("package", None, b"p"), change("package/a.py", b"a", None)], removed_folders=["package"]
    )
    with pytest.raises(PatchConflict, match="package"):
        apply_changes(root, changes, journal=journal)
    assert (root / "package" / "a.py").exists()


@pytest.mark.parametrize("where", ["folder", "file"])
def test_no_link_leads_outside(root: Path, tmp_path: Path, journal: Journal, where: str) -> None:
    """A folder or a file that was swapped for a link out of the tree is a conflict; its target stays as it was."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "a.py").write_bytes(b"base")
    if where == "folder":
        (root / "src").symlink_to(outside)
    else:
        (root / "src").mkdir()
        (root / "src" / "a.py").symlink_to(outside / "a.py")
    with pytest.raises(PatchConflict):
        apply_changes(root, FolderChanges([change("src/a.py", b"base", b"new")]), journal=journal)
    with pytest.raises(PatchConflict if where == "folder" else EffectRefused):
        apply_changes(
            root,
            FolderChanges([change("src/a.py", b"base", b"new"), change("src/b.py", None, b"new")]),
            journal=journal,
        )
    assert content(outside) == {"a.py": b"base"}


@pytest.mark.parametrize("what", ["src/a.py", "src"])
def test_read_only_is_refused_before_anything_is_written(what: str) -> None:
    """Whoever may not write is told so first; root may, and its copy of a read-only tree is repaired."""
    with ordinary_users_folder() as base:
        root, journal = base / "root", Journal(base / "home", "run:call")
        (root / "src").mkdir(parents=True)
        (root / "first.py").write_bytes(b"base")
        (root / "src" / "a.py").write_bytes(b"base")
        (root / what).chmod(0o555)
        _refuses(root, journal, what)


def _refuses(root: Path, journal: Journal, what: str) -> None:
    changes = FolderChanges([change("first.py", b"base", b"new"), change("src/a.py", b"base", b"new")])
    with pytest.raises(EffectRefused, match=f"{what} is read-only"):
        apply_changes(root, changes, journal=journal)
    assert (root / "first.py").read_bytes() == b"base"
    assert left_behind(journal) == []


def test_a_folder_that_moved_away(root: Path, journal: Journal) -> None:
    """One sentence, and no folder is made in its place."""
    root.rename(root.with_name("elsewhere"))
    with pytest.raises(EffectRefused, match="No such file or directory"):
        apply_changes(root, FolderChanges([change("a", None, b"x")]), journal=journal)
    assert not root.exists()


SCRIPT = """
import os, pickle, resource, signal, sys
from tools import carry, folder
plan = pickle.loads(sys.stdin.buffer.read())
if plan["limit"]:
    resource.setrlimit(resource.RLIMIT_FSIZE, (plan["limit"], plan["limit"]))
steps = 0
def counting(call):
    def counted(*args, **kwargs):
        global steps
        steps += 1
        if steps == plan["die_at"]:
            os.kill(os.getpid(), signal.SIGKILL)
        if steps == plan["fail_at"]:
            raise OSError(5, "Input/output error")
        return call(*args, **kwargs)
    return counted
for name in ("open", "rename", "unlink", "mkdir", "rmdir"):
    setattr(os, name, counting(getattr(os, name)))
try:
    carry.apply_changes(plan["root"], plan["changes"], journal=plan["journal"])
except carry.EffectRefused as refused:
    print(refused)
"""


def in_a_process(
    root: Path, changes: FolderChanges, journal: Journal, *, die_at: int = 0, fail_at: int = 0, limit: int = 0
) -> subprocess.CompletedProcess[bytes]:
    import pickle

    plan = {"root": root, "changes": changes, "journal": journal, "die_at": die_at, "fail_at": fail_at, "limit": limit}
    return subprocess.run(
        [sys.executable, "-c", SCRIPT], input=pickle.dumps(plan), capture_output=True, check=False, cwd=Path.cwd()
    )


def test_a_full_disk_leaves_nothing_half_written(root: Path, journal: Journal) -> None:
    """The second file doesn't fit: the first has its old content, and no temporary file stays."""
    (root / "a.py").write_bytes(b"base")
    changes = FolderChanges([change("a.py", b"base", b"new"), change("b/big.bin", None, b"x" * 100_000)])
    finished = in_a_process(root, changes, journal, limit=50_000)
    assert finished.returncode == 0
    assert b"nothing was changed in your folder" in finished.stdout
    assert content(root) == {"a.py": b"base"}
    assert left_behind(journal) == []


def crash_plan() -> FolderChanges:
    files = [change(f"src/m{n}.py", b"base %d" % n, b"new %d" % n) for n in range(3)]
    return FolderChanges(
        [*files, change("old/gone.py", b"gone", None), change("fresh/a.py", None, b"a")],
        added_folders=["fresh"],
        removed_folders=["old"],
    )


def crash_folder(root: Path) -> None:
    for folder in ("src", "old"):
        (root / folder).mkdir(parents=True)
    for n in range(3):
        (root / "src" / f"m{n}.py").write_bytes(b"base %d" % n)
    (root / "old" / "gone.py").write_bytes(b"gone")


DONE = {
    "fresh": None,
    "fresh/a.py": b"a",
    "src": None,
    **{f"src/m{n}.py": b"new %d" % n for n in range(3)},
}


def kill_points() -> list[int]:
    """Spread over the writing; the plan makes some 68 calls that are counted, and looks only in the first 20."""
    return [*range(22, 69, 3)]


@pytest.mark.parametrize("die_at", kill_points())
def test_killed_anywhere_and_performed_again(tmp_path: Path, journal: Journal, die_at: int) -> None:
    """SIGKILL at any moment: each path is old or new, a further call completes it, nothing else stays behind."""
    root = tmp_path / "repository"
    crash_folder(root)
    before = content(root)
    finished = in_a_process(root, crash_plan(), journal, die_at=die_at)
    assert finished.returncode in (-signal.SIGKILL, 0), finished.stderr
    standing = look(root, crash_plan(), journal=journal)
    assert "conflict" not in standing.values()
    if finished.returncode == 0:
        assert set(standing.values()) == {"done"}
    apply_changes(root, crash_plan(), journal=journal)
    assert content(root) == DONE
    assert left_behind(journal) == []
    assert before != DONE


def test_a_disk_that_fails_once_half_way(tmp_path: Path, journal: Journal) -> None:
    """Whatever single call of the system fails, the folder ends as it was, or with the patch; never in between."""
    for fail_at in range(21, 75, 3):
        root = tmp_path / f"repository{fail_at}"
        crash_folder(root)
        before = content(root)
        finished = in_a_process(root, crash_plan(), journal, fail_at=fail_at)
        assert finished.returncode == 0, finished.stderr
        if finished.stdout:
            assert b"Input/output error; nothing was changed in your folder" in finished.stdout
            assert content(root) == before
        else:
            assert set(look(root, crash_plan(), journal=journal).values()) == {"done"}
        assert not [name for name in content(root) if ".devfix-" in name]


def test_a_crash_half_way_and_a_conflict_after_it(tmp_path: Path, journal: Journal) -> None:
    """When somebody edits a file between the crash and the next try, what the first try wrote is put back; a patch that
    was complete stays."""
    for die_at in kill_points():
        root = tmp_path / f"repository{die_at}"
        crash_folder(root)
        in_a_process(root, crash_plan(), journal, die_at=die_at)
        complete = journal.read() is None and content(root) == DONE
        (root / "src" / "m1.py").write_bytes(b"mine")
        if complete:  # it died with nothing left to do
            continue
        with pytest.raises(PatchConflict, match=r"src/m1\.py"):
            apply_changes(root, crash_plan(), journal=journal)
        assert content(root) == {
            "old": None,
            "old/gone.py": b"gone",
            "src": None,
            "src/m0.py": b"base 0",
            "src/m1.py": b"mine",
            "src/m2.py": b"base 2",
        }
        assert left_behind(journal) == []


def test_a_crash_half_way_and_a_run_that_is_given_up(tmp_path: Path, journal: Journal) -> None:
    """What was written is taken back, and nothing else stays; a complete patch is left alone."""
    killed = 0
    for die_at in kill_points():
        root = tmp_path / f"repository{die_at}"
        crash_folder(root)
        before = content(root)
        finished = in_a_process(root, crash_plan(), journal, die_at=die_at)
        complete = set(look(root, crash_plan(), journal=journal).values()) == {"done"}
        take_back(root, crash_plan(), journal=journal)
        after = content(root)
        if complete:
            after.pop("old", None)  # between the last file and its folder: all is done but that an empty one stays
        assert after == (DONE if complete else before)
        assert left_behind(journal) == []
        killed += finished.returncode != 0
    assert killed > len(kill_points()) / 2


HOLD = """
import pickle, sys
from pathlib import Path
plan = pickle.loads(sys.stdin.buffer.read())
for _ in range(100):
    with plan["journal"].held(plan["root"]):
        count = int(Path(plan["count"]).read_text())
        Path(plan["count"]).write_text(str(count + 1))
"""


def test_the_lock_holds_for_many_and_nothing_of_it_stays(root: Path, tmp_path: Path, journal: Journal) -> None:
    """Each holder removes the file that the others wait for: never do two hold the folder at once."""
    import pickle

    count = tmp_path / "count"
    count.write_text("0")
    plan = pickle.dumps({"root": root, "journal": journal, "count": count})
    processes = [
        subprocess.Popen([sys.executable, "-c", HOLD], stdin=subprocess.PIPE, cwd=Path.cwd()) for _ in range(3)
    ]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write(plan)
        process.stdin.close()
    assert [process.wait() for process in processes] == [0, 0, 0]
    assert count.read_text() == "300"
    assert not list((journal.home / "patches").iterdir())


def test_leftovers_of_a_complete_application_are_cleared(root: Path, journal: Journal) -> None:
    """A crash after the last rename leaves the journal; `forget` takes it away."""
    crash_folder(root)
    for die_at in range(75, 50, -1):
        finished = in_a_process(root, crash_plan(), journal, die_at=die_at)
        if finished.returncode != 0:
            break
        (root / "fresh" / "a.py").unlink()
    forget(root, journal)
    assert left_behind(journal) == []
    assert not [name for name in content(root) if ".devfix-" in name]
