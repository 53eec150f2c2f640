"""Lists and objects as a variable of the environment gives them: a string."""

from __future__ import annotations

import json
from typing import Any, Final

from pydantic import BeforeValidator


def _json(given: str) -> Any:
    try:
        return json.loads(given)
    except ValueError:
        raise ValueError("it is not valid JSON") from None


def _listed(given: Any) -> Any:
    if not isinstance(given, str):
        return given
    if given.lstrip().startswith("["):
        return _json(given)
    return [each.strip() for each in given.split(",") if each.strip()]


LISTED: Final = BeforeValidator(_listed)
"""Separated by commas, or a JSON array; a list stays what it is."""
FROM_JSON: Final = BeforeValidator(lambda given: _json(given) if isinstance(given, str) else given)
"""A string is read as JSON; all else stays what it is."""
