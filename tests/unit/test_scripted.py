"""scripted and recorded: a model that says what a script says, or what another run's model said."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

from graph.models.load import ModelLoader
from graph.models.recorded import recorded
from graph.models.scripted import ScriptedModel, Turn
from state.errors import Refused
from state.messages import flatten
from state.settings import Settings
from state.trace import Call
from tests.helpers.memory_stores import MemoryRuns, MemoryTrace

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def loaded(folder: Path, text: str) -> ScriptedModel:
    path = folder / "script.json"
    path.write_text(text)
    return ScriptedModel.load(path)


def made(
    run_id: str, step: int, message: AIMessage | None, *, place: int | None = None, error: str | None = None
) -> Call:
    """A model call of a run whose history was so long; without a word on it, as long as its steps are many."""
    return Call(
        run_id=run_id,
        epoch=1,
        step=step,
        kind="model",
        name="any",
        call_id=f"model-{step}",
        request={"messages": step if place is None else place},
        result=flatten(message) if message else None,
        error=error,
        started_at=NOW,
        ended_at=NOW,
    )


async def said(model: ScriptedModel, number: int) -> list[Any]:
    """What it says, one turn after another."""
    history: list[Any] = [HumanMessage("begin")]
    for _ in range(number):
        history.append(await model.ainvoke(history))
    return [message.content for message in history[1:]]


async def test_the_turn_follows_from_the_history() -> None:
    """The model keeps no count, so another process goes on where the first one was."""
    history = [HumanMessage("begin"), AIMessage("one"), ToolMessage("x", tool_call_id="a"), HumanMessage("hint")]
    assert (await ScriptedModel.of(["one", "two", "three"]).ainvoke(history)).content == "two"


async def test_after_its_end_the_script_says_so() -> None:
    """Again and again; review then asks a person."""
    assert await said(ScriptedModel.of(["one"]), 3) == ["one", "The script has ended.", "The script has ended."]


async def test_a_turn_may_hold_every_field_of_an_answer(tmp_path: Path) -> None:
    """Content blocks, calls with and without an id, broken calls, usage, metadata, a refusal."""
    turn = {
        "content": [{"type": "text", "text": "see"}],
        "tool_calls": [{"name": "look"}, {"name": "look", "args": {"what": "sea"}, "id": "mine"}],
        "invalid_tool_calls": [{"name": "look", "args": "{"}],
        "usage_metadata": {"input_tokens": 3, "output_tokens": 4, "total_tokens": 7},
        "response_metadata": {"finish_reason": "length", "model_name": "some"},
        "additional_kwargs": {"refusal": "no"},
    }
    answer = await loaded(tmp_path, json.dumps(["first", turn])).ainvoke([AIMessage("first")])
    assert answer.text == "see"
    assert [each["id"] for each in answer.tool_calls] == ["call-1-0", "mine"]
    assert answer.invalid_tool_calls[0]["args"] == "{"
    assert answer.usage_metadata == turn["usage_metadata"]
    assert answer.response_metadata["finish_reason"] == "length"
    assert answer.additional_kwargs == {"refusal": "no"}


async def test_what_becomes_of_an_answer_does_not_change_the_script() -> None:
    """Each time it is said as it was written."""
    model = ScriptedModel.of([Turn(content="one", response_metadata={"a": 1})])
    (await model.ainvoke([])).response_metadata.clear()
    assert (await model.ainvoke([])).response_metadata["a"] == 1


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{", "it is not JSON"),
        ("{}", "it is not a list of turns"),
        ("[1]", "turn 1: Input should be"),
        ('["ok", {"tool_calls": [{"args": {}}]}]', r"turn 2\.tool_calls\.0\.name: Field required"),
        ('[{"tool_cals": []}]', r"turn 1\.tool_cals: Extra inputs"),
        ('[{"usage_metadata": {"input_tokens": "many"}}]', r"turn 1\.usage_metadata"),
        ('[{"invalid_tool_calls": [{"args": 3}]}]', r"turn 1\.invalid_tool_calls"),
        ('["\\u00e9', "it is not JSON"),
    ],
)
def test_a_malformed_script_is_told_in_one_sentence(tmp_path: Path, text: str, told: str) -> None:
    """With the file, the turn and the field."""
    with pytest.raises(Refused, match=told) as raised:
        loaded(tmp_path, text)
    assert "script.json" in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_script_that_is_not_there_or_not_text_is_told_in_one_sentence(tmp_path: Path) -> None:
    """Nothing of Python's own wording."""
    with pytest.raises(Refused, match="No such file"):
        ScriptedModel.load(tmp_path / "none.json")
    (tmp_path / "bytes.json").write_bytes(b"\xff\xfe[]\x00")
    with pytest.raises(Refused, match="can't be used"):
        ScriptedModel.load(tmp_path / "bytes.json")


async def test_recorded_answers_come_in_their_order_over_errors_between() -> None:
    """A call that failed has no answer; one that could not be used has, and is given again as it was."""
    runs, trace = MemoryRuns(), MemoryTrace()
    await runs.register("a")
    cut = AIMessage("half", response_metadata={"finish_reason": "length"})
    trace.calls = [
        made("a", 3, None, error="gone"),
        made("a", 5, AIMessage("one")),
        made("a", 7, cut, error="truncated_output"),
        made("b", 7, AIMessage("another run's")),
        made("a", 9, None, error="gone"),
        made("a", 11, AIMessage("two")),
    ]
    model = await recorded(await runs.get("a"), runs=runs, trace=trace)
    assert await said(model, 3) == ["one", "half", "two"]
    assert (await model.ainvoke([AIMessage("one")])).response_metadata == {"finish_reason": "length"}


async def test_an_answer_that_was_asked_for_twice_is_given_once() -> None:
    """The attempt died between record and save, so the next one asked again: the run went on with the later answer."""
    runs, trace = MemoryRuns(), MemoryTrace()
    await runs.register("a")
    trace.calls = [made("a", 5, AIMessage("lost")), made("a", 5, AIMessage("kept")), made("a", 7, AIMessage("two"))]
    assert await said(await recorded(await runs.get("a"), runs=runs, trace=trace), 2) == ["kept", "two"]


async def test_answers_of_a_way_that_was_left_are_not_given() -> None:
    """Somebody went back to an old step of the same run, as Studio does: what was said after it there is gone."""
    runs, trace = MemoryRuns(), MemoryTrace()
    await runs.register("a")
    trace.calls = [
        made("a", 3, AIMessage("one"), place=1),
        made("a", 5, AIMessage("left"), place=3),
        made("a", 7, AIMessage("left too"), place=5),
        made("a", 9, AIMessage("two"), place=3),
    ]
    assert await said(await recorded(await runs.get("a"), runs=runs, trace=trace), 3) == [
        "one",
        "two",
        "The script has ended.",
    ]


async def test_a_branchs_answers_come_after_those_of_its_parent() -> None:
    """As far as the branch took the parent's steps over."""
    runs, trace = MemoryRuns(), MemoryTrace()
    await runs.register("parent")
    await runs.register("child", parent="parent", branched_at=6, step=5)
    trace.calls = [
        made("parent", 5, AIMessage("one")),
        made("parent", 8, AIMessage("not taken")),
        made("child", 8, AIMessage("two")),
    ]
    assert await said(await recorded(await runs.get("child"), runs=runs, trace=trace), 2) == ["one", "two"]


async def test_models_are_found_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each made once; what stands for nothing, or lacks its key, is one sentence."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    runs = MemoryRuns()
    await runs.register("a1")
    loader = ModelLoader(runs=runs, trace=MemoryTrace(), settings=Settings(home=tmp_path))
    path = tmp_path / "script.json"
    path.write_text('["hello"]')
    assert isinstance(await loader.get(f"scripted:{path}"), ScriptedModel)
    assert await loader.get("search-repair") is await loader.get("search-repair")
    for name, told in {
        "openai:gpt": "OPENAI_API_KEY",
        "openai:": "there is no model",
        "scripted:": "there is no model",
        "search-repair:x": "there is no model",
        "gpt-4": "there is no model 'gpt-4'",
        "": "there is no model",
        "recorded:a1": "no recorded model answers",
        "recorded:zz": "zz",
    }.items():
        with pytest.raises(Refused, match=told):
            await loader.get(name)
