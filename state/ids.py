"""Run ids as people read and type them."""

from __future__ import annotations

_RANDOM = 8
_TIMED = 18


def short(run_id: str) -> str:
    """The beginning of a run's id by which it is told from others. An id that begins with the time at which it was made
    (UUID 6 and 7, as the dev server gives them) is the same in its first characters for a minute's runs."""
    return run_id[:_TIMED] if run_id[14:15] in {"6", "7"} and run_id.count("-") == 4 else run_id[:_RANDOM]
