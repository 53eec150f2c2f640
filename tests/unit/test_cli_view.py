"""What a person sees of a run under way: pure, from what the graph streams."""

from __future__ import annotations

from io import StringIO

from rich.console import Console

from scripts.display import limits, panel
from scripts.watching import View

PLAN = ["reproduce", "find", "apply"]


def view(seconds: float = 0.0) -> tuple[View, list[float]]:
    clock = [seconds]
    made = View("0123456789", clock=lambda: clock[0])
    made.begin({"plan": PLAN, "budgets": {"usd": 2.0, "seconds": 100.0, "steps": 50}, "step": 3})
    return made, clock


def drawn(shown: View) -> str:
    console = Console(width=80, file=StringIO(), record=True)
    console.print(panel(shown))
    return console.export_text()


def test_a_task_runs_from_its_start_to_its_end() -> None:
    """What runs now is named after the call that a fanned-out task does, and gone when the task has ended."""
    seen, clock = view()
    seen.take("tasks", {"id": "a", "name": "tool_execute", "input": {"call": {"name": "run_tests"}}})
    clock[0] = 5.0
    assert "run_tests  5 s" in drawn(seen)
    assert seen.take("tasks", {"id": "a", "name": "tool_execute", "error": None, "result": {}}) == []
    assert "run_tests" not in drawn(seen)


def test_a_task_that_failed_is_a_line() -> None:
    """The error's first line, with the node."""
    seen, _ = view()
    (line,) = seen.take("tasks", {"id": "a", "name": "act", "error": "boom\nat line 3", "result": None})
    assert line.split() == ["step", "3", "act", "failed:", "boom"]


def test_each_event_is_one_line() -> None:
    """The model's words and calls, a tool's first line, what review found done: one line each, arguments clipped."""
    seen, _ = view()
    said = {"type": "ai", "content": "I look.\nThoroughly."}
    call = {"name": "read_file", "args": {"path": "x" * 200}}
    lines = seen.take("updates", {"act": {"step": 4, "messages": {"append": [said]}, "pending_actions": [call]}})
    assert [line.split()[:3] for line in lines] == [["step", "4", "model"], ["step", "4", "call"]]
    assert len(lines[1]) < 120
    ours = {"name": "run_tests", "facts": {}, "is_error": True}
    result = {"type": "human", "content": "DevFix ran it:\n3 failed", "additional_kwargs": {"devfix": ours}}
    (line,) = seen.take("updates", {"tool_execute": {"step": 5, "messages": {"append": [result]}}})
    assert line.endswith("run_tests            error: 3 failed")
    update = {"step": 6, "completed": ["reproduce"], "decision": "continue", "work": {"failing": ["t"] * 5}}
    assert [line.split()[2:] for line in seen.take("updates", {"review": update})] == [["done", "reproduce"]]


def test_the_end_says_why() -> None:
    """stop, escalate and the like come with the report's sentence; an interrupt is no event."""
    seen, _ = view()
    update = {"step": 9, "decision": "stop", "report": {"summary": "The budget is used up."}}
    (line,) = seen.take("updates", {"review": update})
    assert line.endswith("The budget is used up.")
    assert seen.take("updates", {"__interrupt__": ({},)}) == []
    assert seen.take("updates", {"approval": None}) == []


def test_the_panel_shows_plan_tests_candidates_and_what_is_left() -> None:
    """Done items are ticked, the present one is marked; money and time left count down while a node runs."""
    seen, clock = view()
    work = {"failing": ["test_a", "test_b", "test_c", "test_d"], "candidates": 17}
    seen.take("updates", {"review": {"step": 6, "completed": ["reproduce"], "work": work, "cost_usd": 0.5}})
    seen.take("updates", {"act": {"step": 7, "active_seconds": 10.0, "tokens": 120}})
    clock[0] += 15.0
    text = drawn(seen)
    for expected in ("✓ reproduce", "▸ find", "· apply", "test_c and 1 more", "candidates tried: 17", "run 01234567"):
        assert expected in text
    assert limits(seen) == "0.5000 USD (1.5000 left) · 120 tokens · 1:15 left · 43 steps left"


def test_a_repositorys_text_can_not_move_the_cursor() -> None:
    """Control characters in a test's name are written out."""
    seen, _ = view()
    seen.take("updates", {"review": {"work": {"failing": ["test_\x1b[2Jevil"]}}})
    assert "\x1b[2J" not in drawn(seen)


def test_an_answer_is_seen_as_it_grows() -> None:
    """Its last lines, until it is whole, another model is asked, or nobody is; what it says can't move the cursor."""
    seen, _ = view()
    assert seen.take("custom", {"asking": "openai:first", "of": "openai:first"}) == []
    for text in ("one\ntwo\nthree\nfo", "ur\nfive\x1b[2J"):
        assert seen.take("custom", {"asking": "openai:first", "text": text}) == []
    shown = drawn(seen)
    assert "five" in shown
    assert "four" in shown
    assert "one" not in shown
    assert "\x1b[2J" not in shown
    (line,) = seen.take("custom", {"asking": "openai:first", "waits": 7.2, "why": "slow down\nplease"})
    assert line.endswith("openai:first: slow down; asked again in 7 s")
    assert "five" not in drawn(seen)
    (line,) = seen.take("custom", {"asking": "openai:second", "of": "openai:first"})
    assert line.split()[2:] == ["fallback", "openai:second", "is", "asked"]
    seen.take("custom", {"asking": "openai:second", "text": "six"})
    assert "asked again" not in drawn(seen)
    seen.take("tasks", {"id": "a", "name": "act", "error": None, "result": {}})
    assert "six" not in drawn(seen)


def test_an_answer_says_whose_it_is_where_another_model_gave_it() -> None:
    """The run's own model is not named each time."""
    seen, _ = view()
    said = {"messages": {"append": [{"type": "ai", "content": "I look."}]}}
    seen.take("custom", {"asking": "openai:first", "of": "openai:first"})
    for model, told in (("openai:first", "model"), ("openai:second", "openai:second")):
        (line,) = seen.take("updates", {"act": {**said, "answered_by": model}})
        assert line.split()[2] == told


def test_what_others_write_to_the_stream_is_left_alone() -> None:
    """A job's own tools may."""
    seen, _ = view()
    for chunk in ({"progress": 3}, {"asking": 7}, "text", None):
        assert seen.take("custom", chunk) == []
