"""The workspace's files are reached from the host without ever leaving the workspace."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from tools.workspace import Workspace, WorkspaceError


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    root = tmp_path / "workspace"
    root.mkdir()
    (tmp_path / "secret").write_text("secret")
    return Workspace(root, tmp_path / "repository")


@pytest.mark.parametrize(
    "path", ["", ".", "/etc/passwd", "../secret", "a/../../secret", "a\0b", "a/", "missing", "\ud800", "x" * 300]
)
def test_a_bad_path_is_one_clear_sentence(workspace: Workspace, path: str) -> None:
    """No path raises anything but WorkspaceError."""
    with pytest.raises(WorkspaceError) as caught:
        workspace.read(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("target", ["/etc/passwd", "../secret", "folder/../../secret", "loop"])
def test_a_link_out_of_the_workspace_is_not_followed(workspace: Workspace, target: str) -> None:
    """Neither to read nor to write; what it points to stays as it is."""
    (workspace.root / "folder").mkdir()
    (workspace.root / "loop").symlink_to("loop")
    (workspace.root / "link").symlink_to(target)
    for attempt in (lambda: workspace.read("link"), lambda: workspace.write("link", b"x")):
        with pytest.raises(WorkspaceError):
            attempt()
    assert (workspace.root.parent / "secret").read_text() == "secret"


def test_a_folder_that_is_a_link_out_is_not_entered(workspace: Workspace) -> None:
    """`files` does not list what is behind it, `read` and `write` refuse it."""
    (workspace.root / "out").symlink_to(workspace.root.parent)
    for attempt in (lambda: workspace.read("out/secret"), lambda: workspace.write("out/new/file", b"x")):
        with pytest.raises(WorkspaceError):
            attempt()
    assert list(workspace.files()) == []
    assert not (workspace.root.parent / "new").exists()


def test_a_link_inside_the_workspace_is_followed(workspace: Workspace) -> None:
    """Repositories have such links; a write goes to what the link names, and the link stays."""
    (workspace.root / "a").mkdir()
    (workspace.root / "b").mkdir()
    (workspace.root / "a" / "real").write_text("old")
    (workspace.root / "b" / "link").symlink_to("../a/real")
    assert workspace.read("b/link") == b"old"
    assert workspace.resolve("b/link") == "a/real"
    workspace.write("b/link", b"new")
    assert (workspace.root / "b" / "link").is_symlink()
    assert workspace.read("a/real") == b"new"


def test_a_write_keeps_the_mode_and_makes_folders(workspace: Workspace) -> None:
    """And leaves no temporary file."""
    (workspace.root / "run.sh").write_text("old")
    (workspace.root / "run.sh").chmod(0o750)
    workspace.write("run.sh", b"new")
    workspace.write("new/folder/file.py", b"x")
    assert stat.S_IMODE((workspace.root / "run.sh").stat().st_mode) == 0o750
    assert list(workspace.files()) == ["new/folder/file.py", "run.sh"]


def test_dot_git_is_never_written(workspace: Workspace) -> None:
    """Not by name, not in a nested repository, not through a link."""
    (workspace.root / "sub" / ".git").mkdir(parents=True)
    (workspace.root / "innocent").symlink_to("sub/.git")
    for path in (".git/config", "sub/.git/hooks/pre-commit", "innocent/config", ".git"):
        with pytest.raises(WorkspaceError, match=r"\.git"):
            workspace.write(path, b"x")
    assert list((workspace.root / "sub" / ".git").iterdir()) == []


def test_pipes_devices_and_folders_are_refused(workspace: Workspace) -> None:
    """Opening a pipe must not wait for a writer."""
    os.mkfifo(workspace.root / "pipe")
    (workspace.root / "folder").mkdir()
    for path in ("pipe", "folder"):
        with pytest.raises(WorkspaceError):
            workspace.read(path)
        with pytest.raises(WorkspaceError):
            workspace.write(path, b"x")
    assert [entry.kind for entry in workspace.entries()] == ["other"]


def test_undecodable_and_odd_names_survive(workspace: Workspace) -> None:
    """Bytes that are no text come and go as surrogates."""
    for name in (b"caf\xe9.py", b"sp ace 'quote\".py", b"new\nline"):
        Path(os.fsdecode(os.fsencode(workspace.root) + b"/" + name)).write_bytes(b"x")
    names = list(workspace.files())
    assert os.fsdecode(b"caf\xe9.py") in names
    for name in names:
        workspace.write(name, b"y")
        assert workspace.read(name) == b"y"


def test_a_huge_file_is_refused_not_loaded(workspace: Workspace) -> None:
    """A 200 MB file costs nothing."""
    with (workspace.root / "huge").open("wb") as file:
        file.truncate(200 * 1024 * 1024)
    with pytest.raises(WorkspaceError, match="209,715,200 bytes"):
        workspace.read("huge")


def test_dependency_folders_and_caches_are_not_listed(workspace: Workspace) -> None:
    """The list says what it leaves out; files come in the order of their paths."""
    for path in ("b.py", "a/z.py", "a.py", ".venv/x.py", ".git/config", "a/__pycache__/z.pyc", "sub/venv/kept.py"):
        (workspace.root / path).parent.mkdir(parents=True, exist_ok=True)
        (workspace.root / path).write_text("x")
    assert list(workspace.files()) == ["a.py", "a/z.py", "b.py", "sub/venv/kept.py"]
    assert workspace.folders_left_out() == [".git", ".venv"]
