"""An environment for each system, with the versions that were measured: none of it is a dependency of DevFix."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from state.errors import DevfixError

_READY = ".ready"
_LIMIT_SECONDS = 600


def environment(cache: Path, requirements: Sequence[str]) -> Path:
    """The folder of its programs; made where it is not there yet. Raises DevfixError where it can't be made."""

    def install(folder: Path) -> None:
        _run(sys.executable, "-m", "venv", str(folder))
        quiet = ("--quiet", "--disable-pip-version-check")
        _run(str(folder / "bin" / "python"), "-m", "pip", "install", *quiet, *requirements)

    return _made(cache, [sys.version, *requirements], install) / "bin"


def node_environment(cache: Path, packages: Sequence[str]) -> Path:
    """The same for packages of npm. Raises DevfixError where Node.js or npm is missing, or one can't be installed."""
    if not (shutil.which("node") and (npm := shutil.which("npm"))):
        raise DevfixError(f"{' '.join(packages)} needs Node.js and npm, and they are not on the PATH: install them")

    def install(folder: Path) -> None:
        folder.mkdir(parents=True)
        quiet = ("--no-audit", "--no-fund", "--loglevel", "error", "--fetch-retries", "1")
        _run(npm, "install", *quiet, "--prefix", str(folder), *packages)

    return _made(cache, packages, install) / "node_modules" / ".bin"


def _made(cache: Path, pinned: Sequence[str], install: Callable[[Path], None]) -> Path:
    folder = cache / hashlib.sha256("\n".join(pinned).encode()).hexdigest()[:16]
    if not (folder / _READY).exists():
        shutil.rmtree(folder, ignore_errors=True)
        install(folder)
        (folder / _READY).touch()
    return folder


def _run(*command: str) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_LIMIT_SECONDS)
    except subprocess.TimeoutExpired:
        raise DevfixError(f"it took longer than {_LIMIT_SECONDS} s: {' '.join(command)}") from None
    if done.returncode:
        raise DevfixError(f"{' '.join(command)} failed: {done.stderr.strip()[-500:]}")
