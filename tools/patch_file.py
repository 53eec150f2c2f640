"""A patch in a file that the person named: whole or not at all."""

from __future__ import annotations

import os
import stat
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from state.errors import EffectRefused, Refused


@dataclass(frozen=True)
class PatchFile:
    """Where `--patch-out` leads. A link there is replaced, never followed."""

    path: Path

    def holds(self, patch: bytes) -> bool:
        try:
            return stat.S_ISREG(self.path.lstat().st_mode) and self.path.read_bytes() == patch
        except OSError:
            return False

    def write(self, patch: bytes) -> None:
        """Replace the file at once. Raises EffectRefused: it can't be written; what was there is still there."""
        try:
            self._write(patch)
        except OSError as problem:
            raise EffectRefused(
                f"{self.path} can't be written ({problem.strerror}); nothing was changed, and the patch is kept"
            ) from problem

    def _write(self, patch: bytes) -> None:
        descriptor, temporary = tempfile.mkstemp(prefix=".devfix-", dir=self.path.parent)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(patch)
                file.flush()
                os.fchmod(file.fileno(), 0o644)
                os.fsync(file.fileno())
            Path(temporary).replace(self.path)
        except OSError:
            with suppress(OSError):
                Path(temporary).unlink()
            raise


def check_patch_file(path: Path) -> None:
    """Whether a patch could be written there. Raises Refused."""
    if not path.is_absolute():
        raise Refused(f"--patch-out {path}: an absolute path is needed, for the run may go on in another folder")
    if not path.parent.is_dir():
        raise Refused(f"--patch-out {path}: the folder {path.parent} does not exist")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise Refused(f"--patch-out {path}: the folder {path.parent} can't be written")
    if path.is_symlink() or (path.exists() and not path.is_file()):
        raise Refused(f"--patch-out {path}: there is something that is no regular file; name another")
