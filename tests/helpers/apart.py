"""A place with mounts of its own: full or read-only disks, files in the place of others, seen by nobody else."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.helpers.cli import PROGRAM, SECONDS, Cli, Ended

READY = b"ready\n"


class Apart:
    """`devfix`, and files, as they are behind these mounts."""

    def __init__(self, cli: Cli, process: int) -> None:
        self._cli = cli
        self._process = process

    def __call__(self, *arguments: object, **environment: str) -> Ended:
        """Run a command to its end, without a terminal."""
        return self._run([*PROGRAM, *map(str, arguments)], environment)

    def shell(self, line: str) -> Ended:
        return self._run(["sh", "-c", line], {})

    def mount(self, mount: Sequence[object]) -> None:
        assert self.shell(shlex.join(["mount", *map(str, mount)])).code == 0

    def unmount(self, place: Path) -> None:
        assert self.shell(shlex.join(["umount", str(place)])).code == 0

    def path(self, path: Path) -> Path:
        """Where a file behind the mounts is seen from here."""
        return Path(f"/proc/{self._process}/root", *path.parts[1:])

    def _run(self, command: Sequence[str], environment: dict[str, str]) -> Ended:
        user = [] if os.geteuid() == 0 else ["--user", "--preserve-credentials"]
        done = subprocess.run(
            ["nsenter", "--target", str(self._process), "--mount", *user, f"--wd={self._cli.folder}", *command],
            env={**self._cli.environment, **environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=SECONDS,
            check=False,
        )
        return Ended(done.returncode, done.stdout.decode(), done.stderr.decode())


@contextmanager
def apart(cli: Cli, *mounts: Sequence[object]) -> Iterator[Apart]:
    """Each of `mounts` is what follows the word `mount`. Skips the test where this machine does not let us mount."""
    lines = "".join(shlex.join(["mount", *map(str, mount)]) + " && " for mount in mounts)
    user = [] if os.geteuid() == 0 else ["--map-root-user"]
    with subprocess.Popen(
        ["unshare", "--mount", *user, "sh", "-c", f"{lines}echo ready && cat"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        if process.stdout.readline() != READY:
            pytest.skip(f"no mounts of our own can be made here: {process.stderr.read().decode().strip()}")
        try:
            yield Apart(cli, process.pid)
        finally:
            process.stdin.close()


def small(place: Path, megabytes: int) -> Sequence[object]:
    """An empty disk of so many megabytes."""
    return ("-t", "tmpfs", "-o", f"size={megabytes}m,mode=755", "tmpfs", place)


def instead(place: Path, other: Path) -> Sequence[object]:
    """Another file or folder in its place."""
    return ("--bind", other, place)


def read_only(place: Path) -> Sequence[object]:
    """The same folder, in which nothing can be written."""
    return ("--bind", "-o", "ro", place, place)
