"""One call of a model: what it said in a neutral form, or what was wrong with it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from langchain_core.exceptions import ModelAuthenticationError, ModelConnectionError
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage, ToolMessage
from langchain_core.messages.ai import UsageMetadata
from langchain_core.messages.tool import ToolCallChunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langgraph.errors import GraphInterrupt
from pydantic import Field

from graph.models.ask import Answer, ask
from graph.models.scripted import ScriptedModel
from graph.models.stream import Pieces, whole
from graph.models.trouble import ModelTrouble

FINISHED = {"model_provider": "somebody", "finish_reason": "tool_calls", "model_name": "some-model"}


class Streaming(BaseChatModel):
    """A model that streams these pieces, or raises this error after them."""

    pieces: list[AIMessageChunk] = Field(repr=False)
    error: Exception | None = None

    @property
    def _llm_type(self) -> str:
        return "streaming"

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        raise AssertionError("a model that can stream is streamed")

    async def _astream(self, *args: Any, **kwargs: Any) -> AsyncIterator[ChatGenerationChunk]:
        for piece in self.pieces:
            yield ChatGenerationChunk(message=piece)
        if self.error is not None:
            raise self.error


class Breaking(BaseChatModel):
    """A model that raises."""

    error: Exception

    @property
    def _llm_type(self) -> str:
        return "breaking"

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        raise self.error


def call(name: str = "look", identifier: str | None = "call-a", **args: Any) -> dict[str, Any]:
    return {"name": name, "args": args, "id": identifier, "type": "tool_call"}


def piece(index: int, **fields: Any) -> AIMessageChunk:
    chunk = {"index": index, "name": None, "args": None, "id": None, "type": "tool_call_chunk", **fields}
    return AIMessageChunk(content="", tool_call_chunks=[chunk])


async def asked(message: AIMessage, history: Sequence[BaseMessage] = ()) -> Answer:
    return await ask(ScriptedModel(answers=[message]), history, [], call_id="model-7")


async def streamed(*pieces: AIMessageChunk) -> Answer:
    last = AIMessageChunk(content="", response_metadata=FINISHED)
    return await ask(Streaming(pieces=[*pieces, last]), [HumanMessage("hello")], [], call_id="model-7")


def ids(answer: Answer) -> list[str | None]:
    return [each["id"] for each in answer.message.tool_calls]


def kinds(answer: Answer) -> list[str]:
    return [failure.kind for failure in answer.failures]


async def test_a_turn_comes_in_a_neutral_form() -> None:
    """Text and calls stay, blocks and fields of a provider's own do not; usage and the model's name are told."""
    message = AIMessage(
        content=[{"type": "text", "text": "I "}, {"type": "reasoning", "x": 1}, {"type": "text", "text": "look"}],
        tool_calls=[call(what="sea")],
        additional_kwargs={"of": "its own"},
        response_metadata=FINISHED,
        usage_metadata=UsageMetadata(input_tokens=5, output_tokens=2, total_tokens=7),
        id="theirs",
    )
    answer = await asked(message)
    assert (answer.message.content, answer.message.id) == ("I look", "model-7")
    assert answer.message.tool_calls == message.tool_calls
    assert answer.message.additional_kwargs == {}
    assert (answer.model, answer.input_tokens, answer.output_tokens) == ("some-model", 5, 2)
    assert answer.record["additional_kwargs"] == {"of": "its own"}
    assert answer.record["content"] == message.content


async def test_unknown_usage_is_not_zero() -> None:
    """None, where a server does not count."""
    answer = await asked(AIMessage("hello"))
    assert (answer.input_tokens, answer.output_tokens) == (None, None)


@pytest.mark.parametrize("told", [-5, 10**25])
async def test_a_usage_that_cannot_be_is_unknown(told: int) -> None:
    """A server that counts wrongly neither gives a budget back nor keeps the turn from being recorded."""
    usage = UsageMetadata(input_tokens=told, output_tokens=7, total_tokens=told)
    answer = await asked(AIMessage("hi", usage_metadata=usage))
    assert (answer.input_tokens, answer.output_tokens) == (None, 7)


async def test_a_lone_surrogate_in_an_answer_is_kept() -> None:
    """Half a character, as a cut `\\ud83d` gives it, ends no run."""
    assert (await asked(AIMessage("a\ud83db", tool_calls=[call()]))).message.content == "a\ud83db"


async def test_b17_calls_that_share_an_id_are_told_apart() -> None:
    """Each gets an id of ours; the other call of the turn keeps its own."""
    answer = await asked(AIMessage("", tool_calls=[call(identifier="dup"), call(), call(identifier="dup")]))
    assert ids(answer) == ["model-7-0", "call-a", "model-7-2"]


async def test_b40_a_call_without_an_id_gets_one_from_its_turn_and_place() -> None:
    """The same one at each try."""
    for missing in (None, ""):
        assert ids(await asked(AIMessage("", tool_calls=[call(identifier=missing)]))) == ["model-7-0"]


@pytest.mark.parametrize(
    "identifier", ["opening", "evidence-12ab", "model-7-1", "escalation-3", "with space", "x" * 41]
)
async def test_an_id_that_is_ours_or_no_server_takes_back_is_replaced(identifier: str) -> None:
    """A model can't pass its call off as one that DevFix made."""
    assert ids(await asked(AIMessage("", tool_calls=[call(identifier=identifier)]))) == ["model-7-0"]


async def test_an_id_of_an_earlier_turn_is_replaced() -> None:
    """Some servers count anew at each turn; the approval and the receipt of the first call are not the second's."""
    history = [AIMessage("", tool_calls=[call(identifier="call_0")]), ToolMessage("seen", tool_call_id="call_0")]
    model = ScriptedModel(answers=[AIMessage(""), AIMessage("", tool_calls=[call(identifier="call_0")])])
    assert ids(await ask(model, history, [], call_id="model-7")) == ["model-7-0"]


@pytest.mark.parametrize("reason", ["length", "max_tokens", "lengthlength"])
async def test_no_call_of_a_cut_turn_is_made(reason: str) -> None:
    """Also where the call that it holds reads well."""
    answer = await asked(AIMessage("", tool_calls=[call()], response_metadata={"finish_reason": reason}))
    assert kinds(answer) == ["truncated_output"]
    assert answer.message.tool_calls == []
    assert answer.message.content


async def test_a_stream_that_ends_without_a_reason_was_cut() -> None:
    """No client library says so."""
    cut = {"model_provider": "openai"}
    answer = await asked(AIMessage("it is nearly d", response_metadata=cut))
    assert kinds(answer) == ["truncated_output"]


async def test_the_responses_api_says_it_in_other_words() -> None:
    """A status, and why it is incomplete."""
    whole = {"model_provider": "openai", "status": "completed"}
    cut = {**whole, "status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
    filtered = {**cut, "incomplete_details": {"reason": "content_filter"}}
    told = [kinds(await asked(AIMessage("x", response_metadata=each))) for each in (whole, cut, filtered)]
    assert told == [[], ["truncated_output"], ["refused"]]


async def test_a_refusal_is_told_in_the_models_words() -> None:
    """A field of its own, or the finish reason."""
    answer = await asked(AIMessage("", additional_kwargs={"refusal": "not that"}))
    assert [(each.kind, "not that" in each.detail) for each in answer.failures] == [("refused", True)]
    assert kinds(await asked(AIMessage("", response_metadata={"finish_reason": "content_filter"}))) == ["refused"]


@pytest.mark.parametrize("text", ["", "  \n"])
async def test_an_empty_answer_is_a_failure(text: str) -> None:
    """And leaves something in the history that every provider takes back."""
    answer = await asked(AIMessage(text))
    assert kinds(answer) == ["empty_output"]
    assert answer.message.text.strip()


async def test_broken_arguments_are_told_shortly_and_nothing_is_kept_of_them() -> None:
    """The good call beside them is not made either: the turn is repaired as a whole."""
    broken = {"name": "look", "args": "{" * 9000, "id": "b", "error": "x" * 9000, "type": "invalid_tool_call"}
    answer = await asked(AIMessage("", tool_calls=[call()], invalid_tool_calls=[broken]))
    assert kinds(answer) == ["unparsable_output"]
    assert "look" in answer.failures[0].detail
    assert len(answer.failures[0].detail) < 1100
    assert (answer.message.tool_calls, answer.message.invalid_tool_calls) == ([], [])


async def test_a_name_that_no_server_takes_back_is_refused() -> None:
    """It would make every later request fail."""
    answer = await asked(AIMessage("", tool_calls=[call("not a name")]))
    assert kinds(answer) == ["unparsable_output"]
    assert answer.message.tool_calls == []


async def test_a_streamed_call_is_put_together() -> None:
    """From pieces, two calls beside each other."""
    answer = await streamed(
        piece(0, name="look", id="a", args=""),
        piece(0, args='{"what": '),
        piece(1, name="rest", id="b", args=""),
        piece(0, args='"sea"}'),
    )
    assert answer.failures == []
    assert [(each["name"], each["args"]) for each in answer.message.tool_calls] == [
        ("look", {"what": "sea"}),
        ("rest", {}),
    ]
    assert answer.record["type"] == "ai"


@pytest.mark.parametrize(
    "args",
    ['{"what": "the se', '{"what": "sea"', "[1]", "null", '{"x": NaN}', '{"a": 1}{"a": 2}', '{"a": ' + "[" * 100_000],
)
async def test_a_streamed_call_that_was_cut_is_not_completed(args: str) -> None:
    """LangChain itself makes {"what": "the se"} of it, with a finish reason that says all is well."""
    answer = await streamed(piece(0, name="look", id="a", args=args))
    assert kinds(answer) == ["unparsable_output"]
    assert answer.message.tool_calls == []


async def test_a_long_stream_is_put_together_in_a_straight_line() -> None:
    """10,000 pieces of one call; put together pair by pair, the arguments so far are read anew with each."""
    text = json.dumps({"what": "x" * 19_980})
    pieces = [piece(0, args=text[at : at + 2]) for at in range(0, len(text), 2)]
    answer = await streamed(piece(0, name="look", id="a", args=""), *pieces)
    assert len(answer.message.tool_calls[0]["args"]["what"]) == 19_980


async def test_what_a_model_library_raises_becomes_trouble_with_its_kind() -> None:
    """LangChain's own classes, whatever the provider; nothing of the text before the error is kept."""
    for error, kind in (
        (ModelConnectionError("gone"), "model_error"),
        (ModelAuthenticationError("no"), "model_key_refused"),
    ):
        with pytest.raises(ModelTrouble, match=str(error)) as raised:
            await ask(Streaming(pieces=[AIMessageChunk(content="half")], error=error), [], [], call_id="model-7")
        assert raised.value.kind == kind


@pytest.mark.parametrize("error", [KeyError("a bug of ours"), ValueError("one more"), GraphInterrupt(())])
async def test_a_bug_or_langgraphs_own_control_flow_is_not_the_models_trouble(error: Exception) -> None:
    """It is raised as it is."""
    with pytest.raises(type(error)):
        await ask(Breaking(error=error), [], [], call_id="model-7")


async def test_a_model_without_streaming_is_asked_for_the_whole() -> None:
    """A chat model of a user's own need not stream."""

    class Whole(Breaking):
        def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
            return ChatResult(generations=[ChatGeneration(message=AIMessage("all at once"))])

    answer = await ask(Whole(error=ValueError()), [], [], call_id="model-7")
    assert answer.message.content == "all at once"


async def test_a_long_answer_in_small_pieces_takes_little_memory() -> None:
    """Its text is kept as text; what else the pieces tell is told all the same."""
    pieces = Pieces()
    for number in range(50_000):
        pieces.add(AIMessageChunk(f"{number} ", id="x"))
    call = ToolCallChunk(name="look", args="{}", id="c", index=0, type="tool_call_chunk")
    pieces.add(AIMessageChunk("", tool_call_chunks=[call], id="x"))
    pieces.add(AIMessageChunk("the ", id="x"))
    pieces.add(AIMessageChunk("end", id="x"))
    pieces.add(AIMessageChunk("", response_metadata={"finish_reason": "stop"}, id="x"))
    assert pieces.count <= 4
    message = whole(pieces.chunks)
    assert message.text == "".join(f"{number} " for number in range(50_000)) + "the end"
    assert [made["name"] for made in message.tool_calls] == ["look"]
    assert message.response_metadata["finish_reason"] == "stop"
