"""Where a model is reached, and how: addresses, keys, headers, certificates, proxies, Azure; and what errors mean."""

from __future__ import annotations

import json
import logging
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import trustme
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage

from graph.models.ask import Answer, ask
from graph.models.load import ModelLoader
from graph.models.trouble import ModelTrouble
from state.errors import Refused
from state.model_settings import ModelSettings
from state.settings import Settings, read_settings
from tests.helpers.endpoint import Chunks, Endpoint, Reply, calling, chunk, endpoint, saying
from tests.helpers.memory_stores import MemoryRuns, MemoryTrace

KEY = "sk-devfix-test-5f0c1d7e"
NAME = "openai:local"
HELLO = [SystemMessage("be brief"), HumanMessage("hello"), HumanMessage("again")]
LOOK = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}
USAGE = {"prompt_tokens": 9, "completion_tokens": 64, "total_tokens": 73}

SKY = '{"what": "sky"}'

Put = Callable[..., Awaitable[Answer]]


@pytest.fixture
async def put(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Put]:
    """Puts one question to the model `openai:local`, with these settings."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    loaders: list[ModelLoader] = []

    async def put(settings: Mapping[str, Any], *, tools: Any = (LOOK,)) -> Answer:
        loader = ModelLoader(runs=MemoryRuns(), trace=MemoryTrace(), settings=ModelSettings(**settings))
        loaders.append(loader)
        return await ask(await loader.get(NAME), HELLO, list(tools), call_id="model-2", seconds=20)

    yield put
    for loader in loaders:
        await loader.close()


async def trouble(put: Put, server: Endpoint, **settings: Any) -> ModelTrouble:
    with pytest.raises(ModelTrouble) as raised:
        await put({"model_base_url": server.url, **settings})
    return raised.value


async def test_each_model_is_asked_where_its_settings_say(put: Put, monkeypatch: pytest.MonkeyPatch) -> None:
    """An address, a key, headers and a name of its own, over those for all."""
    monkeypatch.setenv("OTHER_KEY", "other-key")
    monkeypatch.setenv("GATEWAY_KEY", "gateway-key")
    own = {"name": "qwen3", "key_env": "OTHER_KEY", "headers": {"X-A": "1"}, "headers_env": {"X-B": "GATEWAY_KEY"}}
    async with endpoint(saying(content="hi")) as server, endpoint([]) as unasked:
        own["base_url"] = server.url
        answer = await put({"model_base_url": unasked.url, "models": {NAME: own}})
        assert answer.message.content == "hi"
        head, body = server.heads[0], server.requests[0]
    assert (head["authorization"], head["x-a"], head["x-b"]) == ("Bearer other-key", "1", "gateway-key")
    assert (body["model"], unasked.requests) == ("qwen3", [])


async def test_no_key_and_no_header_goes_to_a_server_that_it_was_not_set_for(put: Put) -> None:
    """A local model of the chain does not get the key of the one in the cloud; what is set for all does not count."""
    common = {"model_headers": {"X-Team": "red"}, "model_max_tokens": 100}
    async with endpoint(saying(content="hi")) as server:
        await put({**common, "models": {NAME: {"base_url": server.url}}})
        await put({**common, "model_base_url": server.url})
    own, shared = server.heads
    assert (own["authorization"], own.get("x-team")) == ("Bearer none", None)
    assert (shared["authorization"], shared["x-team"]) == (f"Bearer {KEY}", "red")
    assert [body["max_tokens"] for body in server.requests] == [100, 100]
    assert not any("max_completion_tokens" in body for body in server.requests)


async def test_a_server_that_settings_point_to_needs_no_key(put: Put, monkeypatch: pytest.MonkeyPatch) -> None:
    """vLLM, Ollama and llama.cpp ask for none."""
    monkeypatch.delenv("OPENAI_API_KEY")
    async with endpoint(saying(content="hi")) as server:
        assert (await put({"model_base_url": server.url})).message.content == "hi"
        with pytest.raises(Refused, match=r"openai:local needs VLLM_KEY, which its settings name"):
            await put({"model_base_url": server.url, "model_key_env": "VLLM_KEY"})


async def test_azure_is_asked_in_its_own_way(put: Put) -> None:
    """By deployment and API version, the key in a header of its own."""
    async with endpoint(calling(("a", "look", "{}"))) as server:
        address = server.url.removesuffix("/v1")
        answer = await put({"models": {NAME: {"base_url": address, "api_version": "2024-10-21", "name": "mine"}}})
        assert [call["name"] for call in answer.message.tool_calls] == ["look"]
        settings = {"model_base_url": address, "model_api_version": "2024-10-21", "model_key_env": "OPENAI_API_KEY"}
        await put(settings)
    lines = [head[""] for head in server.heads]
    assert lines == [
        "POST /openai/deployments/mine/chat/completions?api-version=2024-10-21 HTTP/1.1",
        "POST /openai/deployments/local/chat/completions?api-version=2024-10-21 HTTP/1.1",
    ]
    assert server.heads[1]["api-key"] == KEY


async def test_a_proxy_stands_in_between(put: Put, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is asked for the whole address; its password is in no error."""
    async with endpoint(saying(content="hi"), Reply(502, {"error": "user:pass-word-1 is busy"})) as proxy:
        address = proxy.url.removesuffix("/v1")
        settings = {"model_base_url": "http://models.example/v1", "model_proxy": address}
        assert (await put(settings)).message.content == "hi"
        assert proxy.heads[0][""] == "POST http://models.example/v1/chat/completions HTTP/1.1"
        monkeypatch.setenv("PROXY", address.replace("//", "//user:pass-word-1@"))
        with pytest.raises(ModelTrouble, match=r"user:\*\*\* is busy"):
            await put({"model_base_url": "http://models.example/v1", "model_proxy_env": "PROXY"})
    assert "proxy-authorization" in proxy.heads[1]


async def test_a_ca_bundle_says_whom_to_trust(put: Put, tmp_path: Path) -> None:
    """Another server's certificate is no reason to ask again; a bundle that can't be read is one sentence."""
    authority = trustme.CA()
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(tls)
    bundle = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(bundle))
    async with endpoint(saying(content="hi"), tls=tls) as server:
        settings = {"models": {NAME: {"base_url": server.url, "ca_bundle": str(bundle)}}}
        assert (await put(settings)).message.content == "hi"
        untrusted = await trouble(put, server)
        assert (untrusted.remedy, "CERTIFICATE_VERIFY_FAILED" in str(untrusted)) == ("another", True)
    with pytest.raises(Refused, match=r"nowhere\.pem can't be used"):
        await put({"model_base_url": server.url, "model_ca_bundle": str(tmp_path / "nowhere.pem")})


async def test_a_redirect_is_not_followed(put: Put) -> None:
    """The key stays with the server that was named."""
    async with endpoint(saying(content="hi")) as elsewhere:
        async with endpoint(Reply(307, headers={"location": f"{elsewhere.url}/chat/completions"})) as server:
            assert (await trouble(put, server)).remedy == "another"
        assert elsewhere.requests == []


async def test_a_gateway_that_does_not_stream_is_asked_for_the_whole(put: Put) -> None:
    """Its calls are read as strictly."""
    function = {"name": "look", "arguments": "[1"}
    call = {"id": "a", "type": "function", "function": function}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    body = {"id": "x", "object": "chat.completion", "created": 1, "model": "gateway-model", "usage": USAGE}
    body["choices"] = [{"index": 0, "message": message, "finish_reason": "tool_calls"}]
    async with endpoint(Reply(200, body)) as server:
        for arguments, kinds in (("{}", []), ('{"what": "s', ["unparsable_output"]), ("[1]", ["unparsable_output"])):
            function["arguments"] = arguments
            answer = await put({"model_base_url": server.url, "model_stream": False})
            assert [failure.kind for failure in answer.failures] == kinds, arguments
    assert (answer.model, answer.output_tokens) == ("gateway-model", 64)
    assert server.requests[0].get("stream") in {None, False}


@pytest.mark.parametrize(
    ("status", "body", "kind", "remedy"),
    [
        (401, {}, "model_key_refused", "none"),
        (403, {}, "model_key_refused", "none"),
        (404, {"message": "no such model", "code": "model_not_found"}, "model_error", "another"),
        (400, {"message": "too long", "code": "context_length_exceeded"}, "model_error", "another"),
        (400, {"message": "this model does not support tools"}, "model_error", "another"),
        (413, {}, "model_error", "another"),
        (422, {}, "model_error", "another"),
        (429, {"message": "you have no money", "code": "insufficient_quota"}, "model_error", "another"),
        (429, {}, "model_error", "again"),
        (408, {}, "model_error", "again"),
        (500, {}, "model_error", "again"),
        (529, {}, "model_error", "again"),
        (400, {"message": "filtered", "code": "content_filter"}, "refused", "none"),
    ],
)
async def test_each_status_has_its_remedy(put: Put, status: int, body: Any, kind: str, remedy: str) -> None:
    """The same model again, another one, or nobody."""
    async with endpoint(Reply(status, {"error": {"message": "no", **body}})) as server:
        met = await trouble(put, server)
        assert (met.kind, met.remedy, len(server.requests)) == (kind, remedy, 1)


@pytest.mark.parametrize("stream", [True, False])
async def test_an_answer_that_is_no_stream_is_told_with_its_type_and_its_beginning(put: Put, stream: bool) -> None:
    """A page, where an address is wrong; a key in it is not shown."""
    page = f"<html>\n{KEY} welcome to the portal{'.' * 5000}</html>"
    async with endpoint(Reply(200, page, {"content-type": "text/html"})) as server:
        said = str(await trouble(put, server, model_stream=stream))
    wanted = "text/event-stream" if stream else "application/json"
    assert f"not {wanted} came but text/html, which begins with '<html> *** welcome to the portal" in said
    assert len(said) < 600


async def test_what_is_not_there_is_named_with_its_address(put: Put) -> None:
    """A wrong name and a wrong address look alike."""
    async with endpoint(Reply(404, "<html>not found</html>")) as server:
        assert f"the model local was not found at {server.url}" in str(await trouble(put, server))


async def test_a_server_may_say_itself_whether_to_ask_again(put: Put) -> None:
    """By a header of its own."""
    for told, remedy in (("false", "another"), ("true", "again")):
        async with endpoint(Reply(500 if told == "false" else 400, headers={"x-should-retry": told})) as server:
            assert (await trouble(put, server)).remedy == remedy


async def test_an_error_in_the_middle_of_a_stream_counts_like_its_status(put: Put) -> None:
    """As gateways send it, whose own server said so."""
    for code, kind, limited in ((429, "model_error", True), (401, "model_key_refused", False)):
        error = json.dumps({"error": {"message": "upstream", "code": code}})
        async with endpoint([chunk(content="half"), f"data: {error}\n\n"]) as server:
            met = await trouble(put, server)
            assert (met.kind, met.limited) == (kind, limited)


async def test_b43_a_tool_that_the_endpoint_would_refuse_is_not_sent(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One that another provider knows by itself, or whose name is not one here; the log says so, once."""
    dotted = {"type": "function", "function": {**LOOK["function"], "name": "shop.look"}}  # type: ignore[dict-item]
    caplog.set_level(logging.WARNING)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    async with endpoint(saying(content="hi")) as server:
        loader = ModelLoader(runs=MemoryRuns(), trace=MemoryTrace(), settings=ModelSettings(model_base_url=server.url))
        for _ in range(2):
            tools = [LOOK, dotted, {"type": "web_search_20250305"}]
            await ask(await loader.get(NAME), HELLO, tools, call_id="model-2")
        await loader.close()
    assert [tool["function"]["name"] for tool in server.requests[0]["tools"]] == ["look"]
    assert caplog.text.count("shop.look") == 1
    assert "web_search_20250305" in caplog.text


async def test_what_one_side_says_in_a_row_is_one_message(put: Put) -> None:
    """Templates of local models take turns only."""
    async with endpoint(saying(content="hi")) as server:
        await put({"model_base_url": server.url})
    assert [message["role"] for message in server.requests[0]["messages"]] == ["system", "user"]
    assert server.requests[0]["messages"][1]["content"] == "hello\n\nagain"


@pytest.mark.parametrize("finish", ["tool_calls", "stop"])
async def test_b36_a_turn_just_as_long_as_it_may_be_was_cut(put: Put, finish: str) -> None:
    """Whatever its server calls it; also when it is read again from its record. One token less is a whole one."""
    used = {**chunk(), "choices": [], "usage": USAGE}
    cut = [*calling(("a", "look", '{"what": "/"}'), finish=finish)[:-1], used]
    async with endpoint(cut) as server:
        answer = await put({"model_base_url": server.url, "model_max_tokens": 64})
        assert ([failure.kind for failure in answer.failures], answer.message.tool_calls) == (["truncated_output"], [])
        assert answer.record["response_metadata"]["finish_reason"] == "length"  # type: ignore[index,call-overload]
        answer = await put({"model_base_url": server.url, "model_max_tokens": 65})
        assert (list(answer.failures), len(answer.message.tool_calls)) == ([], 1)


def wire(index: int | None, identifier: str | None, name: str | None, arguments: Any) -> dict[str, Any]:
    call = {"id": identifier, "type": "function", "function": {"name": name, "arguments": arguments}}
    return chunk(tool_calls=[call if index is None else {**call, "index": index}])


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")  # openai's, of arguments that are no text
@pytest.mark.parametrize(
    "pieces",
    [
        [wire(0, "a", "look", '{"what": "sea"}'), wire(0, "b", "look", SKY)],
        [wire(0, "", "look", '{"what": "sea"}'), wire(0, "", "look", SKY)],
        [wire(None, None, "look", '{"what": "sea"}'), wire(None, None, "look", SKY)],
        [
            wire(None, "a", "look", '{"what": '),
            wire(None, None, None, '"sea"}'),
            wire(1, "b", "look", SKY),
        ],
        [wire(0, "a", "look", '{"what": '), wire(0, "a", "look", '"sea"}'), wire(1, "b", "look", SKY)],
        [wire(0, "a", "look", {"what": "sea"}), wire(1, "b", "look", {"what": "sky"})],
        [wire(0, "a", "look", '{"what"'), wire(0, "b", "look", SKY), wire(0, "a", None, ': "sea"}')],
    ],
    ids=["one index", "one index, no id", "no index", "no index, in pieces", "id told again", "no text", "torn"],
)
async def test_calls_are_told_apart_however_they_are_numbered(put: Put, pieces: Chunks) -> None:
    """Two calls, or a turn that can't be used, never one call made of two."""
    async with endpoint([*pieces, chunk("tool_calls")]) as server:
        answer = await put({"model_base_url": server.url})
    if answer.failures:
        assert [failure.kind for failure in answer.failures] == ["unparsable_output"]
        return
    made = [(call["name"], call["args"]) for call in answer.message.tool_calls]
    assert made == [("look", {"what": "sea"}), ("look", {"what": "sky"})]


def call_of(**fields: Any) -> dict[str, Any]:
    return chunk(tool_calls=[{"index": 0, "id": "a", "type": "function", **fields}])


def choosing(**choice: Any) -> dict[str, Any]:
    return {**chunk(), "choices": [{"index": 0, **choice}]}


HI = chunk(content="hi")
HI_AND_END = [HI, chunk("stop")]


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")  # openai's, of what is in no known form
@pytest.mark.parametrize(
    ("pieces", "read"),
    [
        ([HI, chunk("stop"), chunk("stop")], "hi"),
        ([chunk("stop", content="hi"), chunk(content=" you")], "hi you"),
        ([HI, choosing(delta=None, finish_reason="stop")], "hi"),
        ([HI, choosing(finish_reason="stop")], "hi"),
        ([HI, {**chunk(), "choices": None}, chunk("stop")], "hi"),
        ([chunk(content=[{"type": "text", "text": "hi"}]), chunk("stop")], "hi"),
        ([chunk(content=5), chunk("stop")], "5"),
        ([choosing(delta={"role": "user", "content": "hi"}), chunk("stop")], "hi"),
        ([HI, {**chunk("stop"), "usage": {"prompt_tokens": None, "completion_tokens": "3"}}], "hi"),
        ([{**HI, "model": None}, {**chunk("stop"), "model": None}], "hi"),
        ([chunk(function_call={"name": "look", "arguments": "{}"}), chunk("function_call")], "look({})"),
        ([*calling((7, "look", "{}"))], "look({})"),  # type: ignore[arg-type]
        ([*calling(("a", "look", None))], "look({})"),  # type: ignore[arg-type]
        ([call_of(index="0", function={"name": "look", "arguments": "{}"}), chunk("tool_calls")], "look({})"),
        ([call_of(function=None), chunk("tool_calls")], "unparsable_output"),
        ([call_of(type="custom", custom={"name": "look", "input": "x"}), chunk("tool_calls")], "unparsable_output"),
        ([call_of(function={"name": "look", "arguments": [1]}), chunk("tool_calls")], "unparsable_output"),
        ([*calling(("a", " look ", "{}"))], "unparsable_output"),
        ([*calling(("a", "look", '{"what": 1e999}'))], "unparsable_output"),
        ([*calling(("a", "look", '{"what": ' + "1" * 5000 + "}"))], "unparsable_output"),
        (['event: error\ndata: {"message": "boom"}\n\n'], "model_error"),
        (['data: {"object": "error", "message": "too long", "code": 400}\n\n'], "model_error"),
        (["<html>sign in</html>\n\n"], "model_error"),
    ],
)
async def test_what_servers_send_in_other_forms_is_read_or_told(put: Put, pieces: Chunks, read: str) -> None:
    """Text, a call, or what is wrong; never a bug, never half of it."""
    async with endpoint(pieces) as server:
        assert await reading(put, server) == read


async def reading(put: Put, server: Endpoint) -> str:
    try:
        answer = await put({"model_base_url": server.url})
    except ModelTrouble as met:
        return met.kind
    assert answer.model in {"some-model", ""}
    calls = [f"{call['name']}({call['args']})" for call in answer.message.tool_calls]
    return [*[failure.kind for failure in answer.failures], *calls, str(answer.message.text)][0]


async def test_a_server_that_refuses_to_count_is_not_asked_to(put: Put) -> None:
    """Its tokens are unknown then, which is not zero."""
    async with endpoint(HI_AND_END) as server:
        for asked in (True, False):
            answer = await put({"model_base_url": server.url, "model_stream_usage": asked})
            assert ("stream_options" in server.requests[-1], answer.output_tokens) == (asked, None)


async def test_a_usage_that_grows_with_each_chunk_is_counted_once(put: Put) -> None:
    """As some servers tell it."""
    used = [{**chunk(content="x"), "usage": {**USAGE, "completion_tokens": number}} for number in (1, 2, 3)]
    async with endpoint([*used, chunk("stop")]) as server:
        answer = await put({"model_base_url": server.url})
    assert (answer.input_tokens, answer.output_tokens) == (9, 3)


async def test_a_history_from_another_provider_is_sent_in_this_ones_form(put: Put) -> None:
    """Blocks that only the other one knows are not sent."""
    async with endpoint(saying(content="hi")) as server:
        loader = ModelLoader(runs=MemoryRuns(), trace=MemoryTrace(), settings=ModelSettings(model_base_url=server.url))
        theirs = AIMessage([{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "I see"}])
        await ask(await loader.get(NAME), [HumanMessage("hello"), theirs, HumanMessage("so?")], [], call_id="model-3")
        await loader.close()
    content = server.requests[0]["messages"][1]["content"]
    assert content in ("I see", [{"type": "text", "text": "I see"}])


@pytest.mark.parametrize("names", ["openai:a, openai:b", '["openai:a", "openai:b"]'])
def test_the_settings_come_from_the_environment_too(monkeypatch: pytest.MonkeyPatch, names: str) -> None:
    """Names with commas between or as JSON, a table as JSON; what does not fit is named."""
    monkeypatch.setenv("DEVFIX_FALLBACK_MODELS", names)
    monkeypatch.setenv("DEVFIX_MODELS", '{"openai:b": {"base_url": "http://127.0.0.1:8000/v1"}}')
    settings = read_settings()
    assert settings.fallback_models == ["openai:a", "openai:b"]
    assert settings.endpoint("openai:b").base_url == "http://127.0.0.1:8000/v1"
    assert settings.endpoint("openai:a").base_url is None
    monkeypatch.setenv("DEVFIX_MODELS", '{"openai:b": {"base_ulr": "x"}}')
    with pytest.raises(Refused, match="the setting DEVFIX_MODELS"):
        read_settings()


@pytest.mark.parametrize("name", ["FALLBACK_MODELS", "NOTIFY", "MODELS", "TICKET_FIELDS"])
def test_json_that_is_none_is_told(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Not taken for a name that begins with a bracket."""
    monkeypatch.setenv(f"DEVFIX_{name}", '["openai:a"')
    with pytest.raises(Refused, match=f"the setting DEVFIX_{name} is not valid: it is not valid JSON$"):
        read_settings()


@pytest.mark.parametrize(
    "wrong",
    [
        {"models": {"gpt": {}}},
        {"models": {"openai:a": {"api_version": "2024-10-21"}}},
        {"model_base_url": "ftp://x/v1"},
        {"model_ca_bundle": "ca.pem"},
        {"model_api_version": "2024-10-21"},
        {"model_proxy": "http://user:password@proxy:1"},
        {"model_key_env": "sk-not-a-variable"},
    ],
)
def test_what_makes_no_sense_is_refused(wrong: dict[str, Any]) -> None:
    """Before any model is asked."""
    with pytest.raises(ValueError):
        Settings(**wrong)
