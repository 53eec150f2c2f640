"""What went wrong, as data: a closed list of kinds, and one record a failure."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

FailureKind = Literal[
    "tool_timeout",
    "tool_unavailable",
    "tool_failed",
    "invalid_arguments",
    "unknown_tool",
    "model_error",
    "model_unavailable",
    "model_key_refused",
    "unparsable_output",
    "truncated_output",
    "empty_output",
    "refused",
    "no_progress",
    "nothing_found",
    "budget",
    "step_limit",
    "deadline",
    "approval_expired",
    "outcome_unknown",
    "effect_refused",
    "tests_unreachable",
    "internal",
]


class Failure(BaseModel):
    """A typed thing that went wrong."""

    model_config = ConfigDict(frozen=True)

    kind: FailureKind
    detail: str
    """One sentence for people and for the model."""
    step: int = 0
    call_id: str | None = None
