"""Secrets: named in the settings, read from the environment when they are used, hidden from every text."""

from __future__ import annotations

import os
from collections.abc import Iterable

from state.errors import EffectRefused


def secret(name: str) -> str:
    """The variable's value. Raises EffectRefused where it is not set."""
    value = os.environ.get(name)
    if not value:
        raise EffectRefused(f"the environment variable {name}, which the settings name, is not set; nothing was done")
    return value


def hidden(text: str, secrets: Iterable[str]) -> str:
    """The text without these values: servers send back what they were sent."""
    for value in sorted(filter(None, secrets), key=len, reverse=True):
        text = text.replace(value, "***")
    return text
