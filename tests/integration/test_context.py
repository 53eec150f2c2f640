"""Long conversations, put to a real endpoint: each request fits into the model's window, and the run goes on."""

from __future__ import annotations

import json
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from graph.durable import RESUME_KEY
from graph.spending import BYTES_A_TOKEN
from scripts.branching import branch
from scripts.resuming import Raise, make_ready
from state.approvals import Decision
from tests.helpers.app import Driver, application_on
from tests.helpers.endpoint import Endpoint, Reply, calling, endpoint
from tests.helpers.notes import letters

WINDOW = 24_000
TURNS = 20
TOO_LONG = Reply(
    400,
    {
        "error": {
            "message": "This model's maximum context length is 8192 tokens.",
            "type": "invalid_request_error",
            "code": "context_length_exceeded",
        }
    },
)
IN_OTHER_WORDS = Reply(400, {"error": {"message": "the request exceeds the available context size", "code": 400}})


@pytest.fixture
async def driver(database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Driver]:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-devfix-test")
    application = application_on(database_url, tmp_path, model_context_tokens=WINDOW, model_pause_seconds=0)
    yield Driver(application, tmp_path)
    await application.services.close()


@pytest.fixture
async def server(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Endpoint]:
    """Fetches something large again and again, then posts a letter."""
    fetches = [calling((f"f{turn}", "fetch", json.dumps({"kilobytes": 24, "turn": turn}))) for turn in range(TURNS)]
    async with endpoint(*fetches, calling(("p", "post", '{"to": "ada", "text": "all of it"}'))) as made:
        monkeypatch.setenv("OPENAI_BASE_URL", made.url)
        yield made


def size(request: dict[str, Any]) -> int:
    """Estimated tokens of the conversation."""
    return len(json.dumps(request["messages"]).encode()) // BYTES_A_TOKEN


async def test_a_conversation_that_grows_past_the_window_is_made_to_fit(driver: Driver, server: Endpoint) -> None:
    """The prompt, the goal and the newest result are in each request; the history is whole in the state."""
    run = await driver.start([], model="openai:some-model")
    assert str(run.standing) == "waiting: approval", run.report
    assert len(server.requests) == TURNS + 1
    for turn, request in enumerate(server.requests):
        messages = request["messages"]
        assert size(request) <= WINDOW
        assert messages[0]["role"] == "system"
        assert messages[1]["content"].startswith("post the letters")
        if turn:
            assert messages[-1]["tool_call_id"] == f"f{turn - 1}"
            assert len(messages[-1]["content"]) > 15_000
    assert "Earlier turns are left out here" in json.dumps(server.requests[-1]["messages"])
    results = [record for record in (await driver.state())["messages"] if record["type"] == "tool"]
    assert len(results) == TURNS


@pytest.mark.parametrize("refusal", [TOO_LONG, IN_OTHER_WORDS])
async def test_a_server_with_a_smaller_window_is_sent_half_and_half_again(
    driver: Driver, server: Endpoint, refusal: Reply
) -> None:
    """Nobody has to know how large the window is."""
    server.answers[5:5] = [refusal, refusal]
    run = await driver.start([], model="openai:some-model")
    assert str(run.standing) == "waiting: approval", run.report
    tries = [size(request) for request in server.requests[5:8]]
    assert tries[0] > tries[1] > tries[2]
    assert len(server.requests) == TURNS + 3


async def test_b102_a_server_that_finds_each_turn_too_long_at_first_is_asked_thrice_at_most(
    driver: Driver, server: Endpoint
) -> None:
    """Turn after turn two requests are refused and the third one is taken: the run gets where it wants."""
    first, *rest = server.answers
    server.answers = [first, *[each for answer in rest for each in (TOO_LONG, IN_OTHER_WORDS, answer)]]
    run = await driver.start([], model="openai:some-model")
    assert (str(run.standing), len(server.requests)) == ("waiting: approval", 1 + 3 * TURNS)
    assert str((await driver.approved()).standing) == "completed: done"
    assert len(letters(driver.letters)) == 1


@pytest.mark.parametrize("way", ["resume", "branch with a word"])
async def test_b102_a_run_whose_context_overflows_for_ever_stops_and_has_a_way_back(
    driver: Driver, server: Endpoint, way: str
) -> None:
    """Two condensations, then the end with its reason; each further try is as many again, and when the conversation is
    taken, or a person has said a word, the run goes on to its letter."""
    fetches, post = server.answers[:-1], server.answers[-1]
    server.answers = [*fetches[:5], TOO_LONG]
    run = await driver.start([], model="openai:some-model")
    assert (str(run.standing), len(server.requests)) == ("failed: model_unavailable", 5 + 3)
    assert run.report is not None
    assert "maximum context length" in str(run.report["summary"])
    assert any(f"devfix resume {run.run_id[:8]}" in str(command) for command in run.report["next"])  # type: ignore[union-attr]
    config = {"configurable": {"thread_id": run.run_id, RESUME_KEY: True}}
    for tries in (1, 2):
        await make_ready(driver.application, await driver.run(), Raise())
        await driver.agent.ainvoke(None, config)
        assert str((await driver.run()).standing) == "failed: model_unavailable"
        assert len(server.requests) == 5 + 3 + 3 * tries

    server.answers = [post]
    if way == "branch with a word":
        steps = await driver.application.steps.of(run.run_id)
        made = await branch(driver.application, run, steps[-1], message="Leave the rest, post it now.")
        driver.run_id = made.run_id
        await driver.go_on()
        assert "Leave the rest, post it now." in json.dumps(server.requests[-1]["messages"])
    else:
        await make_ready(driver.application, await driver.run(), Raise())
        await driver.agent.ainvoke(None, config)
    assert str((await driver.approved()).standing) == "completed: done"
    assert len(letters(driver.letters)) == 1


async def test_b102_a_run_that_was_told_off_goes_on_after_a_persons_word(driver: Driver, server: Endpoint) -> None:
    """The detector of circles stops it with a question, not for good; an answer begins its count anew."""
    circle = calling(("f", "fetch", '{"kilobytes": 1}'))
    server.answers = [circle]
    run = await driver.start([], model="openai:some-model")
    assert str(run.standing) == "waiting: escalation"
    asked = len(server.requests)
    server.answers = [circle, circle, calling(("p", "post", '{"to": "ada", "text": "all of it"}'))]
    row = (await driver.services.approvals.of(run.run_id))[-1]
    advice = Decision(type="respond", message="look twice more, then post")
    await driver.services.approvals.decide(run.run_id, row.question.call_id, advice, by="eve")
    assert str((await driver.go_on()).standing) == "waiting: approval"
    assert len(server.requests) == asked + 3


CALLS = 100


async def test_b88_a_hundred_calls_take_as_much_storage_each(driver: Driver, server: Endpoint) -> None:
    """Results of 5 KB that nothing compresses: the second half of them takes as much as the first one, and not many
    times what there is to keep; what is sent stays within the window."""
    chance = random.Random(88)
    things = [
        chance.randbytes(1250).hex() + "".join(map(chr, chance.choices(range(33, 126), k=2500))) for _ in range(CALLS)
    ]
    looks = [calling((f"c{place}", "look", json.dumps({"what": what}))) for place, what in enumerate(things)]
    server.answers = [*looks, calling(("p", "post", '{"to": "ada", "text": "all of it"}'))]
    sizes = {}
    given = {"job": "notes", "model": "openai:some-model", "options": {"letters": str(driver.letters)}, "goal": "go"}
    async for _ in driver.agent.astream(given, driver.config, stream_mode="updates"):
        sizes[len(server.requests)] = await stored(driver)
    assert str((await driver.run()).standing) == "waiting: approval"
    assert all(size(request) <= WINDOW for request in server.requests)
    first, second = sizes[CALLS // 2] - sizes[1], sizes[CALLS] - sizes[CALLS // 2]
    assert second < 1.3 * first
    assert second < 6 * 2 * sum(map(len, things[CALLS // 2 :]))  # a call and its result


async def stored(driver: Driver) -> int:
    """Bytes of all tables."""
    async with driver.application.database.transaction() as connection:
        cursor = await connection.execute(
            "SELECT sum(pg_total_relation_size(oid))::bigint AS bytes FROM pg_class "
            "WHERE relnamespace = 'devfix'::regnamespace AND relkind = 'r'"
        )
        row = await cursor.fetchone()
    assert row is not None
    return int(row["bytes"])
