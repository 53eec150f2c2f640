"""git_push: a branch of the user's repository, with the commit that it had when the person was asked.

The branch and a marker tag named after the effect's key are pushed together or not at all, so that the remote can be
asked. The promise: exactly once; pushing the same commit again changes nothing, and the tag says whose push it was.

The repository may be hostile: its settings, hooks and attributes are not read (see `tools.git`). Where the user named
one of its remotes instead of a URL, only https and ssh are taken, since a path could lead to a repository whose hooks
would run here; and the token goes to the host that the user's settings name, and to no other.
"""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from pydantic import JsonValue

from state.errors import EffectRefused, GitFailed, NotReached, Unanswered
from tools.git import GitRepository, GitResult, branches, open_repository, remote_url, scratch
from tools.outward.secrets import hidden, secret
from tools.outward.settling import found_within
from tools.registry import Found, Tool, ToolContext, ToolResult, tool

if TYPE_CHECKING:
    from state.settings import Settings

_PASSED_ON = (
    *("GIT_SSL_CAINFO", "SSH_AUTH_SOCK"),
    *("ALL_PROXY", "HTTPS_PROXY", "NO_PROXY", "all_proxy", "https_proxy", "http_proxy", "no_proxy"),
)
_SSH = "ssh -oBatchMode=yes -oConnectTimeout=10"
_LOOPBACK = {"localhost", "127.0.0.1", "::1"}
_TOLD = 600


def git_tool(settings: Settings) -> Tool | None:
    """None where no remote is set up."""
    if settings.git_remote is None:
        return None
    return tool(kind="effect", timeout=300.0 + settings.outward_settle_seconds, verify=_verify, bind=_bind)(git_push)


async def git_push(branch: str, *, context: ToolContext) -> ToolResult:
    """Push a branch of the user's repository to the remote that they have set up.

    Exactly once: the remote is asked for the tag that goes with it.
    """
    bound = context.bound
    if branch != bound["branch"]:
        raise EffectRefused(f"the push was asked for {bound['branch']}, not for {branch}; ask again with that branch")
    repository = await _repository(context)
    remote = _Remote.at(str(bound["remote"]), context.settings)
    receipt = _receipt(context)
    if not await _asked(remote, repository, context):
        await _push(remote, repository, str(bound["commit"]), f"refs/heads/{branch}", _tag(context))
    return ToolResult(content=f"Pushed {branch} ({str(bound['commit'])[:10]}) to {remote.url}.", facts=receipt)


async def _bind(arguments: Mapping[str, Any], context: ToolContext) -> Mapping[str, JsonValue]:
    """Where to, and which commit. Raises EffectRefused."""
    repository, branch = await _repository(context), str(arguments.get("branch"))
    commit = (await branches(repository)).get(f"refs/heads/{branch}")
    if commit is None:
        raise EffectRefused(f"{repository.folder} has no branch {branch}; nothing was pushed")
    remote = _Remote.at(await _remote_url(repository, context.settings), context.settings)
    return {"remote": remote.url, "branch": branch, "commit": commit, "repository": str(repository.folder)}


async def _verify(arguments: Mapping[str, Any], context: ToolContext) -> Found:
    """Raises GitFailed or Unanswered where the remote can't be asked."""
    repository = await _repository(context)
    remote = _Remote.at(str(context.bound["remote"]), context.settings)

    async def look() -> Found:
        return _receipt(context) if await _has_tag(remote, repository, _tag(context)) else None

    return await found_within(context.settings.outward_settle_seconds, look)


class _Remote(NamedTuple):
    """Where to push, and with what."""

    url: str
    protocol: str
    token: str | None
    user: str

    @classmethod
    def at(cls, url: str, settings: Settings) -> _Remote:
        """Raises EffectRefused for a URL that is not pushed to."""
        protocol = _protocol(url)
        host = _host(url) if protocol in {"http", "https"} else None
        wanted = settings.git_token_host or (None if _is_name(settings.git_remote) else _host(str(settings.git_remote)))
        token = None
        if settings.git_token_env and host is not None and host == wanted:
            if protocol == "http" and host not in _LOOPBACK:
                raise EffectRefused(f"the token for {host} is not sent without TLS; nothing was pushed")
            token = secret(settings.git_token_env)
        return cls(url, protocol, token, settings.git_token_user)

    @property
    def environment(self) -> dict[str, str]:
        passed_on = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
        settings = {"http.followRedirects": "false"}
        if self.token is not None:
            parts = urlsplit(self.url)
            settings[f"http.{parts.scheme}://{parts.netloc}/.extraHeader"] = f"Authorization: Basic {self._basic}"
        # Not as arguments, which every user of the machine can read.
        numbered = {
            name: value
            for number, (key, setting) in enumerate(settings.items())
            for name, value in ((f"GIT_CONFIG_KEY_{number}", key), (f"GIT_CONFIG_VALUE_{number}", setting))
        }
        allowed = {"GIT_ALLOW_PROTOCOL": self.protocol, "GIT_SSH_COMMAND": _SSH}
        return {**passed_on, **numbered, **allowed, "GIT_CONFIG_COUNT": str(len(settings))}

    def told(self, result: GitResult) -> str:
        text = result.error or f"git ended with {result.code}"
        return hidden(text, [self.token or "", self._basic])[-_TOLD:]

    @property
    def _basic(self) -> str:
        return base64.b64encode(f"{self.user}:{self.token}".encode()).decode() if self.token else ""


def _is_name(remote: str | None) -> bool:
    """Whether the setting names a remote of the repository, rather than a place."""
    return remote is not None and re.fullmatch(r"[A-Za-z0-9_.-]+", remote) is not None


def _protocol(url: str) -> str:
    if "://" in url:
        protocol = url.partition("://")[0].lower()
    elif re.match(r"[^/:]+:(?!:)", url):
        protocol = "ssh"
    else:
        protocol = "file"
    if protocol not in {"http", "https", "ssh", "file"} or "::" in url.partition("/")[0]:
        raise EffectRefused("the remote is reached in a way that DevFix does not push by; use https, ssh or a path")
    return protocol


def _host(url: str) -> str | None:
    return urlsplit(url).hostname


async def _remote_url(repository: GitRepository, settings: Settings) -> str:
    if not _is_name(settings.git_remote):
        return str(settings.git_remote)
    url = await remote_url(repository, str(settings.git_remote))
    if url is None:
        raise EffectRefused(f"{repository.folder} has no remote {settings.git_remote}; nothing was pushed")
    if _protocol(url) not in {"https", "ssh"}:
        raise EffectRefused(
            f"the remote {settings.git_remote} of {repository.folder} is neither https nor ssh; to push to a path, set "
            "it in git_remote; nothing was pushed"
        )
    if "://" in url and urlsplit(url).password is not None:
        raise EffectRefused(
            f"the remote {settings.git_remote} of {repository.folder} has a password in its URL; name a variable in "
            "git_token_env instead; nothing was pushed"
        )
    return url


async def _repository(context: ToolContext) -> GitRepository:
    folder = Path(str(context.work.get("repository") or context.bound.get("repository") or ""))
    found = await open_repository(folder)
    if found is None:
        raise EffectRefused(f"{folder} is no git repository, or git is missing; nothing was pushed")
    return found


def _tag(context: ToolContext) -> str:
    return f"refs/tags/devfix/effect-{context.key}"


def _receipt(context: ToolContext) -> dict[str, JsonValue]:
    return {name: context.bound[name] for name in ("remote", "branch", "commit")} | {"tag": _tag(context)}


async def _asked(remote: _Remote, repository: GitRepository, context: ToolContext) -> bool:
    """Whether it is there already. Raises NotReached: nothing has been pushed yet, so nothing happened."""
    try:
        return await _has_tag(remote, repository, _tag(context))
    except GitFailed as error:
        raise NotReached(f"{error}; nothing was pushed") from None


async def _has_tag(remote: _Remote, repository: GitRepository, tag: str) -> bool:
    async with scratch(repository) as work:
        result = await work.try_run("ls-remote", "--refs", "--", remote.url, tag, env=remote.environment)
    if result.code != 0:
        raise GitFailed(f"{remote.url} can't be asked: {remote.told(result)}")
    return bool(result.output.strip())


async def _push(remote: _Remote, repository: GitRepository, commit: str, branch: str, tag: str) -> None:
    options = ("--porcelain", "--atomic", "--no-verify", "--no-signed", "--no-follow-tags", "--recurse-submodules=no")
    refs = (f"{commit}:{branch}", f"{commit}:{tag}")
    async with scratch(repository) as work:
        result = await work.try_run("push", *options, "--", remote.url, *refs, env=remote.environment, timeout=240.0)
    if result.code == 0:
        return
    lines = result.output.decode("utf-8", "backslashreplace").splitlines()
    refused = [line for line in lines if line.startswith("!")]
    if refused and not any("[remote failure]" in line for line in refused):
        why = "; ".join(" ".join(line[1:].split()) for line in refused)
        raise EffectRefused(f"{remote.url} refused the push: {why}; nothing was pushed")
    raise Unanswered(f"the push to {remote.url} did not end well: {remote.told(result)}")
