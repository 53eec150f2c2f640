"""Long conversations, put to a real endpoint: each request fits into the model's window, and the run goes on."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from graph.spending import BYTES_A_TOKEN
from tests.helpers.app import Driver, application_on
from tests.helpers.endpoint import Endpoint, Reply, calling, endpoint

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


async def test_a_server_that_takes_nothing_ends_the_run_with_a_reason(driver: Driver, server: Endpoint) -> None:
    """After two halvings; the report says why."""
    server.answers[5:] = [TOO_LONG]
    run = await driver.start([], model="openai:some-model")
    assert str(run.standing) == "failed: model_unavailable"
    assert len(server.requests) == 5 + 3
    assert run.report is not None
    assert "maximum context length" in str(run.report["summary"])
