"""The Python that runs the user's code: found without running anything of the user's on the host.

`--python`, else the repository's own `.venv` or `venv`, else an activated environment that is not DevFix's own,
else the base interpreter. Where it has no pytest, a small folder offers pytest and what that needs, last on
the path, so that whatever the repository has wins; DevFix's own packages and dependencies are never offered.
A hook (`import_hook.py`) is loaded first in every Python that the command starts.
"""

from __future__ import annotations

import compileall
import hashlib
import json
import os
import re
import secrets
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from state.errors import Refused
from state.settings import make_home

OWN_PACKAGES = ("graph", "tools", "state", "scripts")
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

_HOOK = Path(__file__).with_name("import_hook.py")
_VENVS = (".venv", "venv")
_OLDEST_OFFERED = (3, 11)
"""Below it pytest needs packages that DevFix's environment does not have."""
_OLDEST = (3, 7)
"""The import hook's syntax needs it; without the hook, tests might import the original."""
_PYTEST_SHIM = """#!/bin/sh
exec {python} {main} "$@"
"""
_PYTEST_MAIN = """import sys

from pytest import main

sys.argv[0] = "pytest"
sys.exit(main())
"""


@dataclass(frozen=True)
class Interpreter:
    """A Python, and what a command needs so that `python` and `pytest` mean it."""

    python: Path
    path: tuple[Path, ...]
    """The folders that come first in PATH."""
    env: Mapping[str, str]
    """Everything but PATH."""
    mounts: Mapping[Path, Path]
    """What the sandbox must show, read-only: host path to path inside (the same)."""

    def environment(self) -> dict[str, str]:
        """`env` together with PATH."""
        return {**self.env, "PATH": ":".join([*map(str, self.path), SYSTEM_PATH])}


def find_interpreter(
    repository: Path, *, python: str | None, cache: Path, environ: Mapping[str, str] = os.environ
) -> Interpreter:
    """The interpreter for a repository. Reads and copies files (in `cache`, once): call it in a thread.

    Raises:
        Refused: `python` names no interpreter, or the one that was found is too old.
    """
    repository = repository.resolve()
    found = _found(repository, python, environ)
    if found.version and found.version < _OLDEST:
        raise Refused(
            f"{found.python} is Python {found.version[0]}.{found.version[1]}; DevFix needs 3.7 or newer there"
        )
    make_home(cache.parent)
    cache.mkdir(exist_ok=True)
    offer = None if found.has_pytest or not found.takes_offer else _offer(cache)
    shims = _shims(cache, found)
    path = (found.python.parent, shims) if found.venv else (shims, found.python.parent)
    env = {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONHASHSEED": "0", "PYTHONNOUSERSITE": "1"}
    hook = _hook_folder(cache, offer=offer, repository=repository)
    places = [*found.places(repository), shims, hook, *([offer] if offer else [])]
    env["PYTHONPATH"] = str(hook)
    if found.venv is not None:
        env["VIRTUAL_ENV"] = str(found.venv)
    return Interpreter(found.python, path, env, {place: place for place in places})


@dataclass(frozen=True)
class _Found:
    python: Path
    venv: Path | None

    @property
    def version(self) -> tuple[int, ...]:
        """Major and minor, as far as files tell; () when they don't."""
        for name, text in (
            (r"version(?:_info)?\s*=\s*(\d+)\.(\d+)", self._configuration),
            (r"python(\d+)\.(\d+)$", self.python.resolve().name),
        ):
            if match := re.search(name, text):
                return int(match[1]), int(match[2])
        return ()

    @property
    def takes_offer(self) -> bool:
        return self.version >= _OLDEST_OFFERED or not self.version

    @property
    def has_pytest(self) -> bool:
        return any((folder / "pytest").is_dir() for folder in self._site_packages())

    @property
    def _configuration(self) -> str:
        if self.venv is not None:
            with suppress(OSError):
                return (self.venv / "pyvenv.cfg").read_text(errors="replace")
        return ""

    def _site_packages(self) -> Iterator[Path]:
        roots = [self.venv] if self.venv else [self.python.resolve().parent.parent]
        if re.search(r"include-system-site-packages\s*=\s*true", self._configuration):
            roots.append(self.python.resolve().parent.parent)
        for root in filter(None, roots):
            yield from root.glob("lib/python3*/site-packages")
            yield from root.glob("lib/python3*/dist-packages")

    def places(self, repository: Path) -> Iterator[Path]:
        """What must be seen: the prefix of each link on the way to the real program."""
        seen: set[Path] = set()
        for program in _hops(self.python):
            prefix = program.parent.parent if program.parent.name == "bin" else program
            if prefix in seen or prefix.is_relative_to("/usr") or program.is_relative_to("/bin"):
                continue
            seen.add(prefix)
            if _holds_more(prefix, repository):
                yield from _pieces(program, prefix)
            else:
                yield prefix


def _found(repository: Path, python: str | None, environ: Mapping[str, str]) -> _Found:
    if python is not None:
        return _named(repository, python, environ)
    own = Path(sys.prefix).resolve()
    active = environ.get("VIRTUAL_ENV")
    candidates = [repository / name for name in _VENVS]
    if active and Path(active).resolve() != own:
        candidates.append(Path(active).absolute())
    for folder in candidates:
        if _is_program(folder / "bin" / "python"):
            return _Found(folder / "bin" / "python", folder)
    return _Found(Path(sys._base_executable).absolute(), None)  # type: ignore[attr-defined]


def _named(repository: Path, python: str, environ: Mapping[str, str]) -> _Found:
    program = Path(python) if "/" in python else Path(shutil.which(python, path=environ.get("PATH")) or python)
    for base in (Path.cwd(), repository):
        chosen = Path(os.path.abspath(base / program))
        if chosen.is_dir():
            chosen = chosen / "bin" / "python"
        if _is_program(chosen):
            folder = chosen.parent.parent
            return _Found(chosen, folder if (folder / "pyvenv.cfg").is_file() else None)
    raise Refused(
        f"--python {python} names no interpreter (a Python program, or the folder of a virtual environment,"
        " is wanted; a wrapper script will not do)"
    )


def _is_program(path: Path) -> bool:
    """An executable that is no script: version managers put shell scripts in front, which need their home."""
    try:
        with path.open("rb") as file:
            return os.access(path, os.X_OK) and file.read(2) != b"#!"
    except OSError:
        return False


def _hops(program: Path) -> Iterator[Path]:
    for _ in range(40):
        yield program
        if not program.is_symlink():
            break
        program = Path(os.path.normpath(program.parent / os.readlink(program)))
    yield program.resolve()


def _holds_more(prefix: Path, repository: Path) -> bool:
    """Whether the prefix is a folder with other things of the user's in it, which must not be seen."""
    homes = (Path.home(), Path.home().resolve(), repository)
    return any(home.is_relative_to(prefix) for home in homes)


def _pieces(program: Path, prefix: Path) -> Iterator[Path]:
    yield prefix / "bin" if (prefix / "pyvenv.cfg").is_file() else program
    for pattern in ("pyvenv.cfg", "lib/python3*", "lib64/python3*", "lib/libpython3*"):
        yield from prefix.glob(pattern)


def _offer(cache: Path) -> Path:
    """A folder with copies of pytest and what it needs, taken from DevFix's own environment."""
    names = list(_needed_by("pytest"))
    identity = " ".join(f"{name} {distribution(name).version}" for name in names)
    return _made(cache, "offer", f"{identity} {sys.implementation.cache_tag}", lambda at: _copy_packages(names, at))


def _needed_by(name: str) -> Iterator[str]:
    waiting, seen = [name], set()
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        with suppress(PackageNotFoundError):
            required = distribution(name).requires or []
            yield name
            waiting += [re.split(r"[^\w.-]", each)[0] for each in required if "extra ==" not in each]


def _copy_packages(names: list[str], target: Path) -> None:
    for name in names:
        found = distribution(name)
        for file in found.files or ():
            if file.parts[0] != ".." and "__pycache__" not in file.parts:
                place = target / file
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(os.fspath(file.locate()), place)
    compileall.compile_dir(target, quiet=2)


def _hook_folder(cache: Path, *, offer: Path | None, repository: Path) -> Path:
    own = _HOOK.parent.parent
    plan = json.dumps(
        {
            "offer": None if offer is None else str(offer),
            # DevFix working on itself: the packages that the tests must import are the workspace's
            "own": "" if own.is_relative_to(repository) and not _installed(own) else str(own),
            "names": [] if own.is_relative_to(repository) and not _installed(own) else OWN_PACKAGES,
        }
    )
    source = _HOOK.read_text()

    def fill(folder: Path) -> None:
        (folder / "sitecustomize.py").write_text(source)
        (folder / "plan.json").write_text(plan)
        compileall.compile_dir(folder, quiet=2)

    return _made(cache, "hook", plan + source, fill)


def _installed(own: Path) -> bool:
    return own.name in {"site-packages", "dist-packages"}


def _shims(cache: Path, found: _Found) -> Path:
    """A folder for PATH in which `python`, `python3` and `pytest` mean this interpreter."""

    identity = f"{found.python}\n{_PYTEST_SHIM}{_PYTEST_MAIN}"

    def fill(folder: Path) -> None:
        (folder / "main").mkdir()
        main = folder / "main" / "run_pytest.py"
        main.write_text(_PYTEST_MAIN)
        for name in ("python", "python3"):
            (folder / name).symlink_to(found.python)
        pytest = folder / "pytest"
        final = _place(cache, "bin", identity) / "main" / "run_pytest.py"
        pytest.write_text(_PYTEST_SHIM.format(python=_quoted(found.python), main=_quoted(final)))
        pytest.chmod(0o755)

    return _made(cache, "bin", identity, fill)


def _quoted(path: Path) -> str:
    return "'" + str(path).replace("'", "'\\''") + "'"


def _place(cache: Path, kind: str, identity: str) -> Path:
    return cache / f"{kind}-{hashlib.sha256(os.fsencode(identity)).hexdigest()[:16]}"


def _made(cache: Path, kind: str, identity: str, fill: Callable[[Path], None]) -> Path:
    """The folder for `identity`, made whole or not at all, whoever else makes it at the same time."""
    place = _place(cache, kind, identity)
    if not place.is_dir():
        temporary = cache / f".{kind}-{secrets.token_hex(8)}"
        temporary.mkdir()
        try:
            fill(temporary)
            with suppress(OSError):
                temporary.rename(place)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    return place
