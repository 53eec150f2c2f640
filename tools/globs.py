"""Patterns for paths: `*.py` (any folder), `src/**/*.py`, `tests/test_?.py`."""

from __future__ import annotations

import re
from functools import lru_cache

_PIECES = re.compile(r"\*\*/|\*\*|\*|\?|\[!?[^\]/]+\]|.", re.DOTALL)
_MEANINGS = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}


@lru_cache
def path_pattern(glob: str) -> re.Pattern[str]:
    """A pattern to `fullmatch` whole paths; a glob without `/` means a name in any folder."""
    prefix = "" if "/" in glob else "(?:.*/)?"
    glob = glob.removeprefix("./")
    if glob.endswith("/"):
        glob += "**"
    try:
        return re.compile(prefix + "".join(map(_meaning, _PIECES.findall(glob))), re.DOTALL)
    except re.error:  # a set such as [z-a]: then it can only be meant as it stands
        return re.compile(re.escape(glob))


def _meaning(piece: str) -> str:
    if piece.startswith("[") and len(piece) > 1:
        inner = piece[1:-1].replace("\\", "\\\\")
        return f"[^{inner[1:]}]" if inner.startswith("!") else f"[{inner}]"
    return _MEANINGS.get(piece, re.escape(piece))
