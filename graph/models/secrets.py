"""The secrets of an endpoint: named in its settings, read from the environment when its model is made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import urlsplit


class Secrets(NamedTuple):
    """What an endpoint's settings name, as the environment has it."""

    key: str | None
    headers: Mapping[str, str]
    proxy: str | None

    @property
    def all(self) -> tuple[str, ...]:
        """Longest first, so that none is hidden in part only."""
        given = (self.key, self.proxy, urlsplit(self.proxy or "").password, *self.headers.values())
        return tuple(sorted(filter(None, given), key=len, reverse=True))
