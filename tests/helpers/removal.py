"""A copy of the sources with something taken out of it, for proofs that can fail."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
LEFT_OUT = shutil.ignore_patterns(".*", "*.egg-info")


class Edit(NamedTuple):
    """A text that stands once in a file, and what stands there without what is taken out."""

    file: str
    old: str
    new: str


@contextmanager
def copy_without(edits: Sequence[Edit]) -> Iterator[Path]:
    """A copy of the sources, with these edits."""
    with tempfile.TemporaryDirectory(prefix="devfix-without-", ignore_cleanup_errors=True) as name:
        copy = Path(name) / "sources"
        shutil.copytree(ROOT, copy, ignore=LEFT_OUT)
        for edit in edits:
            path = copy / edit.file
            path.write_text(edited(path.read_text(), edit))
        yield copy


def edited(text: str, edit: Edit) -> str:
    """Raises ValueError where the old text does not stand there exactly once."""
    if text.count(edit.old) != 1:
        raise ValueError(f"{edit.file} holds {text.count(edit.old)} times: {edit.old}")
    return text.replace(edit.old, edit.new)


def say(text: str) -> None:
    """How far it is."""
    print(text, file=sys.stderr, flush=True)


def cell(text: str) -> str:
    """As a cell of a table in Markdown."""
    return text.replace("|", "/").replace("\n", " ")[:300]
