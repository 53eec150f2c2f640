"""git_push against real bare repositories, by path, by http with a token, and from a hostile repository."""

from __future__ import annotations

import base64
import subprocess
from pathlib import Path
from typing import Any

import pytest

from state.database import Database
from state.errors import EffectRefused
from tests.helpers.outside import Outside
from tests.helpers.sinks.git_http import git_server

ARGS = {"branch": "devfix/work"}


def git(folder: Path, *arguments: str) -> str:
    options = ("-c", "user.name=Ada", "-c", "user.email=ada@example.org", "-c", "init.defaultBranch=main")
    done = subprocess.run(["git", *options, *arguments], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init", "--quiet")
    git(folder, "commit", "--quiet", "--allow-empty", "-m", "first")
    git(folder, "checkout", "--quiet", "-b", "devfix/work")
    git(folder, "commit", "--quiet", "--allow-empty", "-m", "work")
    return folder


@pytest.fixture
def remote(tmp_path: Path) -> Path:
    folder = tmp_path / "remote.git"
    git(tmp_path, "init", "--quiet", "--bare", str(folder))
    return folder


def outside(database: Database, folder: Path, repository: Path, **settings: Any) -> Outside:
    made = Outside(database, folder, **settings)
    made.work = {"repository": str(repository)}
    return made


def refs(remote: Path) -> dict[str, str]:
    lines = git(remote, "for-each-ref", "--format=%(refname) %(objectname)").splitlines()
    return dict(line.split(" ") for line in lines)


async def test_the_approved_commit_is_pushed_with_its_tag(
    database: Database, tmp_path: Path, repository: Path, remote: Path
) -> None:
    """Branch and marker together; done twice, it is one effect; later commits on the branch were not approved."""
    push = outside(database, tmp_path, repository, git_remote=str(remote))
    commit = git(repository, "rev-parse", "devfix/work")
    bound = await push.bound("git_push", **ARGS)
    assert bound == {"remote": str(remote), "branch": "devfix/work", "commit": commit, "repository": str(repository)}
    first, second = [await push.do("git_push", **ARGS) for _ in range(2)]
    assert first.failure is None, first
    assert second.result.facts == first.result.facts
    await push.again("git_push", **ARGS)
    assert refs(remote) == {
        "refs/heads/devfix/work": commit,
        f"refs/tags/devfix/effect-{push.context().key}": commit,
    }


async def test_a_push_that_was_not_confirmed_is_found_by_its_tag(
    database: Database, tmp_path: Path, repository: Path, remote: Path
) -> None:
    """The process died after the push and before the receipt; somebody has built on the branch since."""
    push = outside(database, tmp_path, repository, git_remote=str(remote))
    assert await push.found("git_push", **ARGS) is None
    await push.again("git_push", **ARGS)
    tip = git(
        remote,
        "-c",
        "user.name=Bob",
        "-c",
        "user.email=b@example.org",
        "commit-tree",
        "-p",
        "devfix/work",
        "-m",
        "more",
        "devfix/work^{tree}",
    )
    git(remote, "update-ref", "refs/heads/devfix/work", tip)
    found = await push.found("git_push", **ARGS)
    assert found is not None
    assert found["remote"] == str(remote)
    await push.again("git_push", **ARGS)
    assert refs(remote)["refs/heads/devfix/work"] == tip


async def test_a_branch_that_has_gone_another_way_is_not_overwritten(
    database: Database, tmp_path: Path, repository: Path, remote: Path
) -> None:
    """Refused by the remote, both refs or none: certainly nothing happened."""
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "--quiet", str(remote), str(clone))
    git(clone, "checkout", "--quiet", "-b", "devfix/work")
    git(clone, "commit", "--quiet", "--allow-empty", "-m", "theirs")
    git(clone, "push", "--quiet", "origin", "devfix/work")
    before = refs(remote)
    push = outside(database, tmp_path, repository, git_remote=str(remote))
    performed = await push.do("git_push", **ARGS)
    assert performed.failure == "effect_refused"
    assert "rejected" in performed.result.content
    assert refs(remote) == before
    assert await push.states() == []


async def test_a_hook_of_the_remote_that_refuses_is_certain(
    database: Database, tmp_path: Path, repository: Path, remote: Path
) -> None:
    """Its word is told."""
    hook = remote / "hooks" / "pre-receive"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\necho 'only on fridays' >&2\nexit 1\n")
    hook.chmod(0o755)
    push = outside(database, tmp_path, repository, git_remote=str(remote))
    performed = await push.do("git_push", **ARGS)
    assert performed.failure == "effect_refused"
    assert "pre-receive hook declined" in performed.result.content
    assert refs(remote) == {}


async def test_no_remote_there_is_certain(database: Database, tmp_path: Path, repository: Path) -> None:
    """A path or a host that is not there."""
    push = outside(database, tmp_path, repository, git_remote=str(tmp_path / "nowhere.git"))
    performed = await push.do("git_push", **ARGS)
    assert performed.failure == "effect_refused"
    assert await push.states() == []


async def test_what_is_no_branch_is_refused_before_anybody_is_asked(
    database: Database, tmp_path: Path, repository: Path, remote: Path
) -> None:
    """A branch that is not there, a folder without git, and another branch than the one that was shown."""
    push = outside(database, tmp_path, repository, git_remote=str(remote))
    with pytest.raises(EffectRefused, match="has no branch"):
        await push.bound("git_push", branch="--mirror")
    with pytest.raises(EffectRefused, match="no git repository"):
        await outside(database, tmp_path, tmp_path / "home", git_remote=str(remote)).bound("git_push", **ARGS)
    bound = await push.bound("git_push", **ARGS)
    with pytest.raises(EffectRefused, match="ask again"):
        await push.tools["git_push"].call(branch="main", context=push.context("c", bound))


@pytest.mark.parametrize(
    "url", ["ext::sh -c 'touch {mark}'", "{evil}", "file://{evil}", "./evil.git", "http://127.0.0.1:9/x"]
)
async def test_a_hostile_repository_names_no_place_where_its_code_would_run(
    database: Database, tmp_path: Path, repository: Path, url: str
) -> None:
    """Its own `origin` is taken only by https and ssh; nothing of its settings is obeyed."""
    mark, evil = tmp_path / "mark", tmp_path / "evil.git"
    git(tmp_path, "init", "--quiet", "--bare", str(evil))
    (evil / "hooks").mkdir(exist_ok=True)
    (evil / "hooks" / "pre-receive").write_text(f"#!/bin/sh\ntouch {mark}\n")
    (evil / "hooks" / "pre-receive").chmod(0o755)
    git(repository, "remote", "add", "origin", url.format(mark=mark, evil=evil))
    push = outside(database, tmp_path, repository, git_remote="origin")
    with pytest.raises(EffectRefused):
        await push.do("git_push", **ARGS)
    assert not mark.exists()


async def test_settings_of_a_hostile_repository_are_not_obeyed(
    database: Database, tmp_path: Path, repository: Path, remote: Path
) -> None:
    """Hooks, another remote by insteadOf, ssh commands, credential helpers."""
    mark = tmp_path / "mark"
    (repository / ".git" / "hooks" / "pre-push").write_text(f"#!/bin/sh\ntouch {mark}\n")
    (repository / ".git" / "hooks" / "pre-push").chmod(0o755)
    git(repository, "config", f"url.{tmp_path}/elsewhere.insteadOf", str(remote))
    git(repository, "config", "core.sshCommand", f"touch {mark};")
    git(repository, "config", "credential.helper", f"!touch {mark};")
    push = outside(database, tmp_path, repository, git_remote=str(remote))
    assert (await push.do("git_push", **ARGS)).failure is None
    assert len(refs(remote)) == 2
    assert not mark.exists()


def basic(user: str, word: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{word}".encode()).decode()


async def test_a_token_opens_the_host_that_it_is_for(
    database: Database, tmp_path: Path, repository: Path, remote: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Named by its variable; a wrong one is told in words that do not hold it, in whatever form."""
    git(remote, "config", "http.receivepack", "true")
    with git_server(tmp_path, basic("bot", "right-word")) as server:
        access = {"git_token_env": "GIT_WORD", "git_token_user": "bot", "git_remote": f"{server.url}/remote.git"}
        push = outside(database, tmp_path, repository, **access)
        monkeypatch.setenv("GIT_WORD", "wrong-word")
        refused = await push.do("git_push", **ARGS)
        assert refused.failure == "effect_refused", refused
        for told in ("wrong-word", basic("bot", "wrong-word").split()[1]):
            assert told not in refused.result.content
        assert await push.states() == []
        monkeypatch.setenv("GIT_WORD", "right-word")
        done = await push.do("git_push", **ARGS)
        assert done.failure is None, done
    assert len(refs(remote)) == 2


async def test_a_token_goes_to_no_other_host(
    database: Database, tmp_path: Path, repository: Path, remote: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither by a redirect, nor where another host is pushed to than the one that it is for."""
    monkeypatch.setenv("GIT_WORD", "right-word")
    with git_server(tmp_path) as other, git_server(tmp_path) as server:
        server.elsewhere = other.url
        access = {"git_token_env": "GIT_WORD", "git_token_user": "bot"}
        push = outside(database, tmp_path, repository, git_remote=f"{server.url}/remote.git", **access)
        assert (await push.do("git_push", **ARGS)).failure == "effect_refused"
        assert set(server.authorizations) == {basic("bot", "right-word")}
        assert other.authorizations == []

        elsewhere = other.url.replace("127.0.0.1", "localhost")
        push = outside(
            database, tmp_path, repository, git_remote=f"{elsewhere}/remote.git", git_token_host="127.0.0.1", **access
        )
        await push.again("git_push", **ARGS)
        assert set(other.authorizations) == {""}
