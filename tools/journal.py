"""What an interrupted application of a patch left behind, in DevFix's own home: never in a person's folder."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from state.errors import EffectRefused
from state.settings import make_home

_PATIENCE = 30.0
"""Seconds to wait for another process that is writing into the same folder; it takes milliseconds."""


@dataclass(frozen=True)
class Record:
    """What was begun."""

    todo: list[str]
    """Paths that did not have the new content when the first call began."""
    temporaries: dict[str, str]
    """The new content of a path, put beside it."""
    made: list[str]
    """Folders that did not exist."""


@dataclass(frozen=True)
class Journal:
    """One idempotency key's record, on disk before the first file is touched and removed after the last."""

    home: Path
    """DevFix's home."""
    key: str

    @property
    def mark(self) -> str:
        """The key in a form that is fit for a file name."""
        return hashlib.sha256(self.key.encode("utf-8", "surrogatepass")).hexdigest()[:16]

    def read(self) -> Record | None:
        try:
            return Record(**json.loads(self._path.read_text()))
        except FileNotFoundError:
            return None

    def write(self, record: Record) -> None:
        """Raises OSError."""
        temporary = self._path.with_suffix(".tmp")
        with temporary.open("w") as file:
            json.dump(asdict(record), file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self._path)
        _sync_folder(self._folder)

    def remove(self) -> None:
        # One that can't be removed does no harm: each path is looked at again before anything is done with it.
        with suppress(OSError):
            self._path.unlink()

    @contextmanager
    def held(self, root: Path) -> Iterator[None]:
        """Nobody else of this home writes into the folder meanwhile.

        Raises EffectRefused: somebody does, and for long.
        """
        make_home(self._folder.parent)
        self._folder.mkdir(exist_ok=True)
        name = hashlib.sha256(os.fsencode(os.path.realpath(root))).hexdigest()[:16]
        path = self._folder / f"{name}.lock"
        lock = _locked(path, root)
        try:
            yield
        finally:
            with suppress(OSError):  # one that can't be removed does no harm: the next to come locks it
                path.unlink()
            os.close(lock)

    @property
    def _folder(self) -> Path:
        return self.home / "patches"

    @property
    def _path(self) -> Path:
        return self._folder / f"{self.mark}.json"


def _locked(path: Path, root: Path) -> int:
    """The lock file, held. Its holder removes it: one that was opened before that guards nothing any more."""
    end = time.monotonic() + _PATIENCE
    while True:
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(lock), path.stat()):
                    return lock
        except BlockingIOError:
            if time.monotonic() > end:
                os.close(lock)
                raise EffectRefused(
                    f"another DevFix process is writing into {root}; nothing was written: try again later"
                ) from None
            time.sleep(0.05)
        os.close(lock)


def _sync_folder(folder: Path) -> None:
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
