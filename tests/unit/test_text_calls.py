"""Tool calls in a model's text: the usual forms are read, what is only quoted is not."""

from __future__ import annotations

import json
from typing import Any

import pytest

from graph.models.text_calls import written_calls

TOOLS = {
    "look": {"type": "object", "properties": {"what": {"type": "string"}, "times": {"type": "integer"}}},
    "rest": {"type": "object", "properties": {}},
}
CALL = '{"name": "look", "arguments": {"what": "sea"}}'
SEA = ("look", {"what": "sea"})


def made(text: str) -> list[tuple[str, Any]]:
    written = written_calls(text, TOOLS)
    return [] if written is None else [(call["name"], call["args"]) for call in written.calls]


@pytest.mark.parametrize(
    "text",
    [
        f"<tool_call>{CALL}</tool_call>",
        f"<tool_call>\n{CALL}\n</tool_call>\n",
        f"<tool_call>\n{CALL}",
        f"<tool_call>{CALL}</tool_call><|im_end|>",
        f"Let me look at it:\n\n<tool_call>\n{CALL}\n</tool_call>",
        f"<think>A <tool_call> is what I need.</think>\n<tool_call>{CALL}</tool_call>",
        "<tool_call>\n<function=look>\n<parameter=what>\nsea\n</parameter>\n</function>\n</tool_call>",
        '<function=look>{"what": "sea"}</function>',
        "<function=look>\n<parameter=what>\nsea\n</parameter>\n</function>",
        CALL,
        f"\n {CALL}\n",
        f"[{CALL}]",
        f"```json\n{CALL}\n```",
        f"```json\n[{CALL}]\n```",
        f"```\n{CALL}\n```",
        '{"name": "look", "parameters": {"what": "sea"}}',
        '{"name": "look", "arguments": "{\\"what\\": \\"sea\\"}"}',
        '{"type": "function", "function": {"name": "look", "arguments": {"what": "sea"}}}',
        '{"type": "function", "function": "look", "parameters": {"what": "sea"}}',
        f'{{"tool_calls": [{CALL}]}}',
        '<|python_tag|>{"name": "look", "parameters": {"what": "sea"}}<|eom_id|>',
        f"[TOOL_CALLS] [{CALL}]</s>",
        f"[TOOL_CALLS]{CALL}",
        '[TOOL_CALLS]look[ARGS]{"what": "sea"}',
        '[TOOL_CALLS]look{"what": "sea"}',
    ],
)
def test_the_usual_forms_are_read(text: str) -> None:
    """Of Hermes, Qwen, Llama, Mistral, and of models that answer in JSON."""
    assert made(text) == [SEA]


@pytest.mark.parametrize(
    "text",
    [
        f'<tool_call>{CALL}</tool_call>\n<tool_call>{{"name": "rest"}}</tool_call>',
        f'<tool_call>{CALL}\n{{"name": "rest", "arguments": {{}}}}</tool_call>',
        f'[TOOL_CALLS][{CALL}, {{"name": "rest", "arguments": {{}}}}]',
        '[TOOL_CALLS]look[ARGS]{"what": "sea"}[TOOL_CALLS]rest[ARGS]{}',
        '<|python_tag|>{"name": "look", "parameters": {"what": "sea"}}; {"name": "rest", "parameters": {}}',
        f'[{CALL}, {{"name": "rest", "arguments": {{}}}}]',
        f'```json\n{CALL}\n```\n```json\n{{"name": "rest", "arguments": {{}}}}\n```',
        "<function=look>\n<parameter=what>sea</parameter>\n</function>\n<function=rest>\n</function>",
    ],
)
def test_several_calls_are_read_in_their_order(text: str) -> None:
    """Of one turn."""
    assert made(text) == [SEA, ("rest", {})]


@pytest.mark.parametrize(
    "text",
    [
        f"I could say {CALL} now.",
        f"I called {CALL}",
        f"To look, a model writes `<tool_call>{CALL}</tool_call>`.",
        f"<tool_call>{CALL}</tool_call> is how a call looks.",
        f"<tool_call>{CALL}</tool_call>\n\nThat is what you asked for.",
        f"For example:\n<tool_call>{CALL}</tool_call>",
        f"You could call it like this:\n<tool_call>\n{CALL}\n</tool_call>",
        f"The format is\n<tool_call>\n{CALL}\n</tool_call>",
        f"```\n<tool_call>{CALL}</tool_call>\n```",
        f"Here is one:\n```xml\n<tool_call>{CALL}</tool_call>\n```\n",
        f"The answer is\n```json\n{CALL}\n```",
        f"```json\n{CALL}\n```\nThat would look at the sea.",
        f"{CALL}\nand so on",
        "<tool_call> is a tag, and [TOOL_CALLS] is another one.",
        "[TOOL_CALLS] are made by Mistral's models.",
        '<|python_tag|>print("hello")',
        f"<think>{CALL}</think>\nIt is done.",
        '{"name": "look"}',
        '{"name": "look", "arguments": {"what": "sea"}, "why": "a record of something"}',
        '{"name": "jump", "arguments": {}}',
        f'[{CALL}, {{"name": "jump", "arguments": {{}}}}]',
        '{"name": "Ada", "parameters": 3}',
        "[]",
        "{}",
        "null",
        "[1, 2]",
        '{"name": "look", "arguments": {"what": "s',
        "",
    ],
)
def test_what_is_only_spoken_of_is_no_call(text: str) -> None:
    """Nor JSON that is an answer, or a call of a tool that there is not."""
    assert written_calls(text, TOOLS) is None


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('<tool_call>{"name": "look", "arguments": {"what": "s', "JSON can't be read"),
        ('<tool_call>{"name": "look", "arguments": {"times": NaN}}</tool_call>', "NaN"),
        ('<tool_call>{"name": "look", "arguments": [1]}</tool_call>', "an object"),
        ('<tool_call>{"name": "look", "arguments": "what?"}</tool_call>', "JSON can't be read"),
        ('<tool_call>{"arguments": {}}</tool_call>', "with name and arguments"),
        ('<tool_call>{"name": "jump", "arguments": {}}</tool_call>', "there is no tool 'jump'; there are: look, rest"),
        ('[TOOL_CALLS]look[ARGS]{"what": ', "JSON can't be read"),
        ("<function=look>\n<parameter=what>\nsea", "</function>"),
    ],
)
def test_a_call_that_is_marked_and_broken_is_told_of(text: str, told: str) -> None:
    """Nothing of it is made, nor of its neighbours; nothing is completed."""
    for each in (text, f"<tool_call>{CALL}</tool_call>\n{text}"):
        written = written_calls(each, TOOLS)
        assert written is not None
        assert (written.calls, told in str(written.complaint)) == ([], True)


def test_words_before_the_calls_are_kept() -> None:
    """They are what the model said."""
    written = written_calls(f"I look.\n<tool_call>{CALL}</tool_call>", TOOLS)
    assert written is not None
    assert (written.text, len(written.calls)) == ("I look.", 1)


def test_between_tags_a_value_is_what_its_tool_takes() -> None:
    """Text as it stands, other things as JSON."""
    text = "<function=look><parameter=what>\n12\n</parameter><parameter=times>12</parameter></function>"
    assert made(text) == [("look", {"what": "12", "times": 12})]


def test_deep_json_is_no_call() -> None:
    """Nor an end of the process."""
    assert written_calls("[" * 100_000, TOOLS) is None
    assert json.dumps(made("<tool_call>" + "[" * 100_000)) == "[]"
