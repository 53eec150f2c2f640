"""What a sandbox promises: the limits of a command, what came of it, and the two ways to run one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from tools.workspace import Workspace

NOTHING: Mapping[str, str] = MappingProxyType({})
NO_MOUNTS: Mapping[Path, Path] = MappingProxyType({})


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What one command may use."""

    timeout: float
    """Seconds of wall time; the whole process tree is dead within a second of it."""
    output_bytes: int = 200_000
    """What is kept of the output: the head and the tail."""
    memory_mb: int = 4096
    """Of each process's own data, and of all processes together (watched)."""
    processes: int = 256
    file_mb: int = 256
    """One file."""
    disk_mb: int = 1024
    """What the view may grow by (watched), and the size of the private /tmp."""


@dataclass(frozen=True, kw_only=True)
class Completed:
    """What came of a command."""

    exit_code: int | None
    """128 + n for death by signal n, 127 for a command that does not exist, None when it was stopped."""
    output: str
    """stdout and stderr as they came, undecodable bytes replaced."""
    timed_out: bool
    truncated: bool
    """Whether the middle of the output was left out."""
    duration: float
    """Seconds."""
    reason: str | None
    """Why it was stopped or could not start, in one sentence; None when it ended by itself."""


class ProcessEnded(Exception):
    """The long-lived child has ended, was stopped at a limit, or closed its side; the message says which."""


class SandboxProcess(ABC):
    """A long-lived child that is spoken to in lines."""

    @abstractmethod
    async def write_line(self, line: bytes) -> None:
        """Send one line; the newline is added. Raises ProcessEnded."""

    @abstractmethod
    async def read_line(self, timeout: float) -> bytes:
        """The next line of stdout without its newline. Raises TimeoutError, ProcessEnded."""

    @property
    @abstractmethod
    def output(self) -> str:
        """What it wrote to stderr so far, capped head and tail."""

    @property
    @abstractmethod
    def reason(self) -> str | None:
        """Why it was stopped, in one sentence, or None."""


class Sandbox(ABC):
    """Runs the user's code apart from the user's machine."""

    level: ClassVar[int]
    """3 bubblewrap; 1 limits only, which a person has to ask for."""
    description: str
    """How, in a few words that a person reads on the approval."""
    allow_network: bool

    @abstractmethod
    async def run(
        self,
        command: Sequence[str],
        *,
        workspace: Workspace,
        limits: Limits,
        env: Mapping[str, str] = NOTHING,
        stdin: bytes = b"",
        keep: bool = False,
        mounts: Mapping[Path, Path] = NO_MOUNTS,
    ) -> Completed:
        """Run one command to its end in the workspace's folder, with a clean environment and `env`.

        `keep=False` runs on a throw-away view: nothing that it writes is seen later. `mounts` are extra
        read-only folders or files, host path to path inside. When the caller is cancelled, or this process
        dies, the whole tree dies too.

        Raises:
            SandboxUnavailable: the sandbox itself could not be set up; the command did not run.
        """

    @abstractmethod
    def start(
        self,
        command: Sequence[str],
        *,
        workspace: Workspace,
        limits: Limits,
        env: Mapping[str, str] = NOTHING,
        mounts: Mapping[Path, Path] = NO_MOUNTS,
    ) -> AbstractAsyncContextManager[SandboxProcess]:
        """A long-lived child on a throw-away view, killed whole at exit; `limits.timeout` is its total life.

        Raises:
            SandboxUnavailable: the sandbox itself could not be set up; the command did not run.
        """

    @abstractmethod
    def path(self, workspace: Workspace, relative: str = "") -> str:
        """Where the workspace, or something in it, is seen by the child: for arguments and `env`."""
