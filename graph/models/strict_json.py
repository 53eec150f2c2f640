"""JSON, and nothing that Python reads besides: what stands in a history must be JSON for whoever it is sent to."""

from __future__ import annotations

import json
import math
from typing import Any, Final


def strictly(text: str) -> Any:
    """The value. Raises ValueError, also for NaN and numbers beyond all bounds, and RecursionError."""
    return STRICT.decode(text)


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    if not math.isfinite(number := float(text)):
        raise ValueError(f"{text} is beyond all bounds")
    return number


STRICT: Final = json.JSONDecoder(parse_constant=_no_constant, parse_float=_finite)
