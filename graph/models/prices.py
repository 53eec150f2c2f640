"""What a model's tokens cost: a table as data, and a file of the user's own over it."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Final

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from state.errors import Refused

MILLION: Final = 1_000_000
_OFFLINE: Final = ("search-repair", "scripted", "recorded")
_DATED: Final = re.compile(r"-(\d{4}-\d{2}-\d{2}|\d{6,8}|\d{4}|latest)$")
"""How providers name one version of a model."""


class Price(BaseModel):
    """US dollars for a million tokens of each kind."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    input: float = Field(ge=0)
    output: float = Field(ge=0)
    cached_input: float | None = Field(default=None, ge=0)
    """Input that the provider had already; without it, as other input."""
    cache_write: float | None = Field(default=None, ge=0)
    """Input that the provider puts by; without it, a quarter more than other input, the most that one asks."""


FREE: Final = Price(input=0.0, output=0.0)
_TABLE: Final = TypeAdapter(dict[str, Price])


class Prices:
    """Finds the price of a model by its name."""

    def __init__(self, table: Mapping[str, Price], names: Mapping[str, str] | None = None) -> None:
        """`names`: what servers call those models that the user calls otherwise."""
        self._table = table
        self._names = names or {}

    @classmethod
    def read(cls, path: Path | None = None, names: Mapping[str, str] | None = None) -> Prices:
        """The shipped table, with the user's over it. Raises Refused for a file that can't be used."""
        shipped = (files(__package__) / "prices.toml").read_text("utf-8")
        return cls({**_TABLE.validate_python(tomllib.loads(shipped)), **(_own(path) if path else {})}, names)

    def of(self, model: str) -> Price | None:
        """None where nobody has said what the model costs. A dated version costs what its model does."""
        kind, _, name = model.partition(":")
        if kind in _OFFLINE:
            return FREE
        name = self._names.get(model) or name or kind
        return self._table.get(model) or self._table.get(name) or self._table.get(_DATED.sub("", name))


def _own(path: Path) -> Mapping[str, Price]:
    try:
        return _TABLE.validate_python(tomllib.loads(path.read_text("utf-8")))
    except OSError as error:
        raise Refused(f"the prices in {path} (DEVFIX_PRICES) can't be read: {error.strerror}") from None
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise Refused(f"the prices in {path} (DEVFIX_PRICES) are not valid: {where}: {first['msg']}") from None
    except ValueError as error:
        raise Refused(f"the prices in {path} (DEVFIX_PRICES) can't be read: {error}") from None
