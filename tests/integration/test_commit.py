"""A commit beside a person's work, and git on the host in a hostile repository."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from state.errors import EffectRefused, GitFailed
from tools.commit import Commit, CommitMessage, check_commit, find_commit, make_commit
from tools.git import GitRepository, git_program, head, identity, open_repository, run_git
from tools.unified import EXECUTABLE, FILE, LINK, FileChange, Version

pytestmark = pytest.mark.skipif(git_program() is None, reason="git is not installed")

MESSAGE = CommitMessage("Use the rate of the first day", "0192aaaa-bbbb", "0192aaaa-bbbb:call_1")
ENVIRONMENT = {
    "PATH": os.environ["PATH"],
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    **{f"GIT_{role}_NAME": "Ada" for role in ("AUTHOR", "COMMITTER")},
    **{f"GIT_{role}_EMAIL": "ada@example.org" for role in ("AUTHOR", "COMMITTER")},
}


def sh(folder: Path, *arguments: str, check: bool = True) -> str:
    """Plain git, as a person would use it."""
    done = subprocess.run(["git", *arguments], cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert not check or done.returncode == 0, done.stderr
    return done.stdout


def make_repository(folder: Path, files: dict[str, bytes], *options: str) -> Path:
    folder.mkdir(parents=True)
    sh(folder, "init", "-q", "-b", "main", *options)
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    sh(folder, "add", "-A")
    sh(folder, "commit", "-q", "-m", "start")
    return folder


async def opened(folder: Path) -> GitRepository:
    found = await open_repository(folder)
    assert found is not None
    return found


async def commit_of(folder: Path, *changes: FileChange, message: CommitMessage = MESSAGE) -> Commit:
    parent = await head(folder)
    assert parent is not None
    return await make_commit(await opened(folder), parent=parent, changes=changes, message=message)


def modified(path: str, old: bytes, new: bytes) -> FileChange:
    return FileChange(path, Version(FILE, old), Version(FILE, new))


def persons_side(folder: Path) -> tuple[str, ...]:
    """All that must not change: HEAD, branch, index, status, and the index file itself."""
    index = (folder / ".git" / "index").read_bytes().hex()
    return (
        sh(folder, "rev-parse", "HEAD", "main"),
        sh(folder, "symbolic-ref", "HEAD"),
        sh(folder, "ls-files", "--stage"),
        index,
        "".join(sorted(str(path) for path in folder.rglob("*") if ".git" not in path.parts)),
    )


async def test_the_commit_holds_the_patch_and_nothing_of_the_persons_side_changes(tmp_path: Path) -> None:
    """Every kind of change is in the commit; files, index, HEAD and branch stay as they are."""
    root = make_repository(
        tmp_path / "a b", {"a.py": b"1\n", "gone.py": b"x\n", "run.sh": b"#!\n", "sub/b.py": b"b\r\n"}
    )
    (root / "untracked.txt").write_text("mine")
    before = persons_side(root)
    made = await commit_of(
        root,
        modified("a.py", b"1\n", b"2\n"),
        FileChange("gone.py", Version(FILE, b"x\n"), None),
        FileChange("gone.py/now/folder.py", None, Version(FILE, b"n\n")),
        FileChange("run.sh", Version(FILE, b"#!\n"), Version(EXECUTABLE, b"#!\n")),
        FileChange(os.fsdecode(b"odd \xff'\".bin"), None, Version(FILE, b"\0\1")),
        FileChange("link", None, Version(LINK, b"a.py")),
        modified("sub/b.py", b"b\r\n", b"c\r\n"),
    )
    assert made.branch == "devfix/0192aaaa"
    listed = sh(root, "-c", "core.quotePath=true", "ls-tree", "-r", made.branch)
    assert [line.split("\t")[1] for line in listed.splitlines()] == [
        "a.py", "gone.py/now/folder.py", "link", r'"odd \377' + "'" + r'\".bin"', "run.sh", "sub/b.py",
    ]  # fmt: skip
    assert "100755 blob" in sh(root, "ls-tree", made.branch, "run.sh")
    assert "120000 blob" in sh(root, "ls-tree", made.branch, "link")
    assert sh(root, "show", f"{made.branch}:a.py") == "2\n"
    assert sh(root, "rev-parse", f"{made.branch}^") == sh(root, "rev-parse", "main")
    assert persons_side(root) == before
    sh(root, "fsck", "--strict")


async def test_made_again_it_is_the_same_commit(tmp_path: Path) -> None:
    """The key finds it, also when the branch was renamed or has moved on; without it the id is the same again."""
    root = make_repository(tmp_path / "r", {"a.py": b"1\n"})
    change = modified("a.py", b"1\n", b"2\n")
    first = await commit_of(root, change)
    assert await commit_of(root, change) == first
    sh(root, "branch", "-m", first.branch, "mine")
    assert await commit_of(root, change) == Commit(first.commit, "mine")
    sh(root, "branch", "-D", "mine")
    repository = await opened(root)
    parent = await head(root)
    assert parent is not None
    assert await find_commit(repository, parent=parent, key=MESSAGE.key) is None
    assert await commit_of(root, change) == first
    assert sh(root, "branch", "--list").split() == ["devfix/0192aaaa", "*", "main"]


async def test_another_effect_gets_a_branch_of_its_own(tmp_path: Path) -> None:
    """A name in use gets a suffix; a key is not taken for one that it begins with."""
    root = make_repository(tmp_path / "r", {"a.py": b"1\n"})
    await commit_of(root, modified("a.py", b"1\n", b"2\n"), message=MESSAGE._replace(key="k:10"))
    second = await commit_of(root, modified("a.py", b"1\n", b"3\n"), message=MESSAGE._replace(key="k:1"))
    assert second.branch == "devfix/0192aaaa-2"


async def test_a_branch_called_devfix_is_in_nobodys_way(tmp_path: Path) -> None:
    """`devfix/…` can't exist beside `devfix`."""
    root = make_repository(tmp_path / "r", {"a.py": b"1\n"})
    sh(root, "branch", "devfix")
    assert (await commit_of(root, modified("a.py", b"1\n", b"2\n"))).branch == "devfix-0192aaaa"


async def test_a_summary_adds_no_trailer(tmp_path: Path) -> None:
    """The model's summary is one line, whatever it holds."""
    root = make_repository(tmp_path / "r", {"a.py": b"1\n"})
    summary = "Fix\n\nDevFix-Effect: other\x1b[2K \ud800"
    made = await commit_of(root, modified("a.py", b"1\n", b"2\n"), message=MESSAGE._replace(subject=summary))
    lines = sh(root, "log", "-1", "--format=%B", made.commit).splitlines()
    assert lines[0] == "Fix DevFix-Effect: other [2K"
    assert lines[2:4] == [f"DevFix-Run: {MESSAGE.run_id}", f"DevFix-Effect: {MESSAGE.key}"]
    parent = await head(root)
    assert await find_commit(await opened(root), parent=parent or "", key="other") is None


async def test_a_patch_on_uncommitted_changes_is_merged_into_the_commit(tmp_path: Path) -> None:
    """Other lines of a changed file merge; the person's own uncommitted lines stay out of the commit."""
    committed = b"".join(b"line %d\n" % n for n in range(20))
    root = make_repository(tmp_path / "r", {"a.py": committed})
    in_folder = committed.replace(b"line 1\n", b"mine\n")
    made = await commit_of(root, modified("a.py", in_folder, in_folder.replace(b"line 15\n", b"fixed\n")))
    assert sh(root, "show", f"{made.commit}:a.py").encode() == committed.replace(b"line 15\n", b"fixed\n")


async def test_a_patch_that_does_not_fit_the_commit_is_refused(tmp_path: Path) -> None:
    """The same lines, untracked files, submodules: each named with its reason; nothing is made, nothing written."""
    root = make_repository(tmp_path / "r", {"a.py": b"1\n"})
    make_repository(root / "vendor", {"lib.py": b"l\n"})
    sh(root, "add", "vendor")
    sh(root, "commit", "-q", "-m", "vendor")
    changes = [
        modified("a.py", b"mine\n", b"fixed\n"),
        modified("new.py", b"untracked\n", b"fixed\n"),
        modified("vendor/lib.py", b"l\n", b"fixed\n"),
    ]
    objects = sh(root, "count-objects")
    parent = await head(root)
    assert parent is not None
    with pytest.raises(EffectRefused) as refused:
        await commit_of(root, *changes)
    with pytest.raises(EffectRefused):
        await check_commit(await opened(root), parent=parent, changes=changes)
    text = str(refused.value)
    assert "a.py (the same lines differ from the commit's)" in text
    assert "new.py (it is not in the commit)" in text
    assert "vendor/lib.py (it lies in a submodule" in text
    assert sh(root, "branch", "--list").split() == ["*", "main"]
    assert sh(root, "count-objects") == objects


async def test_line_ends_of_the_checkout_stay_out_of_the_commit(tmp_path: Path) -> None:
    """Where the checkout turned LF into CRLF, the commit's LF is kept."""
    root = make_repository(tmp_path / "r", {"a.bat": b"one\ntwo\n"})
    made = await commit_of(root, modified("a.bat", b"one\r\ntwo\r\n", b"one\r\n2\r\n"))
    assert sh(root, "cat-file", "blob", f"{made.commit}:a.bat").encode() == b"one\n2\n"


async def test_a_folder_inside_a_repository_a_linked_work_tree_and_a_shallow_clone(tmp_path: Path) -> None:
    """The commit has the folder's place in the repository; HEAD is the work tree's own."""
    root = make_repository(tmp_path / "r", {"packages/api/a.py": b"1\n", "b.py": b"b\n"})
    made = await commit_of(root / "packages" / "api", modified("a.py", b"1\n", b"2\n"))
    assert sh(root, "show", f"{made.commit}:packages/api/a.py") == "2\n"

    sh(root, "worktree", "add", "-q", "-b", "other", str(tmp_path / "linked"))
    (tmp_path / "linked" / "b.py").write_bytes(b"on other\n")
    sh(tmp_path / "linked", "commit", "-q", "-am", "other")
    linked = await commit_of(
        tmp_path / "linked", modified("b.py", b"on other\n", b"c\n"), message=MESSAGE._replace(key="linked")
    )
    assert sh(root, "rev-parse", f"{linked.commit}^") == sh(root, "rev-parse", "other")

    sh(tmp_path, "clone", "-q", "--depth=1", f"file://{tmp_path / 'linked'}", "shallow")
    shallow = await commit_of(tmp_path / "shallow", modified("b.py", b"on other\n", b"d\n"))
    assert await commit_of(tmp_path / "shallow", modified("b.py", b"on other\n", b"d\n")) == shallow


async def test_sha256_repositories(tmp_path: Path) -> None:
    """Objects are written in the repository's own format."""
    root = make_repository(tmp_path / "r", {"a.py": b"1\n"}, "--object-format=sha256")
    assert len((await commit_of(root, modified("a.py", b"1\n", b"2\n"))).commit) == 64


async def test_who_commits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The person by their own settings, else DevFix; never by variables that were meant for another call."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.setenv("GIT_AUTHOR_NAME", "Somebody")
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    root = make_repository(tmp_path / "r", {"a.py": b"1\n"})
    assert (await identity(await opened(root))).name == "DevFix"
    (tmp_path / ".gitconfig").write_text("[user]\n\tname = Ada\n\temail = ada@example.org\n")
    made = await commit_of(root, modified("a.py", b"1\n", b"2\n"))
    assert sh(root, "log", "-1", "--format=%an <%ae> %cn", made.commit) == "Ada <ada@example.org> Ada\n"


async def test_head_of_what_is_no_repository(tmp_path: Path) -> None:
    """A plain folder, a missing one, one without a commit: None, not an error."""
    assert await head(tmp_path) is None
    assert await head(tmp_path / "missing") is None
    sh(tmp_path, "init", "-q")
    assert await head(tmp_path) is None


async def test_git_that_hangs_is_ended(tmp_path: Path) -> None:
    """A limit in seconds, one sentence, and no process is left."""
    sh(tmp_path, "init", "-q")
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(GitFailed, match=r"did not end within 0\.5 s"):
        await run_git("hash-object", "--no-filters", "pipe", cwd=tmp_path, timeout=0.5)


HOOKS = (
    "reference-transaction", "pre-commit", "commit-msg", "post-commit", "post-index-change", "post-checkout",
    "pre-auto-gc", "post-rewrite", "update",
)  # fmt: skip


def plant(root: Path, traps: Path) -> None:
    """Commands in every place from which git takes one; each leaves a file with its name."""

    def trap(name: str) -> str:
        script = traps / f"{name}.sh"
        script.write_text(f"#!/bin/sh\ntouch '{traps}/sprung-{name}'\nexit 0\n")
        script.chmod(0o755)
        return str(script)

    for hook in HOOKS:
        for folder in (root / ".git" / "hooks", root / "own-hooks"):
            folder.mkdir(exist_ok=True)
            (folder / hook).unlink(missing_ok=True)
            (folder / hook).symlink_to(trap(f"hook-{hook}"))
    settings = {
        "core.hooksPath": str(root / "own-hooks"),
        "core.fsmonitor": trap("fsmonitor"),
        "core.sshCommand": trap("ssh"),
        "core.pager": trap("pager"),
        "core.editor": trap("editor"),
        "core.askPass": trap("askpass"),
        "core.alternateRefsCommand": trap("alternates"),
        "core.gitProxy": trap("proxy"),
        "credential.helper": trap("credential"),
        "commit.gpgSign": "true",
        "gpg.program": trap("gpg"),
        "log.showSignature": "true",
        "filter.evil.clean": trap("clean"),
        "filter.evil.smudge": trap("smudge"),
        "filter.evil.process": trap("process"),
        "filter.evil.required": "false",
        "diff.external": trap("diff"),
        "diff.evil.textconv": trap("textconv"),
        "diff.evil.command": trap("diff-driver"),
        "merge.evil.driver": trap("merge-driver"),
        "merge.default": "evil",
        "alias.rev-parse": f"!{trap('alias')}",
        "pager.config": "true",
        "extensions.partialClone": "origin",
        "remote.origin.url": f"ext::{trap('remote')}",
        "remote.origin.promisor": "true",
        "remote.origin.uploadpack": trap("uploadpack"),
        "protocol.ext.allow": "always",
        "safe.bareRepository": "all",
    }
    sh(root, "config", "core.repositoryFormatVersion", "1")
    lines = "".join(
        f'[{section}]\n\t{name} = "{value}"\n' for key, value in settings.items() for section, name in [_section(key)]
    )
    with (root / ".git" / "config").open("a") as file:
        file.write(lines)
    (root / ".gitattributes").write_text("* filter=evil diff=evil merge=evil\n")
    (root / ".git" / "info").mkdir(exist_ok=True)
    (root / ".git" / "info" / "attributes").write_text("* filter=evil diff=evil merge=evil\n")


def _section(key: str) -> tuple[str, str]:
    first, *middle, last = key.split(".")
    return (f'{first} "{".".join(middle)}"' if middle else first), last


def sprung(traps: Path) -> list[str]:
    return sorted(each.name for each in traps.glob("sprung-*"))


async def test_a_hostile_repository_runs_nothing(tmp_path: Path) -> None:
    """Commands planted in hooks, settings and attributes never run, missing objects of a promised remote included."""
    traps = tmp_path / "traps"
    traps.mkdir()
    text = b"".join(b"line %d\n" % n for n in range(20))
    root = make_repository(tmp_path / "r", {"a.py": text, "lost.py": b"lost\n"})
    lost = sh(root, "rev-parse", "HEAD:lost.py").strip()
    plant(root, traps)
    (root / ".git" / "objects" / lost[:2] / lost[2:]).unlink()
    assert sprung(traps) == []

    dirty = text.replace(b"line 1\n", b"mine\n")
    change = modified("a.py", dirty, dirty.replace(b"line 15\n", b"fixed\n"))
    made = await commit_of(root, change)
    assert await commit_of(root, change) == made
    with pytest.raises(GitFailed):
        await commit_of(root, modified("lost.py", b"other\n", b"x\n"), message=MESSAGE._replace(key="lost"))
    assert sprung(traps) == []

    # The traps do work: plain git, as used without these precautions, springs some of them.
    (root / "a.py").write_bytes(b"other\n")
    sh(root, "add", "a.py", check=False)
    sh(root, "cat-file", "-p", lost, check=False)
    sh(root, "branch", "x", check=False)
    assert {"sprung-fsmonitor", "sprung-process", "sprung-hook-reference-transaction", "sprung-remote"} <= set(
        sprung(traps)
    )


async def test_a_git_of_the_repositorys_own_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A relative entry of PATH could find a program in the folder that is worked on."""
    (tmp_path / "git").write_text("#!/bin/sh\ntouch sprung\n")
    (tmp_path / "git").chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f".:{os.environ['PATH']}")
    assert await head(tmp_path) is None
    assert not (tmp_path / "sprung").exists()


async def test_a_detached_head_without_branches(tmp_path: Path) -> None:
    """A checkout as build servers make it: no branch at all, and still one of our own."""
    root = make_repository(tmp_path / "r", {"a.py": b"1\n"})
    sh(root, "checkout", "-q", "--detach")
    sh(root, "branch", "-D", "main")
    made = await commit_of(root, modified("a.py", b"1\n", b"2\n"))
    assert made.branch == "devfix/0192aaaa"
    assert await commit_of(root, modified("a.py", b"1\n", b"2\n")) == made
