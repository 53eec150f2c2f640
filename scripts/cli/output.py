"""What a command prints: facts on stdout, as text or as one JSON value; everything else on stderr."""

from __future__ import annotations

import json
import math
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from tools.unified import shown

GAP = "  "


def say(text: str) -> None:
    """A line for the person, on stderr."""
    sys.stderr.write(shown(text) + "\n")
    sys.stderr.flush()


def put(text: str) -> None:
    """A line of facts, on stdout."""
    sys.stdout.write(shown(text) + "\n")


def put_json(value: Any) -> None:
    """One JSON value on stdout, in ASCII, so that any text comes through any terminal or pipe as it was."""
    sys.stdout.write(json.dumps(plain(value), indent=2, allow_nan=False) + "\n")


def plain(value: Any) -> Any:
    """The value as JSON has it: moments in ISO form, numbers that JSON lacks and everything unknown as text."""
    if hasattr(value, "model_dump"):
        return plain(value.model_dump())
    if isinstance(value, Mapping):
        return {str(name): plain(each) for name, each in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(each) for each in value]
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    return value if value is None or isinstance(value, (str, int, bool)) else str(value)


def put_table(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Columns side by side; on a terminal the last one is cut to its width."""
    cells = [heads, *[[one_line(each) for each in row] for row in rows]]
    widths = [max(len(row[place]) for row in cells) for place in range(len(heads))]
    for row in cells:
        line = GAP.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        sys.stdout.write(_cut(line.rstrip()) + "\n")


def put_facts(facts: Mapping[str, Any]) -> None:
    """One fact a line, its name first; a list goes below its name."""
    width = max(map(len, facts), default=0)
    for name, value in facts.items():
        if isinstance(value, (list, tuple)) and value:
            put(f"{name}:")
            for each in value:
                put(f"  - {one_line(each)}")
        elif isinstance(value, Mapping) and value:
            put(f"{name}:")
            for inner, each in value.items():
                _put_inner(inner, each)
        else:
            put(f"{(name + ':').ljust(width + 1)} {_text(value)}")


def _put_inner(name: str, value: object) -> None:
    if isinstance(value, (list, tuple)) and value:
        put(f"  {name}:")
        for each in value:
            put(f"    - {one_line(each)}")
    elif value not in (None, [], ()):
        put(_indented(f"{name}: {_text(value)}"))


def one_line(value: object) -> str:
    """The value on one line, safe on a terminal."""
    return shown(" ".join(_text(value).split()))


def moment(at: datetime) -> str:
    return f"{at.astimezone():%Y-%m-%d %H:%M:%S}"


def coloured(stream: Any = None) -> bool:
    """Whether colours may be used there: a terminal, and nobody said no."""
    stream = stream or sys.stdout
    return bool(stream.isatty()) and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def put_diff(text: str, *, stream: Any = None) -> None:
    """A unified diff, coloured on a terminal."""
    stream = stream or sys.stdout
    colours = coloured(stream)
    for line in text.split("\n")[: -1 if text.endswith("\n") else None]:
        stream.write((_painted(shown(line)) if colours else shown(line)) + "\n")
    stream.flush()


def _painted(line: str) -> str:
    for prefix, code in (("+++", "1"), ("---", "1"), ("diff ", "1"), ("@@", "36"), ("+", "32"), ("-", "31")):
        if line.startswith(prefix):
            return f"\x1b[{code}m{line}\x1b[0m"
    return line


def _text(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, datetime):
        return moment(value)
    if isinstance(value, Mapping):
        return json.dumps(plain(value))
    if isinstance(value, (list, tuple)):
        return ", ".join(_text(each) for each in value) or "-"
    return str(value)


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())


def _cut(line: str) -> str:
    if not sys.stdout.isatty():
        return line
    width = shutil.get_terminal_size().columns
    return line if len(line) <= width else line[: max(width - 1, 1)] + "…"
