"""Whether a run still gets anywhere, by what its turns asked for and what came of them.

Three signs: the last turns have gone round the same circle three times; for many turns nothing has come that had not
come before; or the same change of the files was made a third time, each time undone in between. After a word of
DevFix's about it, one more round of the same is enough.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any, Final, NamedTuple

LONGEST_PERIOD: Final = 4
REPEATS: Final = 3
STALE_TURNS: Final = 8
"""Turns in a row of which each has been there before, in whatever order."""
TURNS_SEEN: Final = 60
"""How far back a run is looked at."""
STUCK: Final = "stuck-"
RE_PLAN: Final = "re-plan-"
"""How the ids of DevFix's words about a standstill begin."""

WORDS_OF_DEVFIX: Final = ("result-", "nudge-", "failure-", "goal", STUCK, RE_PLAN)
"""How the ids of all of DevFix's words begin. Any other word is a person's, who may have changed everything."""
_PASSING: Final = re.compile(
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?(\.\d+)?(Z|[+-]\d\d:?\d\d)?|\d\d:\d\d:\d\d|\b\d+(\.\d+)?\s?(ms|s|seconds?)\b|"
    r"0x[0-9a-f]+|[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|/tmp/[\w./-]*|\bpid \d+",
    re.IGNORECASE,
)
"""What differs each time that the same thing happens: moments, durations, addresses, places for a while."""


class _Turn(NamedTuple):
    print: str
    """Of what it asked for, on which files, and what came of it."""
    snapshot: str | None
    """The files before it."""
    told: bool
    """The run had been told about a standstill before this turn."""


def standstill(records: Sequence[Mapping[str, Any]], *, snapshot: str | None = None) -> str | None:
    """One sentence on why the run gets nowhere; None while it does. `snapshot`: the files as they are now."""
    turns = _turns(records)
    since = [turn.print for turn in turns if not turn.told]
    before = [turn.print for turn in turns if turn.told]
    if before and _again(since, before):
        return "The same turns came again, with the same results."
    for period in range(1, LONGEST_PERIOD + 1):
        last = since[-period * REPEATS :]
        if len(last) == period * REPEATS and last == last[:period] * REPEATS:
            what = "The same call" if period == 1 else f"The same {period} turns"
            return f"{what} gave the same results three times over."
    if _is_stale(since):
        return f"In {STALE_TURNS} turns nothing came that had not come before."
    if _to_and_fro([turn.snapshot for turn in turns], snapshot):
        return "The same change was made for the third time, having been undone each time."
    return None


def _again(since: Sequence[str], before: Sequence[str]) -> bool:
    """One more round of what the run was told about, whatever came before it; not a single look back."""
    times = Counter(before[-LONGEST_PERIOD * REPEATS :])
    round_ = {print_ for print_, number in times.items() if number > 1}
    length = max(2, min(len(round_), LONGEST_PERIOD))
    return len(since) >= length and set(since[-length:]) <= round_


def _is_stale(prints: Sequence[str]) -> bool:
    known = set(prints[:-STALE_TURNS])
    return len(prints) > STALE_TURNS and set(prints[-STALE_TURNS:]) <= known


def _to_and_fro(snapshots: Sequence[str | None], now: str | None) -> bool:
    changes = [(old, new) for old, new in pairwise([*snapshots, now]) if old and new and old != new]
    if not changes or (snapshots and snapshots[-1] == now):
        return False  # the last turn changed nothing: it was told when it did
    return Counter(changes)[changes[-1]] >= REPEATS


def _turns(records: Sequence[Mapping[str, Any]]) -> list[_Turn]:
    """The turns that made calls since a person's last word, oldest first. `told` is what they came before."""
    results: dict[object, Mapping[str, Any]] = {}
    turns: list[_Turn] = []
    told = False
    for record in reversed(records):
        if record.get("type") == "tool":
            results[record.get("tool_call_id")] = record
        elif record.get("type") == "ai" and record.get("tool_calls"):
            turns.append(_turn(record, results, told=told))
        elif record.get("type") == "human":
            identifier = str(record.get("id") or "")
            if not identifier.startswith(WORDS_OF_DEVFIX):
                break
            told = told or identifier.startswith((STUCK, RE_PLAN))
        if len(turns) == TURNS_SEEN:
            break
    return turns[::-1]


def _turn(record: Mapping[str, Any], results: Mapping[object, Mapping[str, Any]], *, told: bool) -> _Turn:
    answers = [results.get(call.get("id")) or {} for call in record["tool_calls"]]
    seen = [(answer.get("artifact") or {}).get("snapshot") for answer in answers]
    asked = [
        [call.get("name"), _bare(call.get("args")), _bare(answer.get("content")), files]
        for call, answer, files in zip(record["tool_calls"], answers, seen, strict=True)
    ]
    text = json.dumps(asked, sort_keys=True, default=str)
    print_ = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    return _Turn(print_, next((str(each) for each in seen if each), None), told)


def _bare(value: Any) -> Any:
    """The value without what differs each time that the same thing happens."""
    match value:
        case str():
            return _same(value)
        case Mapping():
            return {str(name): _bare(each) for name, each in value.items()}
        case list() | tuple():
            return [_bare(each) for each in value]
    return value


@lru_cache(maxsize=1024)
def _same(text: str) -> str:
    """A print of the text, equal where it says the same. The texts of earlier turns are met again at each turn."""
    bare = " ".join(_PASSING.sub("~", text).split())
    return hashlib.sha256(bare.encode("utf-8", "surrogatepass")).hexdigest()


def what_was_tried(attempts: Sequence[Mapping[str, Any]], *, most: int = 20) -> Iterator[str]:
    """A line for each of the last things that were tried."""
    for each in attempts[-most:]:
        yield f"- {each['what']}: {each['outcome']}"
