"""Where the graph goes: open calls before the question, reads side by side, writes one at a time and in order."""

from __future__ import annotations

from typing import Any

from langgraph.types import Send

from graph.routing import after_act, after_approval, after_review


def raw(*calls: tuple[str, str, bool], **more: Any) -> dict[str, Any]:
    pending = [
        {"id": name, "name": name, "args": {}, "kind": kind, "gated": gated, "bound": {}, "origin": "model"}
        for name, kind, gated in calls
    ]
    fields = {"run_id": "r", "step": 1, "job": "repair", "work": {}, "pending_actions": pending}
    return {**fields, **more}


def sent(where: Any) -> list[str]:
    assert all(isinstance(each, Send) for each in where), where
    return [each.arg["call"]["name"] for each in where]


def test_reads_fan_out_up_to_the_next_write() -> None:
    """The write after them sees what they saw."""
    assert sent(after_act(raw(("a", "read", False), ("b", "read", False), ("w", "workspace", False)))) == ["a", "b"]


def test_a_write_goes_alone() -> None:
    """And before the reads that the model put behind it."""
    assert sent(after_act(raw(("w", "workspace", False), ("a", "read", False)))) == ["w"]


def test_at_a_limit_no_call_is_made() -> None:
    """The model's answer used up the budget, or a step was the last; review ends the run. An approved call is made."""
    look = ("a", "read", False)
    used: list[dict[str, Any]] = [
        {"budgets": {"usd": 1.0}, "cost_usd": 1.0},
        {"budgets": {"tokens": 10}, "tokens": 11},
        {"budgets": {"steps": 7}, "step": 7},
        {"budgets": {"seconds": 5.0}, "active_seconds": 5.5},
    ]
    for fields in used:
        assert after_act(raw(look, **fields)) == "review"
        assert sent(after_approval(raw(look, **fields))) == ["a"]


def test_the_question_comes_when_only_gated_calls_are_left() -> None:
    """approval never shares a superstep with another node."""
    assert sent(after_act(raw(("a", "read", False), ("g", "effect", True)))) == ["a"]
    assert after_act(raw(("g", "effect", True))) == "approval"
    assert after_act(raw()) == "review"


def test_approved_calls_are_performed_one_at_a_time() -> None:
    """A cancelled run ends instead."""
    assert sent(after_approval(raw(("g", "effect", False), ("h", "effect", False)))) == ["g"]
    assert after_approval(raw(("g", "effect", False), status="cancelled")) == "__end__"
    assert after_approval(raw()) == "review"


def test_reviews_labels() -> None:
    """retry, escalate, stop, and continue, re-plan, done."""
    wanted = {
        "continue": "act",
        "retry": "act",
        "re-plan": "plan",
        "ask": "approval",
        "escalate": "approval",
        "stop": "__end__",
        "done": "__end__",
    }
    assert {decision: after_review(raw(decision=decision)) for decision in wanted} == wanted
    assert sent(after_review(raw(("a", "read", False), decision="tools"))) == ["a"]


def test_a_send_carries_references_not_the_state() -> None:
    """Records of the job's part of the state stay in the checkpoint."""
    (send,) = after_act(raw(("a", "read", False), work={"repository": "/r", "evidence": {"text": "x" * 5000}}))
    assert send.arg["work"] == {"repository": "/r"}
    assert "messages" not in send.arg
