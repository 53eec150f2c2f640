"""The search as a chat model: what it does next follows from the messages alone, and it ends in a sentence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage

from graph.models.search_repair import SearchRepairModel

TOOLS = ("run_tests", "read_file", "evaluate_candidates", "edit_file", "apply_patch_to_repository")
Check = Callable[[dict[str, Any]], bool]


class World:
    """A repository of one file in memory, and tools on it that answer as the real ones do."""

    def __init__(self, text: str, *checks: Check, path: str = "code.py", reject: int = 0) -> None:
        self.files = {path: text}
        self.path = path
        self.checks = checks
        self.reject = reject
        self.answers: dict[str, Callable[..., str]] = {}
        """Answers that differ from the usual ones."""
        self.applied: list[str] = []

    def passes(self, text: str) -> list[bool]:
        """Which checks pass. Loops are cut short by counting lines."""
        names: dict[str, Any] = {}
        try:
            exec(compile(text, self.path, "exec"), names)  # noqa: S102 - this test's own text
        except Exception:  # noqa: BLE001 - a candidate may raise anything
            return [False for _ in self.checks]
        return [self._passes(check, names) for check in self.checks]

    def _passes(self, check: Check, names: dict[str, Any]) -> bool:
        try:
            return bool(check(names))
        except Exception:  # noqa: BLE001 - a candidate may raise anything
            return False

    def run_tests(self, locate: bool = False) -> str:
        passed = self.passes(self.files[self.path])
        outcome = "passed" if all(passed) else "failed"
        lines = [f"{outcome}: {sum(passed)} passed, {len(passed) - sum(passed)} failed, 0 errors, 0 skipped of 2 tests"]
        for number, each in enumerate(passed):
            if not each:
                lines += [
                    f"FAILED test_code.py::test_{number}",
                    f"    AssertionError at test_code.py:{number + 1}: assert",
                ]
        if locate:
            count = self.files[self.path].count("\n")
            lines += [f"suspicious {self.path}:{line} 1.0" for line in range(1, count + 1)]
        return "\n".join([*lines, "output:", "..."])

    def read_file(self, path: str, offset: int = 1, limit: int = 2000) -> str:
        lines = self.files[path].splitlines(keepends=True)
        shown = lines[offset - 1 : offset - 1 + limit]
        return f"{path}: lines {offset}-{offset + len(shown) - 1} of {len(lines)}\n{''.join(shown)}"

    def evaluate_candidates(self, candidates: list[dict[str, Any]], patience: float = 1) -> str:
        lines = []
        for index, candidate in enumerate(candidates):
            text = self.files[self.path]
            for edit in sorted(candidate["edits"], key=lambda each: -each["line"]):
                start = sum(len(line) for line in text.splitlines(keepends=True)[: edit["line"] - 1])
                assert text.startswith(edit["old"], start)
                text = text[:start] + edit["new"] + text[start + len(edit["old"]) :]
            passed = self.passes(text)
            failing = [
                now for now, before in zip(passed, self.passes(self.files[self.path]), strict=True) if not before
            ]
            word = (
                "plausible" if all(passed) else f"fails: passes {sum(failing)} of {len(failing)} of the failing tests"
            )
            lines.append(f"{index} {word}")
        return "\n".join([f"0 of {len(candidates)} candidates pass all tests:", *lines])

    def edit_file(self, path: str, old: str, new: str) -> str:
        assert self.files[path].count(old) == 1
        self.files[path] = self.files[path].replace(old, new)
        return f"{path}: replaced 1 occurrence (+1 -1 lines)"

    def apply_patch_to_repository(self, summary: str) -> str:
        if self.reject:
            self.reject -= 1
            raise PermissionError("anna rejected this call; it was not made. Reason: not like this")
        self.applied.append(self.files[self.path])
        return "The patch was applied to 1 file in /repository."

    def answer(self, call: dict[str, Any]) -> ToolMessage:
        try:
            text = self.answers.get(call["name"], getattr(self, call["name"]))(**call["args"])
        except PermissionError as error:
            return ToolMessage(str(error), tool_call_id=call["id"], status="error")
        return ToolMessage(text, tool_call_id=call["id"])


def schema(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "description": name, "parameters": {"type": "object"}}}


def ask(messages: list[BaseMessage], tools: tuple[str, ...] = TOOLS) -> AIMessage:
    """Each answer from a new model: it can have kept nothing."""
    return SearchRepairModel().bind_tools([schema(each) for each in tools]).invoke(messages)


def pursue(world: World, messages: list[BaseMessage] | None = None, *, turns: int = 60) -> list[BaseMessage]:
    messages = messages or [SystemMessage("You repair."), HumanMessage("Make the tests pass.")]
    for _ in range(turns):
        said = ask(messages)
        messages.append(said)
        if not said.tool_calls:
            return messages
        messages += [world.answer(dict(call)) for call in said.tool_calls]
    raise AssertionError("it never came to an end")


def names(messages: list[BaseMessage]) -> list[str]:
    return [call["name"] for each in messages if isinstance(each, AIMessage) for call in each.tool_calls]


AREA = "def area(width, height):\n    return width + height\n"


def area_is(width: int, height: int) -> Check:
    return lambda found: found["area"](width, height) == width * height


def test_it_goes_from_the_failing_tests_to_the_approved_patch() -> None:
    """run_tests, read_file, evaluate_candidates, edit_file, run_tests, apply: with a new model at each turn."""
    world = World(AREA, area_is(2, 3), area_is(4, 5))
    messages = pursue(world)
    order = names(messages)
    assert order[:3] == ["run_tests", "read_file", "evaluate_candidates"]
    assert order[-3:] == ["edit_file", "run_tests", "apply_patch_to_repository"]
    assert "width * height" in world.applied[0]
    assert str(messages[-1].content).startswith("The patch is applied: code.py:2: ")


def test_each_answer_follows_from_the_messages_alone() -> None:
    """At each point of a finished conversation a new model says again, word for word, what was said there."""
    messages = pursue(World(AREA, area_is(2, 3), area_is(4, 5)))
    for place, message in enumerate(messages):
        if isinstance(message, AIMessage):
            again = ask(messages[:place])
            assert (again.content, again.tool_calls) == (message.content, message.tool_calls)


def test_a_report_that_came_with_the_goal_is_used() -> None:
    """DevFix has run the tests itself: they are not run again, and other words before it do no harm."""
    world = World(AREA, area_is(2, 3))
    opening = HumanMessage("DevFix ran run_tests itself, in a fresh copy:\n" + world.run_tests(locate=True))
    messages = pursue(world, [SystemMessage("You repair."), HumanMessage("goal"), opening])
    assert names(messages)[0] == "read_file"
    assert world.applied


def test_a_rejected_patch_is_taken_back_and_the_next_one_is_proposed() -> None:
    """The person said no: the edit is undone, another patch that passes is applied and asked for."""
    text = "def last(xs):\n    return xs[len(xs)]\n"
    world = World(text, lambda found: found["last"]([4, 5, 6]) == 6, reject=1)
    messages = pursue(world)
    asked = [
        call["args"]["summary"]
        for each in messages
        if isinstance(each, AIMessage)
        for call in each.tool_calls
        if call["name"] == "apply_patch_to_repository"
    ]
    assert len(set(asked)) == 2
    assert len(world.applied) == 1
    assert world.passes(world.applied[0]) == [True]


@pytest.mark.parametrize("trouble", ["the disk is full", "Nobody answered in time; the call was not made."])
def test_a_patch_that_could_not_be_applied_is_asked_for_once_more(trouble: str) -> None:
    """Nobody refused it: it is the same patch, and no other is looked for."""
    world = World("def last(xs):\n    return xs[len(xs)]\n", lambda found: found["last"]([4, 5, 6]) == 6)
    asked: list[str] = []

    def full_once(summary: str) -> str:
        asked.append(summary)
        if len(asked) == 1:
            raise PermissionError(trouble)
        return world.apply_patch_to_repository(summary)

    world.answers["apply_patch_to_repository"] = full_once
    pursue(world)
    assert len(asked) == 2
    assert asked[0] == asked[1]
    assert len(world.applied) == 1


def test_an_answer_in_the_place_of_the_tool_is_no_applied_patch() -> None:
    """A person wrote a word instead of approving: nothing was applied, so another patch is proposed."""
    world = World("def last(xs):\n    return xs[len(xs)]\n", lambda found: found["last"]([4, 5, 6]) == 6)
    proposed: list[str] = []

    def answered_once(summary: str) -> str:
        proposed.append(summary)
        return "look at the length" if len(proposed) == 1 else world.apply_patch_to_repository(summary)

    world.answers["apply_patch_to_repository"] = answered_once
    pursue(world)
    assert len(set(proposed)) == 2
    assert len(world.applied) == 1


def test_a_patch_that_fails_cold_is_taken_back() -> None:
    """The run after the edit has the last word."""
    world = World("def last(xs):\n    return xs[len(xs)]\n", lambda found: found["last"]([4, 5, 6]) == 6)
    runs = 0

    def flaky(locate: bool = False) -> str:
        nonlocal runs
        runs += 1
        return "failed: 0 passed, 2 failed, 0 errors, 0 skipped of 2 tests" if runs == 2 else world.run_tests(locate)

    world.answers["run_tests"] = flaky
    messages = pursue(world)
    assert names(messages).count("edit_file") >= 3
    assert len(world.applied) == 1


def test_when_nothing_is_found_it_says_what_was_searched() -> None:
    """No candidate passes: a plain sentence that begins with "I found no patch", and advice lets it go on."""
    world = World("def area(width):\n    return width\n", lambda found: found["area"](3) == "three")
    messages = pursue(world)
    said = str(messages[-1].content)
    assert said.startswith("I found no patch among ")
    assert "code.py" in said
    messages = pursue(world, [*messages, HumanMessage("Look at width again.")])
    assert str(messages[-1].content).startswith("I found no patch")


def test_passing_and_unreachable_tests_are_said_so() -> None:
    """Nothing to repair, or nothing that could be run: one sentence, no calls."""
    world = World("def area(w, h):\n    return w * h\n", area_is(2, 3))
    assert pursue(world)[-1].content == "The tests already pass."
    world.answers["run_tests"] = lambda locate=False: (
        "unreachable: 0 passed of 0 tests; the command can't be run (exit code 127)"
    )
    assert "could not be run (unreachable: " in str(pursue(world)[-1].content)
    world.answers["run_tests"] = lambda locate=False: "timeout: 0 passed of 0 tests; it did not end within 8 s"
    assert "did not come to an end (timeout: " in str(pursue(world)[-1].content)


def test_a_timeout_that_is_known_is_not_waited_for_again() -> None:
    """It came with the goal: the tests run again only once somebody has answered."""
    world = World("def area(w, h):\n    return w * h\n", area_is(2, 3))
    opening = HumanMessage("timeout: 0 passed of 0 tests; it did not end within 8 s")
    messages = pursue(world, [opening])
    assert "did not come to an end" in str(messages[-1].content)
    assert "run_tests" not in names(messages)
    messages = pursue(world, [*messages, HumanMessage("The limit is raised.")])
    assert messages[-1].content == "The tests already pass."


def test_answers_that_can_not_be_read_end_in_a_sentence() -> None:
    """Cut, empty or garbled answers of any tool: no crash, no endless asking."""
    garbled: dict[str, Callable[..., str]] = {
        "run_tests": lambda **_: "\x00 ???",
        "read_file": lambda **_: "code.py: lines 1-2 of\n[... cut ...]",
        "evaluate_candidates": lambda **_: "[... 9000 bytes in all; artifact abc ...]",
    }
    for name, answer in garbled.items():
        world = World(AREA, area_is(2, 3))
        world.answers[name] = answer
        assert str(pursue(world)[-1].content).startswith("I found no patch"), name


def test_a_shortened_file_is_read_in_smaller_pieces() -> None:
    """An answer that was cut for its size is asked for again, page by page."""
    world = World(AREA + "\n# filler\n" * 700, area_is(2, 3))

    def cut(path: str, offset: int = 1, limit: int = 2000) -> str:
        text = world.read_file(path, offset, limit)
        return text if limit <= 100 else f"{text[:200]}\n[... 32000 bytes in all; artifact 0af ...]\n{text[-200:]}"

    world.answers["read_file"] = cut
    assert pursue(world)[-1].content != ""
    assert world.applied


def test_candidates_that_were_not_tried_are_asked_for_again() -> None:
    """A batch that ran out of time leaves some without a verdict: they come again, first."""
    world = World(AREA, area_is(2, 3), area_is(4, 5))
    whole = world.evaluate_candidates
    world.answers["evaluate_candidates"] = lambda candidates, patience=1: whole(candidates[:5], patience)
    messages = pursue(world, turns=200)
    calls = [
        call["args"]["candidates"]
        for each in messages
        if isinstance(each, AIMessage)
        for call in each.tool_calls
        if call["name"] == "evaluate_candidates"
    ]
    assert calls[1][:3] == calls[0][5:8]
    assert world.applied


def test_it_calls_only_tools_that_are_bound() -> None:
    """Without a tool that it needs it says so."""
    said = ask([HumanMessage("goal")], tools=("read_file",))
    assert not said.tool_calls
    assert "missing: run_tests" in str(said.content)
    assert not SearchRepairModel().invoke("hello").tool_calls


def test_turns_of_another_model_are_no_hindrance() -> None:
    """A conversation that another model began is taken over from where it stands."""
    world = World(AREA, area_is(2, 3))
    before = [
        HumanMessage("goal"),
        AIMessage("I look.", tool_calls=[{"name": "search_text", "args": {"pattern": "area"}, "id": "x1"}]),
        ToolMessage("code.py:1: def area", tool_call_id="x1"),
        AIMessage("I can't."),
        HumanMessage("Go on."),
    ]
    pursue(world, before)
    assert world.applied


def test_two_wrong_places_are_repaired_together() -> None:
    """Where no single change is enough, pairs on top of the changes that helped are tried."""
    text = "def low(xs):\n    return xs[1]\n\n\ndef high(xs):\n    return xs[1]\n"
    world = World(text, lambda found: found["low"]([5, 6, 7]) == 5, lambda found: found["high"]([5, 6, 7]) == 7)
    pursue(world, turns=120)
    assert world.applied
    assert world.passes(world.applied[0]) == [True, True]


def test_the_answer_says_that_no_tokens_were_used() -> None:
    """A search costs nothing: usage is known, and zero."""
    said = ask([HumanMessage("goal")])
    assert said.usage_metadata == {"input_tokens": 0, "output_tokens": 0, "total_tokens": 0}
    assert said.response_metadata["model_name"] == "search-repair"
    assert len({call["id"] for call in said.tool_calls}) == len(said.tool_calls) > 0


def test_interrupted_calls_are_made_again() -> None:
    """An attempt that was killed in the middle of calls, again and again, loses nothing and gives up nothing."""
    world = World(AREA, area_is(2, 3))
    messages: list[BaseMessage] = [HumanMessage("goal")]
    cut: dict[str, int] = {"evaluate_candidates": 5, "run_tests": 2}
    while True:
        said = ask(messages)
        messages.append(said)
        if not said.tool_calls:
            break
        for call in said.tool_calls:
            if cut.get(call["name"], 0):
                cut[call["name"]] -= 1
                lost = "This call was interrupted; its outcome is unknown. Look before you repeat it."
                messages.append(ToolMessage(lost, tool_call_id=call["id"], status="error"))
            else:
                messages.append(world.answer(dict(call)))
    assert world.applied
