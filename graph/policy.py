"""The failure table: what follows each kind of failure. One row each; total over `FailureKind`."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

from state.agent_state import Decision
from state.failures import Failure, FailureKind
from state.status import Standing


class Response(NamedTuple):
    """What follows a failure."""

    decision: Decision
    """While the failure has not come `limit` times in a row."""
    limit: int
    then: Decision | Literal["fall back"]
    """From then on. fall back: the run's next model is asked, in the same turn (`graph.models.chain`)."""
    standing: Standing | None = None
    """How the run ends or waits, where `then` is stop."""
    first: Decision | None = None
    """The first time; without it as the other times."""


POLICY: Final[dict[FailureKind, Response]] = {
    "tool_timeout": Response("continue", 5, "escalate"),
    "tool_unavailable": Response("continue", 5, "escalate"),
    "tool_failed": Response("continue", 5, "escalate"),
    "invalid_arguments": Response("continue", 5, "escalate"),
    "unknown_tool": Response("continue", 3, "escalate"),
    "model_error": Response("retry", 4, "fall back"),
    "model_unavailable": Response("stop", 0, "stop", Standing("failed", "model_unavailable")),
    "model_key_refused": Response("stop", 0, "stop", Standing("failed", "model_unavailable")),
    "unparsable_output": Response("retry", 1, "stop", Standing("failed", "unparsable_output")),
    "truncated_output": Response("retry", 2, "stop", Standing("failed", "unparsable_output")),
    "empty_output": Response("retry", 1, "stop", Standing("failed", "unparsable_output")),
    "refused": Response("retry", 1, "stop", Standing("failed", "refused")),
    "no_progress": Response("re-plan", 2, "escalate", first="continue"),
    "nothing_found": Response("escalate", 0, "escalate"),
    "budget": Response("stop", 0, "stop", Standing("failed", "budget")),
    "step_limit": Response("stop", 0, "stop", Standing("failed", "step_limit")),
    "deadline": Response("stop", 0, "stop", Standing("failed", "deadline")),
    "approval_expired": Response("escalate", 0, "escalate"),
    "outcome_unknown": Response("escalate", 0, "escalate"),
    "effect_refused": Response("escalate", 0, "escalate"),
    "tests_unreachable": Response("stop", 0, "stop", Standing("failed", "tests_unreachable")),
    "internal": Response("retry", 1, "stop", Standing("failed", "internal")),
}


IN_VAIN_LIMIT: Final = 8
"""Turns that may fail in a row, in whatever ways, without a call that succeeds: then a person is asked, though no kind
of failure came so often."""


class Ruling(NamedTuple):
    """What the table says to a failure at hand."""

    decision: Decision
    standing: Standing | None


def rule(failure: Failure, in_a_row: int, in_vain: int = 0) -> Ruling:
    """The table's answer to a failure that has come `in_a_row` times without anything else between, in the last of
    `in_vain` turns that failed."""
    row = POLICY[failure.kind]
    decision = row.decision if in_a_row <= row.limit or row.then == "fall back" else row.then
    if in_a_row == 1 and row.first is not None:
        decision = row.first
    if in_vain > IN_VAIN_LIMIT and decision != "stop":
        decision = "escalate"
    return Ruling(decision, row.standing if decision == "stop" else None)
