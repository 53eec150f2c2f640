"""Our patches are read by git itself."""

from __future__ import annotations

import os
import random
import subprocess
from pathlib import Path

import pytest

from tools.git import git_program
from tools.unified import EXECUTABLE, FILE, LINK, FileChange, Version, render

pytestmark = pytest.mark.skipif(git_program() is None, reason="git is not installed")

NAMES = [
    "plain",
    "with blank",
    'quo"te',
    "it's",
    "back\\slash",
    "tab\there",
    "zwölf",
    "line\nbreak",
    "-dash",
    "odd\udcff",
]


def content(chance: random.Random) -> bytes:
    kind = chance.random()
    if kind < 0.1:
        return b""
    if kind < 0.2:
        return chance.randbytes(chance.randrange(1, 400)) + b"\0"
    end = chance.choice([b"\n", b"\n", b"\r\n", b"\r"])
    lines = [
        chance.choice([b"a", b"b", b"", b"caf\xe9", b"--- x", b"+y", b"\\ z"]) for _ in range(chance.randrange(60))
    ]
    return end.join(lines) + chance.choice([b"", b"\n"])


def edited(data: bytes, chance: random.Random) -> bytes:
    lines = data.split(b"\n")
    for _ in range(chance.randrange(1, 4)):
        place = chance.randrange(len(lines))
        lines[place : place + chance.randrange(3)] = [b"new %d" % chance.randrange(9)] * chance.randrange(3)
        lines = lines or [b""]
    return b"\n".join(lines)


def version(chance: random.Random, data: bytes | None = None) -> Version:
    if data is None and chance.random() < 0.1:
        return Version(LINK, chance.choice([b"../target", b"/absolute", b"with blank"]))
    return Version(EXECUTABLE if chance.random() < 0.2 else FILE, content(chance) if data is None else data)


def random_change(number: int, chance: random.Random) -> FileChange:
    path = f"{chance.choice(NAMES)}/{number} {chance.choice(NAMES)}"
    old = version(chance) if chance.random() < 0.85 else None
    if old is None:
        return FileChange(path, None, version(chance))
    if chance.random() < 0.15:
        return FileChange(path, old, None)
    if old.mode != LINK and chance.random() < 0.8:
        return FileChange(path, old, version(chance, edited(old.data, chance)))
    return FileChange(path, old, version(chance))


def put(root: Path, path: str, what: Version | None) -> None:
    target = root / path
    target.parent.mkdir(parents=True, exist_ok=True)
    if what is None:
        return
    if what.mode == LINK:
        target.symlink_to(os.fsdecode(what.data))
    else:
        target.write_bytes(what.data)
        target.chmod(0o755 if what.mode == EXECUTABLE else 0o644)


def found(root: Path, path: str) -> Version | None:
    target = root / path
    if target.is_symlink():
        return Version(LINK, os.fsencode(os.readlink(target)))
    if not target.exists():
        return None
    return Version(EXECUTABLE if target.stat().st_mode & 0o100 else FILE, target.read_bytes())


@pytest.mark.parametrize("seed", range(4))
def test_git_applies_what_we_write_and_takes_it_back(tmp_path: Path, seed: int) -> None:
    """120 changes of every kind, with names that need quotes: applied, each path is new; reversed, each is old."""
    chance = random.Random(seed)
    changes = [random_change(number, chance) for number in range(120)]
    root = tmp_path / "tree"
    root.mkdir()
    for change in changes:
        put(root, change.path, change.old)
    patch = tmp_path / "fix.patch"
    patch.write_bytes(render(changes, binary=True))

    for arguments, side in (((), "new"), (("-R",), "old")):
        command = ["git", "apply", "--whitespace=nowarn", *arguments, str(patch)]
        environment = {"PATH": os.environ["PATH"], "GIT_CEILING_DIRECTORIES": str(tmp_path), "GIT_CONFIG_NOSYSTEM": "1"}
        done = subprocess.run(command, cwd=root, env=environment, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr.decode()
        for change in changes:
            assert found(root, change.path) == getattr(change, side), change.path
