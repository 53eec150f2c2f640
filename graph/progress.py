"""Whether a run goes round in circles: the same calls with the same results, three times over."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

LONGEST_PERIOD = 4
REPEATS = 3


def circle(records: Sequence[Mapping[str, Any]]) -> int | None:
    """The period, in turns, of a circle that the last turns have gone round three times; None where there is none."""
    turns = _turns(records)
    for period in range(1, LONGEST_PERIOD + 1):
        last = turns[-period * REPEATS :]
        if len(last) == period * REPEATS and last == last[:period] * REPEATS:
            return period
    return None


def _turns(records: Sequence[Mapping[str, Any]]) -> list[str]:
    """A fingerprint of each turn that made calls: what it asked for, and what came of it. A person's word, or a word
    of DevFix's own other than a result, begins the count anew."""
    results = {record.get("tool_call_id"): record.get("content") for record in records if record.get("type") == "tool"}
    turns: list[str] = []
    for record in records:
        if record.get("type") == "human" and not str(record.get("id") or "").startswith("result-"):
            turns = []
        elif record.get("type") == "ai" and record.get("tool_calls"):
            asked = [[call["name"], call["args"], results.get(call["id"])] for call in record["tool_calls"]]
            text = json.dumps(asked, sort_keys=True, default=str)
            turns.append(hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest())
    return turns
