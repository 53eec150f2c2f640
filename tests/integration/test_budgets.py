"""Budgets of money and tokens, held against a real endpoint that counts how often it is asked."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from graph.durable import RESUME_KEY
from graph.jobs import Job
from scripts.bootstrap import build
from scripts.resuming import LimitReached, Raise, make_ready
from scripts.starting import check_input
from state.agent_state import RunInput
from state.errors import InvalidState, Refused
from state.runs import Run
from state.settings import Settings
from state.trace import Call
from tests.helpers.app import Driver, application_on, calls
from tests.helpers.cli import Cli, standing
from tests.helpers.endpoint import Chunks, Endpoint, Hangup, Reply, Trickle, calling, chunk, endpoint
from tests.helpers.notes import NOTES, letters
from tools.registry import Found, Toolbox, ToolContext, ToolResult, tool

A_TURN_USD = (1000 * 2.5 + 200 * 10) / 1e6
"""What each answer costs with gpt-4o."""


@pytest.fixture
async def driver(database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Driver]:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-devfix-test")
    application = application_on(database_url, tmp_path)
    yield Driver(application, tmp_path)
    await application.services.close()


@pytest.fixture
async def server(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Endpoint]:
    """Another look at something at each turn; each turn uses 1,000 and 200 tokens."""
    usage = {"prompt_tokens": 1000, "completion_tokens": 200, "total_tokens": 1200}
    async with endpoint(*[turn(place, usage) for place in range(50)]) as made:
        monkeypatch.setenv("OPENAI_BASE_URL", made.url)
        yield made


def turn(place: int, usage: dict[str, Any] | None) -> Chunks:
    *chunks, done = calling((f"c{place}", "look", json.dumps({"what": f"thing {place}"})))
    if usage is None:
        return [*chunks, done]
    counted = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [], "usage": usage}
    return [*chunks, counted, done]


async def begun(driver: Driver, model: str, **limits: Any) -> Run:
    return await driver.start([], model=model, **limits)


async def test_a_budget_of_money_ends_a_run_after_the_call_that_reached_it(driver: Driver, server: Endpoint) -> None:
    """At most one call too much; not one more is made until a person raises the budget."""
    run = await begun(driver, "openai:gpt-4o", budget_usd=2.5 * A_TURN_USD)
    assert str(run.standing) == "failed: budget"
    assert (len(server.requests), run.tokens) == (3, 3600)
    assert run.cost_usd == pytest.approx(3 * A_TURN_USD)
    assert run.report is not None
    more = 2 * 3 * A_TURN_USD
    assert f"devfix resume {run.run_id[:8]} --budget-usd {more:.6g}" in run.report["next"]  # type: ignore[operator]
    assert [call.cost_usd for call in await driver.services.trace.of(run.run_id) if call.kind == "model"] == [
        pytest.approx(A_TURN_USD)
    ] * 3

    with pytest.raises(LimitReached, match="--budget-usd"):
        await make_ready(driver.application, run, Raise(budget_usd=3 * A_TURN_USD))
    await make_ready(driver.application, run, Raise(budget_usd=4.5 * A_TURN_USD))
    await driver.agent.ainvoke(None, {"configurable": {"thread_id": run.run_id, RESUME_KEY: True}})
    again = await driver.run()
    assert (str(again.standing), len(server.requests)) == ("failed: budget", 5)


def counting(prompt: object, completion: object) -> dict[str, Any]:
    return {**chunk(), "choices": [], "usage": {"prompt_tokens": prompt, "completion_tokens": completion}}


TOLD_BADLY: dict[str, tuple[list[Any], list[Any]]] = {
    "no chunk with usage": ([], []),
    "usage that is null": ([], [{**chunk(), "usage": None}]),
    "usage without numbers": ([], [{**chunk(), "choices": [], "usage": {}}]),
    "usage of zeros": ([], [counting(0, 0)]),
    "usage below zero": ([], [counting(-9000, -9000)]),
    "nothing said to be answered": ([], [counting(600, 0)]),
    "nothing said to be asked": ([], [counting(0, 40)]),
    "usage before the answer alone": ([counting(1, 0)], []),
    "usage before the answer, then null": ([counting(1, 1)], [{**chunk(), "usage": None}]),
}
"""What a stream says of its tokens, before and after the answer."""


@pytest.mark.parametrize("told", TOLD_BADLY)
async def test_b47_tokens_that_a_stream_does_not_count_are_estimated(
    driver: Driver, server: Endpoint, told: str
) -> None:
    """By the size of what was asked and answered, so that no turn is free and a budget of money ends the run."""
    before, after = TOLD_BADLY[told]
    streams = [turn(place, None) for place in range(50)]
    server.answers = [[*before, *stream[:-1], *after, stream[-1]] for stream in streams]
    run = await begun(driver, "openai:gpt-4o", budget_usd=0.02)
    assert str(run.standing) == "failed: budget"
    assert 2 <= len(server.requests) < 50
    made = [call for call in await driver.services.trace.of(run.run_id) if call.kind == "model"]
    least = [(len(json.dumps(request["messages"])) / 5 * 2.5 + 20 * 10) / 1e6 for request in server.requests]
    assert all(call.cost_usd > usd for call, usd in zip(made, least, strict=True) if call.cost_usd is not None)
    assert run.cost_usd == pytest.approx(sum(call.cost_usd or 0.0 for call in made))
    assert run.cost_usd - (made[-1].cost_usd or 0.0) < 0.02 <= run.cost_usd


async def test_b47_a_count_that_grows_with_the_stream_is_taken_as_it_ends(driver: Driver, server: Endpoint) -> None:
    """Each chunk tells how much it has been so far; the last word counts, once."""
    *stream, done = turn(0, None)
    grown = [{**each, "usage": counting(1000, 100 * n)["usage"]} for n, each in enumerate(stream, 1)]  # type: ignore[dict-item]
    server.answers = [[*grown, done]]
    run = await begun(driver, "openai:gpt-4o", budget_tokens=1)
    assert (str(run.standing), run.tokens) == ("failed: budget", 1000 + 100 * len(grown))


async def test_b47_tokens_of_a_model_without_a_price_are_counted_too(driver: Driver, server: Endpoint) -> None:
    """A budget of tokens holds where nobody knows what they cost."""
    server.answers = [turn(place, None) for place in range(50)]
    run = await begun(driver, "openai:some-model", budget_tokens=2000)
    assert str(run.standing) == "failed: budget"
    assert run.tokens >= 2000
    assert 2 <= len(server.requests) < 50


async def test_b50_cheap_turns_with_a_huge_context_end_at_the_budget_and_go_on_with_more(
    database_url: str, tmp_path: Path, server: Endpoint
) -> None:
    """At the command line: four calls of a quarter of a dollar, and no fifth one; a resume without a raise makes none;
    each raise buys what it pays for; in the end the letter is posted once."""
    usage = {"prompt_tokens": 100_000, "completion_tokens": 10, "total_tokens": 100_010}
    a_turn = (100_000 * 2.5 + 10 * 10) / 1e6
    posts = calling(("p", "post", '{"to": "ada", "text": "dear"}'))
    server.answers = [*[turn(place, usage) for place in range(9)], [*posts[:-1], counting(100_000, 10), posts[-1]]]
    cli, sink = Cli(tmp_path, database_url), tmp_path / "letters"
    cli.environment |= {
        "DEVFIX_JOB": "tests.helpers.notes:NOTES",
        "OPENAI_API_KEY": "sk-devfix-test",
        "OPENAI_BASE_URL": server.url,
    }

    async def said(*arguments: object) -> tuple[int, str, int]:
        """The command's exit code, how the run stands then, and how often the model was asked in all."""
        ended = await asyncio.to_thread(cli, *arguments, "--json")
        assert ended.facts["cost_usd"] == pytest.approx(len(server.requests) * a_turn)
        assert ended.facts["report"]["next"], ended
        return ended.code, standing(ended.facts), len(server.requests)

    start = ("run", "--model", "openai:gpt-4o", "--budget-usd", 1, "--option", f"letters={sink}")
    assert await said(*start) == (4, "failed: budget", 4)
    assert await said("resume", "last") == (2, "failed: budget", 4)
    assert await said("resume", "last", "--budget-usd", 1) == (2, "failed: budget", 4)
    assert await said("resume", "last", "--budget-usd", 2) == (4, "failed: budget", 8)
    assert await said("resume", "last", "--budget-usd", 9) == (3, "waiting: approval", 10)
    assert await said("approve", "last") == (0, "completed: done", 10)
    assert len(letters(sink)) == 1


BREAKS: dict[str, tuple[Any, dict[str, Any]]] = {
    "cut in the middle": ([*calling(("c", "look", '{"what": "'))[:1], "data: {broken\n\n"], {}),
    "silent after a word": (Trickle([chunk(content="I")], pause=60.0), {"model_silence_seconds": 0.3}),
    "silent from the start": (Trickle([": wait\n\n"], pause=60.0), {"model_silence_seconds": 0.3}),
    "without an end": (Trickle([chunk(content="on and ")], pause=0.02), {"model_call_seconds": 0.4}),
}


@pytest.mark.parametrize("how", BREAKS)
async def test_tries_whose_answers_break_off_cost_what_their_server_may_charge(
    database_url: str, tmp_path: Path, server: Endpoint, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """The question and what came of the answer; so money ends a run after the try that used it up, and no further one
    is made, nor is another model asked."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-devfix-test")
    answer, settings = BREAKS[how]
    patient = {"model_pause_seconds": 0.01, "fallback_models": ["openai:gpt-4o-mini"], **settings}
    application = application_on(database_url, tmp_path, **patient)
    driver = Driver(application, tmp_path)
    server.answers = [answer]
    a_try = 400 * 2.5 / 1e6  # at least, by the size of prompt and tools
    run = await begun(driver, "openai:gpt-4o", budget_usd=1.9 * a_try)
    assert str(run.standing) == "failed: budget"
    assert len(server.requests) == 2
    assert run.cost_usd >= 2 * a_try
    made = [call for call in await driver.services.trace.of(run.run_id) if call.kind == "model"]
    assert sum(call.cost_usd or 0.0 for call in made) == pytest.approx(run.cost_usd)
    await application.services.close()


@pytest.mark.parametrize("answer", [Reply(503), Reply(429, headers={"retry-after-ms": "1"}), Hangup()])
async def test_a_refused_try_costs_nothing(driver: Driver, server: Endpoint, answer: Any) -> None:
    """Nor one that never had an answer's beginning because its connection was closed at once."""
    server.answers = [answer, answer, turn(0, None)]
    driver.services.chain.settings.model_pause_seconds = 0.01
    run = await begun(driver, "openai:gpt-4o", budget_tokens=1)
    made = [call.cost_usd for call in await driver.services.trace.of(run.run_id) if call.kind == "model"]
    assert (made[:2], len(made)) == ([None, None], 3)


@pytest.mark.parametrize("pause", [0.05, 60.0])
async def test_the_deadline_holds_in_the_middle_of_a_call(driver: Driver, server: Endpoint, pause: float) -> None:
    """The call is cut off, the trace tells of it, and with more time the run asks again."""
    server.answers = [Trickle([chunk(content="x")], pause=pause), turn(1, None), Trickle([chunk(content="x")])]
    await driver.services.models.get("openai:some-model")  # loading its client takes some of the time
    run = await begun(driver, "openai:some-model", deadline_seconds=0.5)
    assert (str(run.standing), len(server.requests)) == ("failed: deadline", 1)
    assert [call.error for call in await driver.services.trace.of(run.run_id) if call.kind == "model"] == [
        "cut off: the time of the run was used up"
    ]

    with pytest.raises(LimitReached, match="--deadline-seconds"):
        await make_ready(driver.application, run, Raise())
    await make_ready(driver.application, run, Raise(deadline_seconds=2.0))
    await driver.agent.ainvoke(None, {"configurable": {"thread_id": run.run_id, RESUME_KEY: True}})
    assert (str((await driver.run()).standing), len(server.requests)) == ("failed: deadline", 3)


async def raised(driver: Driver, **limits: Any) -> Run:
    await make_ready(driver.application, await driver.run(), Raise(**limits))
    await driver.agent.ainvoke(None, {"configurable": {"thread_id": driver.run_id, RESUME_KEY: True}})
    return await driver.run()


async def test_the_deadline_holds_in_the_middle_of_a_tools_call(driver: Driver) -> None:
    """It is cut off and has no result; the report and the trace name it. With more time it is made again, and the model
    is not asked for it twice."""
    turns = [
        calls(("look", {"what": "sea", "seconds": 4.0}), ("look", {"what": "sky"})),
        calls(("look", {"what": "all"})),
    ]
    run = await driver.start(turns, deadline_seconds=1.0)
    assert str(run.standing) == "failed: deadline"
    _, cut = await tool_calls(driver)
    assert cut.seconds < 4.0
    assert run.report is not None
    assert "look (" in str(run.report["summary"])
    assert "was stopped before it ended" in str(run.report["left"])
    assert ["deadline" in (call.error or "") for call in await tool_calls(driver)] == [False, True]
    with pytest.raises(LimitReached, match="--deadline-seconds"):
        await raised(driver)
    await raised(driver, deadline_seconds=60.0)
    results = [each["content"] for each in (await driver.state())["messages"] if each["type"] == "tool"]
    assert sorted(results[:2]) == ["saw sea", "saw sky"]
    assert [call.name for call in await tool_calls(driver)].count("look") == 4


async def tool_calls(driver: Driver) -> list[Call]:
    return [call for call in await driver.services.trace.of(driver.run_id) if call.kind == "tool"]


def sending(*, late: bool, checkable: bool) -> Job:
    """The notes job with an effect that nobody is asked about, and that hangs the first time: before the letter is
    posted, or after."""

    async def find(args: Mapping[str, Any], context: ToolContext) -> Found:
        sent = letters(Path(str(context.work["letters"])))
        return next((letter for letter in sent if letter["key"] == context.key), None)

    async def send(to: str, *, context: ToolContext) -> ToolResult:
        """Send a letter."""
        sink = Path(str(context.work["letters"]))
        mark = sink.with_suffix(".tried")
        first = not mark.exists()
        mark.touch()
        if first and late:
            await asyncio.sleep(30)
        before = sink.read_text() if sink.exists() else ""
        sink.write_text(before + json.dumps({"to": to, "key": context.key}) + "\n")
        if first:
            await asyncio.sleep(30)
        return ToolResult(content="sent", facts={"to": to})

    made = tool(kind="effect", gated=False, verify=find if checkable else None, uncheckable=not checkable)(send)
    return replace(NOTES, toolbox=Toolbox.of([*NOTES.toolbox, made]))


@pytest.mark.parametrize(
    ("late", "checkable", "ends", "sent"),
    [
        (False, True, "waiting: approval", 1),
        (True, True, "waiting: approval", 1),
        (False, False, "waiting: escalation", 1),
        (True, False, "waiting: escalation", 0),
    ],
)
async def test_an_effect_that_the_deadline_cuts_off_is_looked_for_when_the_run_goes_on(
    database_url: str, tmp_path: Path, late: bool, checkable: bool, ends: str, sent: int
) -> None:
    """What is there is settled, what is not is done; where nobody can know, a person is asked. Never twice."""
    settings = Settings(database_url=database_url, home=tmp_path / "home", tool_retries=0)
    application = build(settings, label="test", jobs={"notes": sending(late=late, checkable=checkable)})
    driver = Driver(application, tmp_path)
    turns = [calls(("send", {"to": "ada"})), calls(("post", {"to": "bob", "text": "dear"}))]
    run = await driver.start(turns, deadline_seconds=0.5)
    assert str(run.standing) == "failed: deadline"
    assert run.report is not None
    assert "whether it happened is found out" in str(run.report["summary"])
    assert [effect.state for effect in await driver.services.ledger.of(run.run_id)] == ["claimed"]
    assert str((await raised(driver, deadline_seconds=60.0)).standing) == ends
    assert len(letters(driver.letters)) == sent
    await application.services.close()


async def test_what_a_person_approved_is_done_though_the_time_is_over_meanwhile(
    database_url: str, tmp_path: Path
) -> None:
    """It has its own time, and the run ends at its limit behind it."""

    async def carry(to: str, *, context: ToolContext) -> str:
        """Carry a letter there, which takes a while."""
        await asyncio.sleep(1.0)
        return f"carried to {to}"

    toolbox = Toolbox.of([*NOTES.toolbox, tool(kind="effect", uncheckable=True)(carry)])
    settings = Settings(database_url=database_url, home=tmp_path / "home", tool_retries=0)
    application = build(settings, label="test", jobs={"notes": replace(NOTES, toolbox=toolbox)})
    driver = Driver(application, tmp_path)
    run = await driver.start([calls(("carry", {"to": "ada"}))], deadline_seconds=0.8)
    assert str(run.standing) == "waiting: approval"
    assert str((await driver.approved()).standing) == "failed: deadline"
    assert [effect.state for effect in await driver.services.ledger.of(run.run_id)] == ["settled"]
    await application.services.close()


async def test_a_budget_of_money_without_a_price_begins_nothing(driver: Driver, server: Endpoint) -> None:
    """The command line refuses it; through the API the run says so. A price of one's own is enough."""
    given = RunInput(model="openai:some-model", budget_usd=1.0, job="notes", options={"letters": str(driver.letters)})
    with pytest.raises(Refused, match="nobody has said what openai:some-model costs"):
        await check_input(driver.application, given)
    with pytest.raises(InvalidState, match="DEVFIX_PRICES"):
        await begun(driver, "openai:some-model", budget_usd=1.0)
    assert str((await driver.run()).standing) == "failed: invalid_state"
    assert server.requests == []


async def test_a_budget_can_not_be_raised_onto_a_model_without_a_price(driver: Driver, server: Endpoint) -> None:
    """Nor can a run with a budget change to one."""
    run = await begun(driver, "openai:gpt-4o", budget_usd=A_TURN_USD)
    asked = len(server.requests)
    with pytest.raises(Refused, match="nobody has said what openai:some-model costs"):
        await make_ready(driver.application, run, Raise(budget_usd=1.0, model="openai:some-model"))
    assert (await driver.run(), len(server.requests)) == (run, asked)
