"""The one gated effect of the repair job: what is bound is what is done, once, or nothing."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, cast

import pytest

from state.errors import BadRepository, EffectRefused, Refused
from state.settings import Settings
from state.snapshots import Snapshots
from tests.helpers.memory_stores import MemoryArtifacts
from tools.git import git_program, head
from tools.patch import apply_patch_to_repository, check_patch_options, take_back, unified_diff
from tools.registry import ToolContext, ToolResult
from tools.workspace import Workspace

needs_git = pytest.mark.skipif(git_program() is None, reason="git is not installed")

BEFORE = {
    "src/rates.py": b"def rate(day):\n    return 19\n",
    "data.bin": b"\0\1\2",
    "README": b"hello\r\n",
    "old.py": b"x\n",
}
AFTER: dict[str, bytes | None] = {
    "src/rates.py": b"def rate(day):\n    return 16\n",
    "data.bin": b"\0\1\2\3",
    "old.py": None,
    "src/new module.py": b"y = 1\n",
}


class Desk:
    """A repository, a workspace with changes, and all that a call needs; in memory but for the files."""

    def __init__(self, tmp_path: Path, **work: Any) -> None:
        self.repository = tmp_path / "a person's repository"
        self.copy = tmp_path / "workspace"
        self.home = tmp_path / "home"
        self.artifacts = MemoryArtifacts()
        self.snapshots = Snapshots(artifacts=self.artifacts)
        self.work: dict[str, Any] = {"repository": str(self.repository), "commit": False, "patch_out": None, **work}
        self.snapshot: str | None = None
        for root in (self.repository, self.copy):
            write(root, BEFORE)

    async def edit(self, files: Mapping[str, bytes | None] = AFTER) -> Desk:
        self.work["base"] = await self.snapshots.take(self.repository)
        self.work["head"] = await head(self.repository)
        write(self.copy, files)
        self.snapshot = await self.snapshots.take(self.copy)
        return self

    def context(self, bound: Mapping[str, Any] | None = None) -> ToolContext:
        return ToolContext(
            run_id="0192aaaa-bbbb",
            call_id="call_1",
            key="5f3c",
            bound=bound or {},
            work=self.work,
            snapshot=self.snapshot,
            workspace=Workspace(root=self.copy, repository=self.repository),
            sandbox=cast("Any", None),
            artifacts=self.artifacts,
            snapshots=self.snapshots,
            settings=Settings(home=self.home),
        )

    async def bound(self) -> dict[str, Any]:
        bind = apply_patch_to_repository.bind
        assert bind is not None
        return dict(await bind({"summary": "s"}, self.context()))

    async def apply(self, bound: Mapping[str, Any], summary: str = "Use the rate of the day") -> ToolResult:
        call = cast("Callable[..., Awaitable[ToolResult]]", apply_patch_to_repository.call)
        return await call(summary=summary, context=self.context(bound))

    async def verify(self, bound: Mapping[str, Any]) -> Mapping[str, Any] | None:
        verify = apply_patch_to_repository.verify
        assert verify is not None
        return await verify({"summary": "s"}, self.context(bound))


def write(root: Path, files: Mapping[str, bytes | None]) -> None:
    for name, data in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if data is None:
            path.unlink()
        else:
            path.write_bytes(data)


def files(root: Path) -> dict[str, bytes]:
    paths = [path for path in root.rglob("*") if path.is_file() and ".git" not in path.parts]
    return {str(path.relative_to(root)): path.read_bytes() for path in paths}


EXPECTED = {name: data for name, data in {**BEFORE, **AFTER}.items() if data is not None}


def sh(folder: Path, *arguments: str) -> str:
    return run(folder, "git", "-c", "user.name=Ada", "-c", "user.email=ada@example.org", *arguments)


def run(folder: Path, *command: str) -> str:
    environment = {"PATH": os.environ["PATH"], "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def commit_all(folder: Path) -> None:
    sh(folder, "init", "-q", "-b", "main")
    sh(folder, "add", "-A")
    sh(folder, "commit", "-q", "-m", "start")


def test_the_model_gives_a_summary_and_nothing_else() -> None:
    """What is applied, where and how is not the model's to say; a person is asked."""
    parameters = apply_patch_to_repository.schema["function"]["parameters"]
    assert list(parameters["properties"]) == ["summary"]
    assert apply_patch_to_repository.gated


async def test_what_was_bound_is_applied_once(tmp_path: Path) -> None:
    """Nothing is touched before; all of it is there afterwards; a second call and verify say the same."""
    desk = await Desk(tmp_path).edit()
    bound = await desk.bound()
    assert files(desk.repository) == BEFORE
    assert await desk.verify(bound) is None
    assert bound["paths"] == ["data.bin", "old.py", "src/new module.py", "src/rates.py"]
    assert bound["mode"] == "files"
    assert "-    return 19\n+    return 16\n" in bound["diff"]
    assert json.loads(json.dumps(bound)) == bound

    result = await desk.apply(bound)
    assert files(desk.repository) == EXPECTED
    assert result.content == f"The patch was applied to 4 files in {desk.repository}."
    assert await desk.verify(bound) == result.facts
    assert (await desk.apply(bound)).facts == result.facts
    assert not list((desk.home / "patches").glob("*.json"))


async def test_the_workspaces_later_content_has_no_part_in_it(tmp_path: Path) -> None:
    """What was approved is applied, whatever the workspace holds by then."""
    desk = await Desk(tmp_path).edit()
    bound = await desk.bound()
    write(desk.copy, {"src/rates.py": b"something else\n"})
    desk.snapshot = await desk.snapshots.take(desk.copy)
    await desk.apply(bound)
    assert files(desk.repository) == EXPECTED


async def test_the_same_question_is_bound_alike(tmp_path: Path) -> None:
    """Asked again, in whatever process, the arguments have the same digest."""
    desk = await Desk(tmp_path).edit()
    assert await desk.bound() == await desk.bound()


async def test_a_long_diff_is_kept_as_an_artifact(tmp_path: Path) -> None:
    """Beyond 32 KB the question carries its digest."""
    desk = await Desk(tmp_path).edit({"big.py": b"".join(b"line %d\n" % n for n in range(5_000))})
    bound = await desk.bound()
    assert bound["diff"] is None
    assert b"+line 4999\n" in await desk.artifacts.get(bound["diff_artifact"])


async def test_undecodable_text_is_shown_and_applied_exactly(tmp_path: Path) -> None:
    """Latin-1 content reads as escapes in the question, and arrives byte for byte."""
    desk = await Desk(tmp_path).edit({"README": b"gr\xfc\xdfe\r\n"})
    bound = await desk.bound()
    assert "+gr\\xfc\\xdfe\r\n" in bound["diff"]
    await desk.apply(bound)
    assert files(desk.repository)["README"] == b"gr\xfc\xdfe\r\n"


async def test_nothing_to_apply_is_said(tmp_path: Path) -> None:
    """A question about nothing is not asked."""
    desk = await Desk(tmp_path).edit({})
    with pytest.raises(EffectRefused, match="nothing to apply"):
        await desk.bound()


async def test_no_patch_reaches_into_a_git_folder(tmp_path: Path) -> None:
    """A nested repository's hooks would run at the person's next git command."""
    desk = Desk(tmp_path)
    write(desk.repository, {"vendor/.git/HEAD": b"ref: refs/heads/main\n"})
    write(desk.copy, {"vendor/.git/HEAD": b"ref: refs/heads/main\n"})
    await desk.edit({"vendor/.git/hooks/post-checkout": b"#!/bin/sh\n", "README": b"x\n"})
    if "vendor/.git/hooks/post-checkout" not in (await desk.snapshots.manifest(desk.snapshot or "")).entries:
        pytest.skip("snapshots leave nested git folders out")
    with pytest.raises(EffectRefused, match="inside a git folder"):
        await desk.bound()


async def test_what_is_no_longer_covered_is_not_taken_for_removed(tmp_path: Path) -> None:
    """A file that has become what no snapshot keeps is neither deleted nor silently left out."""
    desk = await Desk(tmp_path).edit({"README": b"x\n"})
    write(desk.repository, {"cert.pem": b"public\n"})
    write(desk.copy, {"cert.pem": b"-----BEGIN PRIVATE KEY-----\n"})
    desk.work["base"] = await desk.snapshots.take(desk.repository)
    desk.snapshot = await desk.snapshots.take(desk.copy)
    with pytest.raises(EffectRefused, match=r"cert\.pem was changed, but can't be in a patch"):
        await desk.bound()
    assert "cert.pem" not in await unified_diff(desk.snapshots, desk.work["base"], desk.snapshot)


async def test_a_conflict_writes_nothing_and_keeps_the_patch(tmp_path: Path) -> None:
    """B-kind: somebody edited the same file meanwhile. Both sides are shown, and the patch can be had."""
    desk = await Desk(tmp_path).edit()
    bound = await desk.bound()
    write(desk.repository, {"src/rates.py": b"def rate(day):\n    return 7\n"})
    before = files(desk.repository)
    with pytest.raises(EffectRefused) as refused:
        await desk.apply(bound)
    text = str(refused.value)
    assert text.startswith("changed in your folder since the run began: src/rates.py; nothing was written")
    assert "+    return 7" in text
    assert "+    return 16" in text
    assert "devfix show 0192aaaa" in text
    assert files(desk.repository) == before
    assert await desk.verify(bound) is None


async def test_a_folder_that_moved_away(tmp_path: Path) -> None:
    """Refused in one sentence; verify does not fail over it."""
    desk = await Desk(tmp_path).edit()
    bound = await desk.bound()
    desk.repository.rename(tmp_path / "elsewhere")
    with pytest.raises(EffectRefused, match="No such file or directory"):
        await desk.apply(bound)
    assert await desk.verify(bound) is None


@needs_git
async def test_the_patch_in_a_file_applies_with_git(tmp_path: Path) -> None:
    """`--patch-out`: the folder stays as it is, and `git apply` brings everything, binary files included."""
    out = tmp_path / "fix.patch"
    desk = await Desk(tmp_path, patch_out=str(out)).edit()
    bound = await desk.bound()
    assert await desk.verify(bound) is None
    result = await desk.apply(bound)
    assert files(desk.repository) == BEFORE
    assert result.facts["patch_file"] == str(out)
    assert await desk.verify(bound) == result.facts
    sh(desk.repository, "apply", str(out))
    assert files(desk.repository) == EXPECTED
    sh(desk.repository, "apply", "-R", str(out))
    assert files(desk.repository) == BEFORE


async def test_the_patch_in_a_file_applies_with_patch(tmp_path: Path) -> None:
    """Text needs nothing but `patch -p1`."""
    if shutil.which("patch") is None:
        pytest.skip("patch is not installed")
    out = tmp_path / "fix.patch"
    text = {name: data for name, data in AFTER.items() if name != "data.bin"}
    desk = await Desk(tmp_path, patch_out=str(out)).edit(text)
    await desk.apply(await desk.bound())
    run(desk.repository, "patch", "-p1", "-s", "-i", str(out))
    assert files(desk.repository) == {**EXPECTED, "data.bin": BEFORE["data.bin"]}


async def test_a_patch_file_that_cannot_be_written(tmp_path: Path) -> None:
    """One sentence, and no half file."""
    folder = tmp_path / "out"
    folder.mkdir()
    desk = await Desk(tmp_path, patch_out=str(folder / "fix.patch")).edit()
    bound = await desk.bound()
    folder.rmdir()
    with pytest.raises(EffectRefused, match="can't be written"):
        await desk.apply(bound)


@needs_git
async def test_a_commit_and_a_patch_file_together(tmp_path: Path) -> None:
    """`--commit` and `--patch-out`: the folder, its index and its branch stay as they are."""
    out = tmp_path / "fix.patch"
    desk = Desk(tmp_path, commit=True, patch_out=str(out))
    commit_all(desk.repository)
    await desk.edit()
    bound = await desk.bound()
    assert bound["mode"] == "commit+patch_out"
    assert bound["head"] == sh(desk.repository, "rev-parse", "HEAD").strip()
    result = await desk.apply(bound, "Use the rate of the day")
    assert files(desk.repository) == BEFORE
    assert sh(desk.repository, "status", "--porcelain") == ""
    assert result.facts["branch"] == "devfix/0192aaaa"
    assert sh(desk.repository, "log", "-1", "--format=%s", "devfix/0192aaaa") == "Use the rate of the day\n"
    changed = sh(desk.repository, "diff", "--name-only", "main", "devfix/0192aaaa").splitlines()
    assert changed == ["data.bin", "old.py", "src/new module.py", "src/rates.py"]
    assert await desk.verify(bound) == result.facts
    assert (await desk.apply(bound)).facts == result.facts
    out.unlink()
    assert await desk.verify(bound) is None


@needs_git
async def test_a_commit_that_does_not_fit_is_refused_before_the_question(tmp_path: Path) -> None:
    """A file that is in no commit can't be patched in one; the person is not asked about what can't be done."""
    desk = Desk(tmp_path, commit=True)
    sh(desk.repository, "init", "-q")
    sh(desk.repository, "add", "README")
    sh(desk.repository, "commit", "-q", "-m", "start")
    await desk.edit({"src/rates.py": b"new\n"})
    with pytest.raises(EffectRefused, match=r"src/rates\.py \(it is not in the commit\)"):
        await desk.bound()


async def test_options_are_checked_before_any_work(tmp_path: Path) -> None:
    """Plain folders and empty repositories can't have a commit; a patch file needs a folder."""
    with pytest.raises(BadRepository, match="--commit needs a git repository"):
        await check_patch_options(tmp_path, commit=True, patch_out=None)
    with pytest.raises(Refused, match="does not exist"):
        await check_patch_options(tmp_path, commit=False, patch_out=str(tmp_path / "missing" / "fix.patch"))
    with pytest.raises(Refused, match="no regular file"):
        await check_patch_options(tmp_path, commit=False, patch_out=str(tmp_path))
    with pytest.raises(Refused, match="absolute"):
        await check_patch_options(tmp_path, commit=False, patch_out="fix.patch")
    await check_patch_options(tmp_path, commit=False, patch_out=str(tmp_path / "fix.patch"))


@needs_git
async def test_a_first_commit_is_needed(tmp_path: Path) -> None:
    sh(tmp_path, "init", "-q")
    with pytest.raises(BadRepository, match="first commit"):
        await check_patch_options(tmp_path, commit=True, patch_out=None)


async def test_the_difference_of_two_snapshots_reads_like_gits(tmp_path: Path) -> None:
    """Executable bits and links are shown as git shows them."""
    desk = await Desk(tmp_path).edit({})
    (desk.copy / "old.py").chmod(0o755)
    (desk.copy / "link").symlink_to("README")
    assert await unified_diff(desk.snapshots, desk.work["base"], await desk.snapshots.take(desk.copy)) == (
        "diff --git a/link b/link\nnew file mode 120000\nindex 0000000000..100b93820a\n"
        "--- /dev/null\n+++ b/link\n@@ -0,0 +1 @@\n+README\n\\ No newline at end of file\n"
        "diff --git a/old.py b/old.py\nold mode 100644\nnew mode 100755\n"
    )


CHILD = """
import asyncio, os, signal, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from tests.integration.test_patch import Desk
real, count = os.rename, 0
def rename(*args, **kwargs):
    global count
    count += 1
    if count == int(sys.argv[3]):
        os.kill(os.getpid(), signal.SIGKILL)
    return real(*args, **kwargs)
async def main():
    desk = await Desk(Path(sys.argv[2])).edit()
    bound = await desk.bound()
    os.rename = rename
    await desk.apply(bound)
asyncio.run(main())
"""


@pytest.mark.parametrize("die_at", [1, 2, 3])
async def test_killed_in_the_middle_and_performed_by_another_process(tmp_path: Path, die_at: int) -> None:
    """After SIGKILL verify says that it is not done, and the next process completes it."""
    command = [sys.executable, "-c", CHILD, str(Path.cwd()), str(tmp_path), str(die_at)]
    child = await asyncio.create_subprocess_exec(*command)
    assert await child.wait() == -signal.SIGKILL
    desk = Desk(tmp_path / "second")
    await desk.edit()
    bound = {**await desk.bound(), "repository": str(tmp_path / "a person's repository")}
    desk.home = tmp_path / "home"
    assert await desk.verify(bound) is None
    await desk.apply(bound)
    assert files(tmp_path / "a person's repository") == EXPECTED
    assert not list((desk.home / "patches").glob("*.json"))
    assert not await take_back(desk.context(bound))
    assert files(tmp_path / "a person's repository") == EXPECTED


async def test_killed_in_the_middle_and_given_up(tmp_path: Path) -> None:
    """A run that ends without completing it takes back what was written."""
    command = [sys.executable, "-c", CHILD, str(Path.cwd()), str(tmp_path), "2"]
    child = await asyncio.create_subprocess_exec(*command)
    assert await child.wait() == -signal.SIGKILL
    root = tmp_path / "a person's repository"
    assert files(root) != BEFORE
    desk = Desk(tmp_path / "second")
    await desk.edit()
    bound = {**await desk.bound(), "repository": str(root)}
    desk.home = tmp_path / "home"
    assert await take_back(desk.context(bound))
    assert files(root) == BEFORE
