"""A virtual environment for each system, with the versions that were measured: none of it is a dependency of DevFix."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from state.errors import DevfixError

_READY = ".ready"
_LIMIT_SECONDS = 600


def environment(cache: Path, requirements: Sequence[str]) -> Path:
    """The folder of its programs; made where it is not there yet. Raises DevfixError where it can't be made."""
    pinned = "\n".join([sys.version, *requirements])
    folder = cache / hashlib.sha256(pinned.encode()).hexdigest()[:16]
    if not (folder / _READY).exists():
        shutil.rmtree(folder, ignore_errors=True)
        _run(sys.executable, "-m", "venv", str(folder))
        quiet = ("--quiet", "--disable-pip-version-check")
        _run(str(folder / "bin" / "python"), "-m", "pip", "install", *quiet, *requirements)
        (folder / _READY).touch()
    return folder / "bin"


def _run(*command: str) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_LIMIT_SECONDS)
    except subprocess.TimeoutExpired:
        raise DevfixError(f"it took longer than {_LIMIT_SECONDS} s: {' '.join(command)}") from None
    if done.returncode:
        raise DevfixError(f"{' '.join(command)} failed: {done.stderr.strip()[-500:]}")
