"""How a run stands: a closed list of statuses, each with its closed list of reasons."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple, get_args

Status = Literal["queued", "running", "waiting", "completed", "failed", "cancelled"]
Reason = Literal[
    "new",
    "released",
    "crashed",
    "approval",
    "escalation",
    "upgrade",
    "done",
    "nothing_to_do",
    "budget",
    "step_limit",
    "deadline",
    "model_unavailable",
    "unparsable_output",
    "refused",
    "invalid_state",
    "tests_unreachable",
    "internal",
    "by_person",
]

REASONS: Final[dict[Status, tuple[Reason | None, ...]]] = {
    "queued": ("new", "released", "crashed"),
    "running": (None,),
    "waiting": ("approval", "escalation", "upgrade"),
    "completed": ("done", "nothing_to_do"),
    "failed": (
        "budget",
        "step_limit",
        "deadline",
        "model_unavailable",
        "unparsable_output",
        "refused",
        "invalid_state",
        "tests_unreachable",
        "internal",
    ),
    "cancelled": ("by_person",),
}

TERMINAL: Final = frozenset[Status]({"completed", "failed", "cancelled"})


class Standing(NamedTuple):
    """A status with its reason."""

    status: Status
    reason: Reason | None = None

    def __str__(self) -> str:
        return f"{self.status}: {self.reason}" if self.reason else self.status


def standing_of(status: object, reason: object) -> Standing:
    """The standing that a saved state names; anything that is not in the lists reads as running."""
    for known in get_args(Status):
        if status == known:
            for allowed in REASONS[known]:
                if reason == allowed:
                    return Standing(known, allowed)
    return Standing("running")
