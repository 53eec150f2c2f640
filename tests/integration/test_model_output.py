"""Whole runs against servers that misbehave: each ends truly, and nothing is made of what can't be used."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import HumanMessage
from langgraph.errors import GraphDrained
from langgraph.runtime import RunControl

from graph.models.ask import ask
from graph.models.trouble import ModelTrouble
from state.runs import Run
from state.trace import Call
from tests.helpers.app import Driver, application_on
from tests.helpers.endpoint import (
    Answer,
    Held,
    Reply,
    assert_valid_for_every_provider,
    calling,
    chunk,
    endpoint,
    saying,
)
from tests.helpers.notes import NOTES, letters

FIRST, SECOND = "openai:first", "openai:second"
ADA = json.dumps({"to": "ada", "text": "hello"})
POST = calling(("p", "post", ADA))
NOTE = json.dumps({"path": "a", "text": "x"})


@pytest.fixture
async def drivers(database_url: str, tmp_path: Path) -> AsyncIterator[Callable[..., Driver]]:
    """Makes a driver whose models are at these addresses."""
    made: list[Driver] = []

    def driver(*urls: str, **settings: Any) -> Driver:
        models = {name: {"base_url": url} for name, url in zip((FIRST, SECOND), urls, strict=False)}
        given = {"models": models, "fallback_models": list(models)[1:], "model_pause_seconds": 0.001, **settings}
        made.append(Driver(application_on(database_url, tmp_path, **given), tmp_path))
        return made[-1]

    yield driver
    for each in made:
        await each.services.close()


Drivers = Callable[..., Driver]


async def run_of(drivers: Drivers, *answers: Answer) -> tuple[Driver, Run, Sequence[Mapping[str, Any]]]:
    """A run of the notes job to where it waits or ends, and the requests that its model had."""
    async with endpoint(*answers) as server:
        driver = drivers(server.url)
        run = await driver.start([], model=FIRST)
        for body in server.requests:
            assert_valid_for_every_provider(body)
        return driver, run, server.requests


async def model_calls(driver: Driver) -> list[Call]:
    return [call for call in await driver.services.trace.of(driver.run_id) if call.kind == "model"]


async def tool_calls(driver: Driver) -> list[str]:
    return [call.name for call in await driver.services.trace.of(driver.run_id) if call.kind == "tool"]


async def kinds(driver: Driver) -> list[str]:
    return [failure["kind"] for failure in (await driver.state())["failures"]]


async def test_b31_answers_that_stay_unreadable_fail_the_run(drivers: Drivers) -> None:
    """After one repair; never a quiet end, nor a success."""
    driver, run, requests = await run_of(drivers, calling(("a", "note", '{"path": "a", ')))
    assert str(run.standing) == "failed: unparsable_output"
    assert (len(requests), await tool_calls(driver)) == (2, [])
    assert run.report is not None
    assert "the arguments of note are not a JSON object" in str(run.report["summary"])


@pytest.mark.parametrize("args", ['{"to":"Par', '{"to": "ada", "text": "hello"', '"ada"', "[]", "{to: ada}"])
async def test_b32_broken_arguments_never_run_a_tool(drivers: Drivers, args: str) -> None:
    """Not with no arguments, nor with those that there are so far: the model reads what was wrong, and where."""
    driver, run, requests = await run_of(drivers, calling(("a", "post", args), ("b", "note", NOTE)), POST)
    assert (str(run.standing), await kinds(driver)) == ("waiting: approval", ["unparsable_output"])
    assert (await tool_calls(driver), letters(driver.letters)) == ([], [])
    told = requests[1]["messages"][-1]["content"]
    assert "the arguments of post are not a JSON object" in told
    assert repr(args)[1:-1] in told


async def test_b33_what_is_broken_is_kept_aside_and_not_in_the_history(drivers: Drivers) -> None:
    """The raw text is in the trace, what is sent later is JSON, and the model is told in a kilobyte at most."""
    raw = '{"path": "a", "text": "' + "long " * 2000
    driver, _, requests = await run_of(drivers, calling(("a", "note", raw)), POST)
    first, _ = await model_calls(driver)
    assert first.result is not None
    assert first.result["invalid_tool_calls"][0]["args"] == raw  # type: ignore[index,call-overload]
    assert len(requests[1]["messages"][-1]["content"].encode()) <= 1024
    assert "long long" not in json.dumps([each for each in requests[1]["messages"] if each["role"] != "user"])


async def test_b33_a_history_that_was_broken_from_outside_is_sent_whole(drivers: Drivers) -> None:
    """As Studio's editor, or an older program, may leave it."""
    broken = {"name": "note", "args": "{oops", "id": "z", "error": "no", "type": "invalid_tool_call"}
    theirs = {"type": "ai", "content": "hm", "invalid_tool_calls": [broken], "id": "theirs"}
    own_fields = {"tool_calls": [{"id": "y", "function": {"name": "note", "arguments": "{oops"}, "type": "function"}]}
    others = {"type": "ai", "content": "hm", "additional_kwargs": own_fields, "id": "others"}
    async with endpoint(saying(content="I see"), POST) as server:
        driver = drivers(server.url)
        await driver.start([], model=FIRST)
        edited = {"messages": [theirs, others], "decision": "continue", "pending_actions": []}
        await driver.agent.aupdate_state(driver.config, edited, as_node="review")
        await driver.go_on()
        assert [message["content"] for message in server.requests[-1]["messages"]].count("hm") == 2
        assert_valid_for_every_provider(server.requests[-1])


async def test_b35_no_call_of_a_cut_turn_is_made(drivers: Drivers) -> None:
    """Though it parses, as a path that was cut to "/" does; asked again twice at most."""
    cut = calling(("a", "note", '{"path": "/", "text": ""}'), finish="length")
    driver, run, requests = await run_of(drivers, cut)
    assert (str(run.standing), await kinds(driver)) == ("failed: unparsable_output", ["truncated_output"] * 3)
    assert (len(requests), await tool_calls(driver)) == (3, [])


@pytest.mark.parametrize("finish", ["max_tokens", "error", "abort", "MAX_TOKENS", "model_context_window_exceeded"])
async def test_b35_whatever_a_server_calls_a_cut(drivers: Drivers, finish: str) -> None:
    """The next answer is a whole one, and the run goes on."""
    driver, run, _ = await run_of(drivers, calling(("a", "note", NOTE), finish=finish), POST)
    assert (str(run.standing), await kinds(driver)) == ("waiting: approval", ["truncated_output"])
    assert await tool_calls(driver) == []


async def test_b38_chatter_is_told_of_and_then_put_to_a_person(drivers: Drivers) -> None:
    """A model that only talks is asked to use a tool; the third time, or when it repeats itself, a person decides."""
    _, run, requests = await run_of(drivers, saying(content="It is"), saying(content="nearly"), saying(content="done"))
    assert (str(run.standing), len(requests)) == ("waiting: escalation", 3)
    assert run.report is not None
    assert "done" in str(run.report["summary"])


async def test_b38_the_same_call_without_arguments_goes_in_circles(drivers: Drivers) -> None:
    """The tool says what is missing; three times over is enough, then one re-plan, then a person."""
    driver, run, requests = await run_of(drivers, calling(("a", "note", "{}")))
    assert str(run.standing) == "waiting: escalation"
    assert len(requests) <= 6
    assert "no_progress" in await kinds(driver)


@pytest.mark.parametrize(
    ("answer", "standing"),
    [
        (saying(content=""), "failed: unparsable_output"),
        (saying(content=" \n"), "failed: unparsable_output"),
        (calling(finish="tool_calls"), "failed: unparsable_output"),
        (saying(refusal="not that"), "failed: refused"),
        (saying(content="I can't help with that", finish="content_filter"), "failed: refused"),
        (saying(content="", finish="SAFETY"), "failed: refused"),
        (calling(("a", "note", NOTE), finish="content_filter"), "failed: refused"),
        (Reply(400, {"error": {"message": "filtered", "code": "content_filter"}}), "failed: refused"),
    ],
)
async def test_b39_an_empty_or_refused_answer_is_no_success(drivers: Drivers, answer: Answer, standing: str) -> None:
    """It is asked for once more, then the run ends by its name."""
    driver, run, requests = await run_of(drivers, answer)
    assert (str(run.standing), len(requests), await tool_calls(driver)) == (standing, 2, [])


async def test_b40_calls_without_ids_run_under_ids_of_ours(drivers: Drivers) -> None:
    """The same ones whenever the turn is read again."""
    answer = calling((None, "look", '{"what": "sea"}'), ("", "look", '{"what": "sky"}'))
    driver, run, requests = await run_of(drivers, answer, POST)
    assert str(run.standing) == "waiting: approval"
    results = [message["tool_call_id"] for message in requests[1]["messages"] if message["role"] == "tool"]
    turn = (await model_calls(driver))[0].call_id
    assert results == [f"{turn}-0", f"{turn}-1"]


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")  # openai's, of content that is no text
async def test_b42_after_a_fallback_the_first_model_goes_on_with_the_same_history(drivers: Drivers) -> None:
    """Blocks, ids and fields of the other provider's own are not in what it is sent; each answer says whose it is."""
    blocks = [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "I look"}]
    theirs = [chunk(content=blocks), *calling(("toolu_01", "look", '{"what": "sea"}'))]
    first = [calling(("a", "look", '{"what": "sky"}')), *[Reply(500)] * 5, POST]
    async with endpoint(*first) as one, endpoint(theirs) as other:
        driver = drivers(one.url, other.url)
        assert str((await driver.start([], model=FIRST)).standing) == "waiting: approval"
        for body in [*one.requests, *other.requests]:
            assert_valid_for_every_provider(body)
    assert len(other.requests) == 1
    assert [message["content"] for message in one.requests[-1]["messages"] if message["role"] == "assistant"] == [
        None,
        "I look",
    ]
    calls = await model_calls(driver)
    assert [(call.request.get("asked"), call.name) for call in calls if call.result] == [
        (FIRST, "some-model"),
        (SECOND, "some-model"),
        (FIRST, "some-model"),
    ]
    assert [call.name for call in calls if call.error] == [FIRST] * 5
    assert (await driver.state())["answered_by"] == FIRST
    assert len({call.call_id for call in calls}) == 3


async def test_b42_models_that_all_fail_end_the_run(drivers: Drivers) -> None:
    """With what each of them said."""
    async with endpoint(Reply(500)) as one, endpoint(Reply(404, {"error": {"message": "no such model"}})) as other:
        driver = drivers(one.url, other.url)
        run = await driver.start([], model=FIRST)
    assert str(run.standing) == "failed: model_unavailable"
    assert run.report is not None
    for told in ("openai:first", "500", "openai:second", "no such model"):
        assert told in str(run.report["summary"])


async def test_a_call_in_the_text_is_made(drivers: Drivers) -> None:
    """It is asked about, answered and kept like any other."""
    text = f'I post it.\n<tool_call>{{"name": "post", "arguments": {ADA}}}</tool_call>'
    driver, run, _ = await run_of(drivers, saying(content=text))
    assert str(run.standing) == "waiting: approval"
    assert str((await driver.approved()).standing) == "completed: done"
    said = [message for message in (await driver.state())["messages"] if message["type"] == "ai"]
    assert [message["content"] for message in said] == ["I post it."]


async def test_a_broken_call_in_the_text_is_repaired(drivers: Drivers) -> None:
    """With the error; one of a cut turn is not even read."""
    half = '<tool_call>{"name": "post", "arguments": {"to": "a'
    driver, run, requests = await run_of(drivers, saying(content=half), POST)
    assert (str(run.standing), await kinds(driver)) == ("waiting: approval", ["unparsable_output"])
    assert "JSON can't be read" in requests[1]["messages"][-1]["content"]
    whole = f'<tool_call>{{"name": "post", "arguments": {ADA}}}</tool_call>'
    driver, run, _ = await run_of(drivers, saying(content=whole, finish="length"), POST)
    assert await kinds(driver) == ["truncated_output"]


async def test_the_answer_is_shown_as_it_grows_and_acted_on_when_it_is_whole(drivers: Drivers) -> None:
    """Its first words at once; a call that has come whole waits for the end of its turn."""
    let_go = asyncio.Event()
    begun = [chunk(content="I "), chunk(content="look"), *calling(("a", "look", '{"what": "sea"}'))[:1]]
    held = Held(begun, let_go, [chunk("tool_calls"), "data: [DONE]\n\n"])
    async with endpoint(held, POST) as server:
        driver = drivers(server.url)
        heard: list[Mapping[str, Any]] = []
        given = {"job": "notes", "model": FIRST, "goal": "post", "options": {"letters": str(driver.letters)}}
        async for event in driver.agent.astream(given, driver.config, stream_mode="custom"):
            heard.append(event)
            if event.get("text") == "look":
                assert await tool_calls(driver) == await model_calls(driver) == []
                let_go.set()
    assert [event.get("text") for event in heard] == [None, "I ", "look", None]
    assert await tool_calls(driver) == ["look"]


async def test_a_run_whose_time_is_over_asks_nobody_again(drivers: Drivers) -> None:
    """It ends by its own limit, not as if no model were there."""
    async with endpoint(Reply(503)) as server:
        driver = drivers(server.url, model_pause_seconds=5.0)
        run = await driver.start([], model=FIRST, deadline_seconds=0.001)
    assert (str(run.standing), len(server.requests)) in {("failed: deadline", 0), ("failed: deadline", 1)}


async def test_a_run_that_is_put_down_does_not_wait_for_a_model(drivers: Drivers) -> None:
    """The pause is left, the step is saved, and whoever goes on with the run asks anew."""
    async with endpoint(Reply(503), POST) as server:
        driver, control = drivers(server.url, model_pause_seconds=3600.0, model_retry_seconds=9999.0), RunControl()
        given = {"job": "notes", "model": FIRST, "goal": "post", "options": {"letters": str(driver.letters)}}

        async def drained() -> None:
            async for event in driver.agent.astream(given, driver.config, control=control, stream_mode="custom"):
                if "waits" in event:
                    control.request_drain()

        with pytest.raises(GraphDrained):
            await drained()
        assert str((await driver.run()).standing) == "queued: released"
        assert str((await driver.go_on()).standing) == "waiting: approval"
    assert len(server.requests) == 2


async def test_wherever_a_stream_is_cut_no_call_of_it_is_made(drivers: Drivers) -> None:
    """At each of its bytes, with the connection closed as if all were well: the whole answer makes its call, none of
    its beginnings does."""
    call = {"index": 0, "id": "a", "type": "function", "function": {"name": "note", "arguments": ""}}
    parts = [{"index": 0, "function": {"arguments": NOTE[at : at + 6]}} for at in range(0, len(NOTE), 6)]
    pieces = [chunk(tool_calls=[each]) for each in (call, *parts)]
    raw = "".join(f"data: {json.dumps(each)}\n\n" for each in [*pieces, chunk("tool_calls")])
    ended = raw.index('"finish_reason": "tool_calls"') + len('"finish_reason": "tool_calls"}]}\n')
    cuts = [*range(0, len(raw), 7), ended - 1, ended, len(raw)]
    async with endpoint(*[[raw[:cut]] for cut in cuts]) as server:
        driver = drivers(server.url)
        model = await driver.services.models.get(FIRST)
        made = []
        for cut in cuts:
            try:
                answer = await ask(model, [HumanMessage("hello")], NOTES.toolbox.schemas, call_id="model-1")
            except ModelTrouble:
                continue
            made += [cut] if answer.message.tool_calls else []
            assert bool(answer.failures) != bool(answer.message.tool_calls)
    assert made
    assert min(made) >= ended - 1
