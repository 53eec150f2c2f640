"""Where the graph goes next: plain functions of the raw channels, drawn whole in `graph/agent.py`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from langgraph.types import Send

from graph.limits import reached
from state.agent_state import Budgets, Task

Next = Sequence[Send] | Literal["act", "plan", "approval", "review", "__end__"]


def after_act(raw: Mapping[str, Any]) -> Next:
    """Open calls first; the question comes when only gated calls are left; without calls, or at a limit, review."""
    if _limit_reached(raw):
        return "review"
    return _open_calls(raw) or ("approval" if raw.get("pending_actions") else "review")


def after_approval(raw: Mapping[str, Any]) -> Next:
    """Approved calls are performed; a person may have cancelled the run."""
    if raw.get("status") == "cancelled":
        return "__end__"
    return _open_calls(raw) or "review"


def after_review(raw: Mapping[str, Any]) -> Next:
    """What review decided: retry, escalate, stop, and continue, re-plan, done; or the rest of an open turn."""
    match raw.get("decision"):
        case "tools":
            return _open_calls(raw) or ("approval" if raw.get("pending_actions") else "act")
        case "ask" | "escalate":
            return "approval"
        case "re-plan":
            return "plan"
        case "stop" | "done":
            return "__end__"
    return "act"


def _limit_reached(raw: Mapping[str, Any]) -> bool:
    used = {name: raw.get(name) or 0 for name in ("cost_usd", "tokens", "step", "active_seconds")}
    return reached(Budgets.model_validate(raw.get("budgets") or {}), **used) is not None


def _open_calls(raw: Mapping[str, Any]) -> list[Send]:
    """The next calls to perform: all reads up to the next write, or that write alone, in the model's order."""
    open_calls = [call for call in raw.get("pending_actions") or () if not call["gated"]]
    reads = next((place for place, call in enumerate(open_calls) if call["kind"] != "read"), len(open_calls))
    return [Send("tool_execute", Task.of(call, raw).model_dump()) for call in open_calls[: max(reads, 1)]]
