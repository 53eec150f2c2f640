"""openai:NAME against servers on loopback: a whole repair, and what becomes of each way in which a model fails.

The mock server is llmock, through the real client over real sockets. What it does not send comes from a small
endpoint of our own.
"""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import zlib
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import HumanMessage
from langchain_core.runnables import RunnableConfig
from llmock.pytest_plugin import LLMock
from llmock.scenarios import Reply, ToolCall

from graph.durable import RESUME_KEY
from graph.models.ask import Answer, ask
from graph.models.load import ModelLoader
from graph.models.trouble import ModelTrouble
from scripts.resuming import Raise, make_ready
from state.approvals import Decision
from state.errors import Refused
from state.model_settings import ModelSettings
from state.runs import Run
from state.trace import Call
from tests.helpers.app import Driver, application_on, calls
from tests.helpers.cli import CALC, FIX, TEST, Cli, standing
from tests.helpers.endpoint import assert_valid_for_every_provider, calling, chunk, endpoint, saying
from tests.helpers.memory_stores import MemoryRuns, MemoryTrace
from tests.helpers.notes import letters

KEY = "sk-devfix-test-5f0c1d7e"
POST_ADA = ("post", {"to": "ada", "text": "hello"})


@pytest.fixture
def server(llmock: LLMock, monkeypatch: pytest.MonkeyPatch) -> LLMock:
    """llmock, saying what it is told to and nothing else."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    return llmock.tool_mode("off")


@pytest.fixture
async def driver(database_url: str, tmp_path: Path) -> AsyncIterator[Driver]:
    application = application_on(database_url, tmp_path, model_pause_seconds=0.01)
    yield Driver(application, tmp_path)
    await application.services.close()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "repository"
    folder.mkdir()
    (folder / "calc.py").write_text(CALC)
    (folder / "test_calc.py").write_text(TEST)
    return folder


def says(server: LLMock, *turns: str | Sequence[tuple[str, dict[str, Any]]]) -> None:
    """What the model says from here on, turn by turn: a text, or calls."""
    for turn in turns:
        if isinstance(turn, str):
            server.add(Reply(text=turn))
        else:
            server.add(Reply(tool_calls=tuple(ToolCall(name, args) for name, args in turn)))


async def post(driver: Driver) -> Run:
    """The notes job with the endpoint's model, until it waits or ends."""
    return await driver.start([], model="openai:some-model")


async def model_calls(driver: Driver) -> list[Call]:
    return [call for call in await driver.services.trace.of(driver.run_id) if call.kind == "model"]


async def failures(driver: Driver) -> list[str]:
    return [failure["kind"] for failure in (await driver.state())["failures"]]


def bodies(server: LLMock) -> list[Mapping[str, Any]]:
    return [record.body for record in server.requests]


async def test_a_whole_repair_by_an_endpoints_model(driver: Driver, server: LLMock, repository: Path) -> None:
    """It reads, edits, runs the tests and asks for approval; approved, the folder is repaired and the run completed.
    Each call is streamed, its tokens are counted, and the trace holds it."""
    says(
        server,
        [("read_file", {"path": "calc.py"}), ("read_file", {"path": "test_calc.py"})],
        [("edit_file", {"path": "calc.py", "old": "a - b", "new": "a + b"})],
        [("run_tests", {})],
        [("apply_patch_to_repository", {"summary": "add adds"})],
    )
    await driver.agent.ainvoke({"repository": str(repository), "model": "openai:gpt-4o"}, driver.config)
    assert str((await driver.run()).standing) == "waiting: approval"
    assert (repository / "calc.py").read_text() == CALC

    ended = await driver.approved()

    assert str(ended.standing) == "completed: done"
    assert (repository / "calc.py").read_text() == CALC.replace("a - b", "a + b")
    made = await model_calls(driver)
    assert [call.name for call in made] == ["gpt-4o"] * 4
    assert all(call.error is None and call.input_tokens and call.output_tokens for call in made)
    spent = sum((call.input_tokens or 0) + (call.output_tokens or 0) for call in made)
    assert (await driver.state())["tokens"] == ended.tokens == spent
    assert [record.stream for record in server.requests] == [True] * 4
    for body in bodies(server):
        assert_valid_for_every_provider(body)
    server.assert_resilient(strict=True)


async def test_the_trace_says_what_was_asked_without_the_history_again(driver: Driver, server: LLMock) -> None:
    """Case B88 in small: a request's record does not grow with the history; its ids name what was new."""
    says(server, *[[("look", {"what": f"{number} {'x' * 2000}"})] for number in range(12)], [POST_ADA])
    await post(driver)
    made = await model_calls(driver)
    requests = [call.request for call in made]
    assert [each["messages"] for each in requests] == [1 + 2 * number for number in range(13)]
    assert requests[0]["new"] == ["goal"]
    assert [len(each["new"]) for each in requests] == [1] * 13  # type: ignore[arg-type]
    assert requests[1]["new"] == [f"result-{made[0].result['tool_calls'][0]['id']}"]  # type: ignore[index,call-overload]
    assert requests[0]["tools"] == ["look", "count", "fetch", "note", "post"]
    assert len({(each["prompt"], each["schemas"]) for each in requests}) == 1
    assert max(len(json.dumps(each)) for each in requests) < 500


async def test_a_refused_key_ends_the_run_at_once(driver: Driver, server: LLMock) -> None:
    """One request, no retry; the run can be resumed with a better key, and goes on."""
    server.fail(401, times=1, message=f"Incorrect API key provided: {KEY}")
    says(server, [POST_ADA])
    ended = await post(driver)
    assert str(ended.standing) == "failed: model_unavailable"
    assert len(server.requests) == 1
    assert ended.report is not None
    assert "Incorrect API key provided: ***" in str(ended.report["summary"])
    assert any("devfix resume" in str(command) for command in ended.report["next"])  # type: ignore[union-attr]
    assert str((await resumed(driver)).standing) == "waiting: approval"


async def test_a_server_that_breaks_is_asked_again_and_then_given_up(driver: Driver, server: LLMock) -> None:
    """Four retries, each in the trace; then failed: model_unavailable, with a report. The model is told nothing of it,
    and when the server is back a resume has all its retries again."""
    server.fail(500, times=5)
    ended = await post(driver)
    assert str(ended.standing) == "failed: model_unavailable"
    assert ended.report is not None
    assert "500" in str(ended.report["summary"])
    assert len(server.requests) == 5
    assert all(call.error and call.result is None for call in await model_calls(driver))
    assert [record["type"] for record in (await driver.state())["messages"]] == ["human"]

    server.fail(503, times=4)
    says(server, [POST_ADA])
    assert str((await resumed(driver)).standing) == "waiting: approval"
    assert str((await driver.approved()).standing) == "completed: done"


async def test_a_passing_trouble_is_met_by_the_client_itself(driver: Driver, server: LLMock) -> None:
    """It waits as long as Retry-After asks, and the run does not notice."""
    server.rate_limit(times=1, retry_after=1.0).fail(500, times=1)
    says(server, [POST_ADA])
    assert str((await post(driver)).standing) == "waiting: approval"
    assert await failures(driver) == []
    server.assert_resilient(strict=True)


@pytest.mark.parametrize("fault", ["disconnect", "corrupt"])
async def test_a_broken_stream_is_asked_for_again(driver: Driver, server: LLMock, fault: str) -> None:
    """What came before the break is not used."""
    getattr(server, fault)(after_chunks=4)
    says(server, [("note", {"path": "half", "text": "x"})], [POST_ADA])
    assert str((await post(driver)).standing) == "waiting: approval"
    assert [call.result is None for call in await model_calls(driver)] == [True, False]
    assert await failures(driver) == []


async def test_broken_arguments_are_repaired_in_one_turn(driver: Driver, server: LLMock) -> None:
    """Nothing is performed; the model is told what was wrong, and every later request is one that servers take."""
    server.break_tool_call("malformed_arguments")
    says(server, [("note", {"path": "a", "text": "x"})], [POST_ADA])
    assert str((await post(driver)).standing) == "waiting: approval"
    assert await failures(driver) == ["unparsable_output"]
    assert [call.name for call in await driver.services.trace.of(driver.run_id) if call.kind == "tool"] == []
    assert "the arguments of note are not a JSON object" in bodies(server)[1]["messages"][-1]["content"]
    assert str((await driver.approved()).standing) == "completed: done"
    for body in bodies(server):
        assert_valid_for_every_provider(body)


async def test_output_that_stays_broken_ends_the_run(driver: Driver, server: LLMock) -> None:
    """Repaired once, whatever is wrong the second time; then failed: unparsable_output with the reason."""
    server.break_tool_call("malformed_arguments")
    says(server, [("note", {"path": "a", "text": "x"})], "")
    ended = await post(driver)
    assert str(ended.standing) == "failed: unparsable_output"
    assert await failures(driver) == ["unparsable_output", "empty_output"]
    assert len(server.requests) == 2
    made = await model_calls(driver)
    assert [(call.error or "").split(":")[0] for call in made] == ["unparsable_output", "empty_output"]


async def test_an_unknown_tool_is_answered_with_an_error(driver: Driver, server: LLMock) -> None:
    """Which names the tools there are; the run goes on."""
    server.break_tool_call("unknown_tool")
    says(server, [("look", {"what": "sea"})], [POST_ADA])
    assert str((await post(driver)).standing) == "waiting: approval"
    result = bodies(server)[1]["messages"][-1]
    assert (result["role"], "There is no tool llmock_unknown_tool" in result["content"]) == ("tool", True)
    assert_valid_for_every_provider(bodies(server)[1])


async def test_a_silently_cut_stream_is_not_taken_for_an_answer(driver: Driver, server: LLMock) -> None:
    """No finish reason: the call that it holds is not made, though what there is of it reads well."""
    server.truncate(after_chunks=7)
    says(server, [("note", {"path": "a", "text": "y" * 200})], [POST_ADA])
    assert str((await post(driver)).standing) == "waiting: approval"
    assert await failures(driver) == ["truncated_output"]
    assert (await model_calls(driver))[0].input_tokens is None
    assert [call.name for call in await driver.services.trace.of(driver.run_id) if call.kind == "tool"] == []


async def test_a_turn_that_reached_its_length_is_not_performed(driver: Driver, server: LLMock) -> None:
    """Twice asked to be shorter, then failed: unparsable_output."""
    cut = (ToolCall("note", {"path": "a", "text": "x"}),)
    server.add(Reply(tool_calls=cut, finish_reason="length", times=3))
    assert str((await post(driver)).standing) == "failed: unparsable_output"
    assert await failures(driver) == ["truncated_output"] * 3
    assert len(server.requests) == 3
    assert [call.name for call in await driver.services.trace.of(driver.run_id) if call.kind == "tool"] == []


async def test_empty_answers_end_the_run(driver: Driver, server: LLMock) -> None:
    """After one repair."""
    server.add(Reply(text="", times=2))
    assert str((await post(driver)).standing) == "failed: unparsable_output"
    assert len(server.requests) == 2


async def test_a_filtered_answer_is_a_refusal(driver: Driver, server: LLMock) -> None:
    """And ends as one when it is repeated."""
    server.add(Reply(text="I can't", finish_reason="content_filter", times=2))
    assert str((await post(driver)).standing) == "failed: refused"


async def test_the_key_is_nowhere(
    driver: Driver, server: LLMock, caplog: pytest.LogCaptureFixture, database_url: str
) -> None:
    """Not in the database, not in a log, however talkative; a server that sends it back in an error does not bring it
    in either."""
    caplog.set_level(logging.DEBUG)
    server.fail(500, message=f"upstream said: Authorization: Bearer {KEY}")
    says(server, [("look", {"what": "a sign of life"})], [POST_ADA])
    await post(driver)
    assert str((await driver.approved()).standing) == "completed: done"
    everything = b"\n".join([cell async for cell in cells(driver)])
    assert b"a sign of life" in everything
    assert b"upstream said: Authorization: Bearer ***" in everything
    assert KEY.encode() not in everything
    assert "chat/completions" in caplog.text
    assert KEY not in caplog.text
    assert KEY not in repr(await driver.services.models.get("openai:some-model"))


async def cells(driver: Driver) -> AsyncIterator[bytes]:
    """Every value of every table, whole: packed ones unpacked."""
    async with driver.application.database.transaction() as connection:
        cursor = await connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = current_schema()")
        for table in [row["tablename"] for row in await cursor.fetchall()]:
            cursor = await connection.execute(f'SELECT * FROM "{table}"')
            for value in [value for row in await cursor.fetchall() for value in row.values()]:
                for data in _unpacked(value):
                    yield data


def _unpacked(value: object) -> Iterator[bytes]:
    data = bytes(value) if isinstance(value, (bytes, memoryview)) else str(value).encode()
    yield data
    for start in range(8):
        try:
            yield zlib.decompressobj().decompress(data[start:])
        except zlib.error:
            continue


async def test_recorded_answers_give_the_same_run_again(driver: Driver, server: LLMock, database_url: str) -> None:
    """Errors lie between them; the second run asks nobody, makes the same calls under the same ids, and ends so."""
    server.fail(500).break_tool_call("malformed_arguments")
    says(server, [("note", {"path": "a", "text": "x"})], [("look", {"what": "sea"})], [POST_ADA])
    await post(driver)
    assert await failures(driver) == ["unparsable_output"]
    assert str((await driver.approved()).standing) == "completed: done"
    first, requests = await driver.state(), len(server.requests)

    for _ in range(2):
        again = Driver(driver.application, driver.folder)
        waiting = await again.start([], model=f"recorded:{driver.run_id[:8]}")
        assert str(waiting.standing) == "waiting: approval"
        assert str((await again.approved()).standing) == "completed: done"
        second = await again.state()
        assert [called(record) for record in second["messages"]] == [called(record) for record in first["messages"]]
        assert [failure["kind"] for failure in second["failures"]] == ["unparsable_output"]
    assert len(server.requests) == requests
    assert [letter["to"] for letter in letters(driver.letters)] == ["ada"] * 3


def called(record: Mapping[str, Any]) -> tuple[Any, ...]:
    """What a message says, without the step that its id is named after."""
    made = [(call["id"], call["name"], call["args"]) for call in record.get("tool_calls") or ()]
    return record["type"], record["content"], made, record.get("tool_call_id")


async def test_a_script_goes_on_in_another_process(driver: Driver, database_url: str) -> None:
    """At the turn that is next, not at its beginning."""
    await driver.start(
        [calls(("look", {"what": "sea"})), calls(POST_ADA), calls(("post", {"to": "bob", "text": "x"}))], wanted=2
    )
    second = Driver(application_on(database_url, driver.folder), driver.folder)
    second.run_id = driver.run_id
    assert str((await second.approved()).standing) == "waiting: approval"
    assert str((await second.approved()).standing) == "completed: done"
    assert [letter["to"] for letter in letters(driver.letters)] == ["ada", "bob"]
    await second.services.close()


async def test_a_missing_key_is_one_sentence(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before a run begins on the command line; a run that comes without it ends truly."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(Refused, match="set OPENAI_API_KEY"):
        await driver.services.models.get("openai:gpt-4o")
    ended = await post(driver)
    assert str(ended.standing) == "failed: model_unavailable"
    assert "set OPENAI_API_KEY" in str(ended.report)


@pytest.fixture
def cli(tmp_path: Path, database_url: str) -> Cli:
    """The command line with nothing in its environment but what it can't do without."""
    cli = Cli(tmp_path, database_url)
    cli.environment = {
        name: value
        for name, value in cli.environment.items()
        if name in {"PATH", "PYTHONPATH"} or name.startswith("DEVFIX_")
    }
    return cli


def test_the_command_line_says_that_the_key_is_missing(cli: Cli) -> None:
    """Before there is a run: exit 2, one line; that of a fallback model too."""
    ended = cli.here("run", cli.repository(), "--model", "openai:gpt-4o")
    assert ended.code == 2
    assert "set OPENAI_API_KEY" in ended.err
    assert len(ended.err.strip().splitlines()) == 1
    cli.environment["DEVFIX_FALLBACK_MODELS"] = "openai:other"
    ended = cli.here("run", cli.repository(), "--model", cli.script([]))
    assert (ended.code, "openai:other needs a key" in ended.err) == (2, True)
    assert cli.here("runs", "--json").facts == []


def test_doctor_says_which_models_are_asked_and_what_they_lack(cli: Cli) -> None:
    """By default, and after it; a key that is set is only said to be there."""
    chain = {"DEVFIX_MODEL": "openai:a", "DEVFIX_FALLBACK_MODELS": "openai:b,search-repair", "OPENAI_API_KEY": KEY}
    cli.environment |= {**chain, "DEVFIX_MODEL_HEADERS_ENV": '{"X-Api-Key": "GATEWAY_KEY"}'}
    models = cli("doctor", "--json").facts["models"]
    assert (models["ok"], models["default"], models["fallbacks"]) == (False, "openai:a", ["openai:b", "search-repair"])
    assert "openai:a needs GATEWAY_KEY" in models["why"]
    looked = cli("doctor", "--json", GATEWAY_KEY="gateway-key")
    assert (looked.facts["models"]["ok"], looked.facts["models"]["OPENAI_API_KEY"]) == (True, True)
    assert KEY not in looked.out
    assert "gateway-key" not in looked.out


def test_key_and_address_are_all_that_a_run_needs(cli: Cli, server: LLMock) -> None:
    """From the command line to the end; the key is in nothing that it prints."""
    says(
        server,
        [("edit_file", {"path": "calc.py", "old": "a - b", "new": "a + b"})],
        [("apply_patch_to_repository", {"summary": "add adds"})],
    )
    cli.environment |= {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": server.base_url()}
    repository = cli.repository()
    ended = cli.here("run", repository, "--model", "openai:gpt-4o", "--yes", "--json")
    assert (ended.code, standing(ended.facts)) == (0, "completed: done")
    assert (repository / "calc.py").read_text() == CALC.replace("a - b", "a + b")
    assert ended.facts["tokens"] > 0
    traced = cli.here("trace", "last", "--json")
    assert [call["name"] for call in traced.facts if call["kind"] == "model"] == ["gpt-4o"] * 2
    assert KEY not in ended.out + ended.err + traced.out


def test_recorded_last_stays_the_run_that_it_was(cli: Cli) -> None:
    """Resumed later, the newest run is the resumed one itself; its model is still the one before it."""
    first = cli.here("run", cli.repository(), "--model", cli.script(FIX), "--json")
    assert first.code == 3
    second = cli.here("run", cli.repository(), "--model", "recorded:last", "--step-limit", 8, "--json")
    assert standing(second.facts) == "failed: step_limit"
    resumed = cli.here("resume", "last", "--step-limit", 100, "--json")
    assert standing(resumed.facts) == "waiting: approval", resumed
    assert resumed.facts["run_id"] == second.facts["run_id"] != first.facts["run_id"]


def test_models_are_imported_when_they_are_asked_for() -> None:
    """langchain-openai takes a second, the search half of one; `devfix runs` needs neither."""
    heavy = ["langchain_openai", "openai", "graph.models.search_repair"]
    code = f"import sys, graph.models.load; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


async def test_ids_that_a_server_uses_again_at_each_turn_are_told_apart(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its second call_0 is another call than its first: asked about by itself, and posted."""
    ada, bob = (json.dumps({"to": who, "text": "hello"}) for who in ("ada", "bob"))
    answers = [calling(("call_0", "post", ada)), calling(("call_0", "post", bob))]
    async with endpoint(*answers) as server:
        point_to(server.url, monkeypatch)
        await driver.start([], model="openai:local", wanted=2)
        assert str((await driver.approved()).standing) == "waiting: approval"
        assert str((await driver.approved()).standing) == "completed: done"
    assert [letter["to"] for letter in letters(driver.letters)] == ["ada", "bob"]


async def test_b17_of_two_calls_under_one_id_the_approved_one_runs(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two questions, two answers: ada is approved, bob is not."""
    ada, bob = (json.dumps({"to": who, "text": "hello"}) for who in ("ada", "bob"))
    async with endpoint(calling(("dup", "post", ada), ("dup", "post", bob))) as server:
        point_to(server.url, monkeypatch)
        await driver.start([], model="openai:local")
        first, second = [row.question.call_id for row in await driver.services.approvals.of(driver.run_id)]
        assert first != second
        approvals = driver.services.approvals
        await approvals.decide(driver.run_id, second, Decision(type="reject", message="not bob"), by="eve")
        await approvals.decide(driver.run_id, first, Decision(type="approve"), by="eve")
        assert str((await driver.go_on()).standing) == "completed: done"
    assert [letter["to"] for letter in letters(driver.letters)] == ["ada"]


HELLO = [HumanMessage("hello \udcff")]
LOOK = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")  # openai's, of a chunk in no known form
@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (saying(refusal="not that"), "refused"),
        (saying(content=None), "empty_output"),
        (saying(finish=None, content="all of it"), "truncated_output"),
        (calling(("a", "look", '{"what": "the s')), "unparsable_output"),
        (calling(("a", "look", '{"what": "the s'), finish="stop"), "unparsable_output"),
        (calling(("a", "look", "[]")), "unparsable_output"),
        (calling(("a", "", "{}")), "unparsable_output"),
        ([chunk(content="half")], "truncated_output"),
        (["data: [DONE]\n\n"], "model_error"),
        ([], "model_error"),
        (["data: {oops\n\n"], "model_error"),
        (['data: {"error": {"message": "out of memory"}}\n\n'], "model_error"),
        (['data: {"choices": 3}\n\n'], "model_error"),
        (['data: {"choices": [{"delta": 7}]}\n\n'], "model_error"),
    ],
)
async def test_whatever_a_server_sends_has_a_name(answer: Any, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the failure table; none of it is a bug, or an answer."""
    async with endpoint(answer) as server:
        assert await outcome(server.url, monkeypatch) == kind


async def test_calls_come_as_a_server_sends_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without ids, one without arguments."""
    async with endpoint(calling((None, "look", '{"what": "sea"}'), ("", "look", ""))) as server:
        answer = await answered(server.url, monkeypatch)
    assert [(call["id"], call["args"]) for call in answer.message.tool_calls] == [
        ("model-2-0", {"what": "sea"}),
        ("model-2-1", {}),
    ]


async def test_b53_a_lone_surrogate_does_not_keep_a_request_from_being_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file's undecodable bytes, read by a tool, reach the server as question marks."""
    async with endpoint(saying(content="seen")) as server:
        assert (await answered(server.url, monkeypatch)).message.content == "seen"
        assert server.requests[0]["messages"][0]["content"] == "hello ?"


async def test_a_server_that_is_not_there_is_model_trouble(monkeypatch: pytest.MonkeyPatch) -> None:
    """Told in a sentence."""
    async with endpoint([]) as server:
        url = server.url
    assert await outcome(url, monkeypatch) == "model_error"


def point_to(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", url)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)


async def answered(url: str, monkeypatch: pytest.MonkeyPatch) -> Answer:
    point_to(url, monkeypatch)
    loader = ModelLoader(runs=MemoryRuns(), trace=MemoryTrace(), settings=ModelSettings())
    try:
        return await ask(await loader.get("openai:local"), HELLO, [LOOK], call_id="model-2")
    finally:
        await loader.close()


async def outcome(url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    try:
        answer = await answered(url, monkeypatch)
    except ModelTrouble as trouble:
        return trouble.kind
    assert answer.message.tool_calls == []
    return answer.failures[0].kind


async def resumed(driver: Driver) -> Run:
    """As `devfix resume` does it."""
    await make_ready(driver.application, await driver.run(), Raise())
    config: RunnableConfig = {"configurable": {**driver.config["configurable"], RESUME_KEY: True}}
    await driver.agent.ainvoke(None, config)
    return await driver.run()
