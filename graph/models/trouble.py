"""What keeps a model from answering, and what helps against it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Literal

from langchain_core.exceptions import (
    ContextOverflowError,
    ModelAuthenticationError,
    ModelError,
    ModelInvalidRequestError,
    ModelNotFoundError,
    ModelPermissionDeniedError,
)

from state.failures import FailureKind

Remedy = Literal["again", "another", "none"]
"""again: the same model may answer later. another: only another model may. none: nobody is asked any more."""

_KEY_REFUSED = (ModelAuthenticationError, ModelPermissionDeniedError)
_FOR_ANOTHER = (ContextOverflowError, ModelNotFoundError, ModelInvalidRequestError)


class ModelTrouble(Exception):
    """A model did not answer. `kind` says what follows, by the failure table."""

    def __init__(
        self,
        kind: FailureKind,
        message: str,
        *,
        remedy: Remedy = "again",
        pause: float | None = None,
        limited: bool = False,
        overflow: bool = False,
        unanswered: bool = False,
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.remedy: Remedy = remedy if kind == "model_error" else "none"
        self.pause = pause
        """Seconds for which the server asks to be left alone."""
        self.limited = limited
        """It is too much for the server, so the pause is for everybody who asks it."""
        self.overflow = overflow
        """The conversation is longer than the model's window."""
        self.unanswered = unanswered
        """The question was sent, and nobody said what became of it."""
        self.received = 0
        """About how many tokens of an answer had come by then."""

    @property
    def may_cost(self) -> bool:
        """Whether the server has worked on an answer. A refusal costs nothing."""
        return self.unanswered or self.received > 0


def trouble_of(error: ModelError) -> ModelTrouble:
    """The trouble that LangChain's own classes tell of, whatever the provider."""
    text = f"{type(error).__name__}: {error}"
    if isinstance(error, _KEY_REFUSED):
        return ModelTrouble("model_key_refused", text)
    remedy: Remedy = "another" if isinstance(error, _FOR_ANOTHER) else "again"
    return ModelTrouble("model_error", text, remedy=remedy, overflow=isinstance(error, ContextOverflowError))


def retry_after(headers: Mapping[str, str]) -> float | None:
    """How many seconds a server asks to be left alone: as milliseconds, as seconds or as a date, which is taken by the
    server's own clock where its answer tells the time. None where it asks for nothing that can be read."""
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            seconds = float(headers[name]) * unit
        except (KeyError, ValueError):
            continue
        return max(0.0, seconds) if math.isfinite(seconds) else None
    then = _moment(headers.get("retry-after"))
    if then is None:
        return None
    now = _moment(headers.get("date")) or datetime.now(UTC)
    return max(0.0, (then - now).total_seconds())


def _moment(text: str | None) -> datetime | None:
    try:
        moment = parsedate_to_datetime(text or "")
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
