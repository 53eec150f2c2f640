"""Git on the host, where a repository's own settings may be hostile.

A repository that comes from elsewhere can name commands in `.git/config` (hooks, fsmonitor, filters, text
converters, ssh, signing, pagers, editors) which ordinary git commands run. Three rules keep them from running:

- every call has hooks, fsmonitor, prompts, pagers, protocols and signing off, and takes no `GIT_*` variable over;
- work on objects happens in `scratch`: a folder of ours is the git directory, so that the repository's
  settings and attributes are never read, and only its object store is shared;
- in the repository itself only `config --get`, `rev-parse`, `for-each-ref` and `update-ref` are called.

A caller who wants `diff` or `log` in the repository itself breaks the third rule: use the snapshots instead.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from state.errors import GitFailed
from tools.scratch import scratch_folder

_SAFE = (
    "--no-pager",
    "--no-replace-objects",
    "--literal-pathspecs",
    *("-c", "core.hooksPath=/dev/null"),
    *("-c", "core.fsmonitor=false"),
    *("-c", "core.sshCommand=false"),
    *("-c", "core.editor=false"),
    *("-c", "core.attributesFile=/dev/null"),
    *("-c", "credential.helper="),
    *("-c", "protocol.allow=never"),
    *("-c", "commit.gpgSign=false"),
    *("-c", "gc.auto=0"),
    *("-c", "maintenance.auto=false"),
    # The owner check protects from settings that run commands; here none does, and the user named the folder.
    *("-c", "safe.directory=*"),
)

_SAFE_ENVIRONMENT = {
    "GIT_ALLOW_PROTOCOL": "none",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_EDITOR": "false",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_PAGER": "cat",
    "GIT_TERMINAL_PROMPT": "0",
    "LC_ALL": "C",
}


class GitResult(NamedTuple):
    code: int
    output: bytes
    error: str


class Identity(NamedTuple):
    """Who a commit is by."""

    name: str
    email: str


@dataclass(frozen=True)
class GitRepository:
    """Where git keeps what belongs to a folder."""

    folder: Path
    git_dir: Path
    """The folder's own: it differs between linked work trees."""
    common_dir: Path
    """Objects and branches, shared by all work trees."""
    prefix: str
    """Where the folder lies in the work tree: empty, or a path that ends with a slash."""
    object_format: str
    """sha1 or sha256."""

    @property
    def no_object(self) -> str:
        """The id that stands for "does not exist" in `update-ref`."""
        return "0" * (64 if self.object_format == "sha256" else 40)


@dataclass(frozen=True)
class Scratch:
    """A git directory of ours that shares the repository's object store; see `scratch`."""

    root: Path
    environment: Mapping[str, str]

    async def run(
        self, *arguments: str, stdin: bytes = b"", env: Mapping[str, str] | None = None, timeout: float = 60.0
    ) -> bytes:
        """Raises GitFailed where git does."""
        result = await self.try_run(*arguments, stdin=stdin, env=env, timeout=timeout)
        return _output(result, arguments)

    async def try_run(
        self, *arguments: str, stdin: bytes = b"", env: Mapping[str, str] | None = None, timeout: float = 60.0
    ) -> GitResult:
        environment = {**self.environment, **(env or {})}
        return await run_git(*arguments, cwd=self.root, stdin=stdin, env=environment, timeout=timeout)


def git_program() -> str | None:
    """Where git is, from absolute entries of PATH only: a relative one could find the repository's own."""
    return shutil.which("git", path=_absolute_path())


async def run_git(
    *arguments: str,
    cwd: Path,
    stdin: bytes = b"",
    env: Mapping[str, str] | None = None,
    user_settings: bool = False,
    timeout: float = 60.0,
) -> GitResult:
    """Run git with everything off that a repository could have it execute.

    `user_settings` lets the user's own settings in, to be read with `git config`.

    Raises:
        GitFailed: git is missing, or did not end within `timeout` seconds; it and its children are dead then.
    """
    program = await asyncio.to_thread(git_program)
    if program is None:
        raise GitFailed("git is not installed (no `git` on the PATH); nothing was changed")
    process = await asyncio.create_subprocess_exec(
        program,
        *_SAFE,
        *arguments,
        cwd=cwd,
        env={**_environment(user_settings), **(env or {})},
        # No pipe for nothing: uvloop, which the LangGraph server runs on, fails on one whose reader is gone already.
        stdin=asyncio.subprocess.PIPE if stdin else asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(timeout):
            output, error = await process.communicate(stdin or None)
    except TimeoutError as slow:
        raise GitFailed(f"`git {_named(arguments)}` did not end within {timeout:g} s") from slow
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await asyncio.shield(process.wait())
    return GitResult(process.returncode or 0, output, error.decode("utf-8", "backslashreplace").strip())


async def git(*arguments: str, repository: GitRepository, env: Mapping[str, str] | None = None) -> bytes:
    """One of the calls that are allowed in the repository itself. Raises GitFailed where git does."""
    result = await _in_repository(*arguments, repository=repository, env=env)
    return _output(result, arguments)


async def open_repository(folder: Path) -> GitRepository | None:
    """What git knows of the folder; None where it lies in no work tree, or git is missing.

    Raises:
        GitFailed: git did not answer in time.
    """
    if not await asyncio.to_thread(_usable, folder):
        return None
    inside = await run_git("rev-parse", "--is-inside-work-tree", cwd=folder)
    if inside.code != 0 or inside.output.strip() != b"true":
        return None
    # One question a call: the answers are paths, which may hold a line break.
    git_dir = await _ask(folder, "--absolute-git-dir")
    common_dir = await _ask(folder, "--path-format=absolute", "--git-common-dir")
    prefix = await _ask(folder, "--show-prefix")
    object_format = await _ask(folder, "--show-object-format")
    return GitRepository(folder, Path(git_dir), Path(common_dir), prefix, object_format)


async def head(repository: Path) -> str | None:
    """The commit that HEAD names; None in a plain folder, before the first commit, or without git."""
    found = await open_repository(repository)
    if found is None:
        return None
    result = await _in_repository("rev-parse", "--verify", "--quiet", "HEAD", repository=found)
    return result.output.decode().strip() or None if result.code == 0 else None


async def branches(repository: GitRepository) -> dict[str, str]:
    """Full names of the local branches, and the commits that they name."""
    listed = await git("for-each-ref", "--format=%(objectname) %(refname)", "refs/heads/", repository=repository)
    pairs = (line.split(" ", 1) for line in os.fsdecode(listed).splitlines())
    return {name: commit for commit, name in pairs}


async def identity(repository: GitRepository) -> Identity:
    """Who commits here by the user's and the repository's settings; DevFix where they don't say both."""
    values = [
        await _in_repository("config", "--get", name, repository=repository, user_settings=True)
        for name in ("user.name", "user.email")
    ]
    name, email = (each.output.decode("utf-8", "replace").strip() for each in values)
    return Identity(name, email) if name and email else Identity("DevFix", "devfix@localhost")


async def remote_url(repository: GitRepository, name: str) -> str | None:
    """Where the repository's own settings push to under this name. They may be hostile: look at it before use."""
    for key in (f"remote.{name}.pushurl", f"remote.{name}.url"):
        result = await _in_repository("config", "--get", key, repository=repository)
        if result.code == 0 and (url := os.fsdecode(result.output).strip()):
            return url
    return None


@asynccontextmanager
async def scratch(repository: GitRepository) -> AsyncIterator[Scratch]:
    """A git directory of ours, with our settings and no work tree, that reads and writes the repository's objects.

    It has no branches: name commits by their ids. Its index is its own, too. Removed at the end.
    """
    async with _temporary_folder() as root:
        arguments = ("init", "--quiet", "--bare", "--template=", f"--object-format={repository.object_format}")
        _output(await run_git(*arguments, "git", cwd=root), arguments)
        environment = {
            "GIT_DIR": str(root / "git"),
            "GIT_INDEX_FILE": str(root / "index"),
            "GIT_OBJECT_DIRECTORY": str(repository.common_dir / "objects"),
        }
        shallow = repository.common_dir / "shallow"
        if shallow.is_file():
            environment["GIT_SHALLOW_FILE"] = str(shallow)
        yield Scratch(root, environment)


@asynccontextmanager
async def _temporary_folder() -> AsyncIterator[Path]:
    folder = await asyncio.to_thread(scratch_folder, Path(tempfile.gettempdir()), "devfix-git-")
    try:
        yield folder.path
    finally:
        await asyncio.shield(asyncio.to_thread(folder.close))


async def _in_repository(
    *arguments: str,
    repository: GitRepository,
    env: Mapping[str, str] | None = None,
    user_settings: bool = False,
) -> GitResult:
    # With GIT_DIR given, no command looks for work tree, attributes or index by itself.
    environment = {"GIT_DIR": str(repository.git_dir), **(env or {})}
    return await run_git(*arguments, cwd=repository.git_dir, env=environment, user_settings=user_settings)


async def _ask(folder: Path, *question: str) -> str:
    arguments = ("rev-parse", *question)
    answer = _output(await run_git(*arguments, cwd=folder), arguments)
    return os.fsdecode(answer.removesuffix(b"\n"))


def _output(result: GitResult, arguments: tuple[str, ...]) -> bytes:
    if result.code != 0:
        raise GitFailed(f"`git {_named(arguments)}` failed: {result.error or f'exit code {result.code}'}")
    return result.output


def _usable(folder: Path) -> bool:
    return git_program() is not None and folder.is_dir()


def _named(arguments: tuple[str, ...]) -> str:
    """The subcommand, which tells a person more than forty arguments do."""
    return next((each for each in arguments if not each.startswith("-")), "")


def _environment(user_settings: bool) -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("HOME", "XDG_CONFIG_HOME", "TMPDIR") if name in os.environ}
    nobodys = {} if user_settings else {"GIT_CONFIG_GLOBAL": os.devnull}
    return {**kept, "PATH": _absolute_path(), **_SAFE_ENVIRONMENT, **nobodys}


def _absolute_path() -> str:
    entries = os.environ.get("PATH", os.defpath).split(os.pathsep)
    return os.pathsep.join(entry for entry in entries if os.path.isabs(entry))
