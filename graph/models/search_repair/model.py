"""search-repair: a chat model that is a search. It needs no key, no network and no language model.

It sees what any chat model sees, calls only tools that are bound, and keeps nothing between two calls: each
answer follows from the messages alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic import PrivateAttr

from graph.models.search_repair.reading import TestReport, read_tests
from graph.models.search_repair.script import NOT_RUN, Answer, Repair, Reply, Turn
from graph.models.search_repair.space import Spaces

NEEDED = ("run_tests", "read_file", "evaluate_candidates", "edit_file", "apply_patch_to_repository")


class SearchRepairModel(BaseChatModel):
    """Repairs Python by trying small changes of the suspicious lines."""

    _spaces: Spaces = PrivateAttr(default_factory=Spaces)

    @property
    def _llm_type(self) -> str:
        return "search-repair"

    @property
    def _identifying_params(self) -> dict[str, Any]:
        return {"model_name": "search-repair"}

    def bind_tools(
        self,
        tools: Sequence[dict[str, Any] | type | Callable[..., Any] | BaseTool],
        *,
        tool_choice: str | None = None,
        **kwargs: Any,
    ) -> Runnable[LanguageModelInput, AIMessage]:
        return self.bind(tools=[convert_to_openai_tool(each) for each in tools], **kwargs)

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        bound = {each["function"]["name"] for each in kwargs.get("tools", [])}
        turn = next_turn(messages, spaces=self._spaces)
        missing = sorted({call.name for call in turn.calls} - bound)
        if missing:
            turn = Turn(
                f"I found no patch: a search needs the tools {', '.join(NEEDED)}; missing: {', '.join(missing)}."
            )
        message = _message(turn, number=sum(isinstance(each, AIMessage) for each in messages))
        return ChatResult(generations=[ChatGeneration(message=message)])


def next_turn(messages: Sequence[BaseMessage], *, spaces: Spaces) -> Turn:
    """What the search does next, from the messages alone.

    The procedure is run again over what was said and done. Where the past is not its own (another model was
    asked before, or another version of this one), it begins anew behind that.
    """
    past = list(_exchanges(messages))
    start = 0
    while True:
        repair = Repair(spaces, _opening(messages, past, start))
        steps = repair.steps()
        turn = next(steps)
        for number in range(start, len(past)):
            if not _same(turn, past[number]):
                start = number + 1
                break
            turn = steps.send(past[number].reply)
        else:
            return turn


class _Exchange:
    """One turn of the past and what followed it."""

    def __init__(self, message: AIMessage) -> None:
        self.message = message
        self.results: dict[str, ToolMessage] = {}
        self.heard: list[str] = []

    @property
    def reply(self) -> Reply:
        return Reply(tuple(self._answer(dict(call)) for call in self.message.tool_calls), tuple(self.heard))

    def _answer(self, call: dict[str, Any]) -> Answer:
        result = self.results.get(str(call["id"]))
        if result is None:
            return Answer(call["args"], "no result", ok=False)
        return Answer(call["args"], _text(result), ok=result.status != "error")


def _exchanges(messages: Sequence[BaseMessage]) -> Iterator[_Exchange]:
    exchanges: list[_Exchange] = []
    for message in messages:
        if isinstance(message, AIMessage):
            exchanges.append(_Exchange(message))
        elif isinstance(message, ToolMessage) and exchanges:
            exchanges[-1].results[message.tool_call_id] = message
        elif isinstance(message, HumanMessage) and exchanges:
            exchanges[-1].heard.append(_text(message))
    return iter(exchanges)


def _opening(messages: Sequence[BaseMessage], past: Sequence[_Exchange], start: int) -> TestReport:
    """A test report that was handed over with the goal, before anybody made a turn that counts."""
    if start:
        texts = past[start - 1].heard
    else:
        first = next((number for number, each in enumerate(messages) if isinstance(each, AIMessage)), len(messages))
        texts = [_text(each) for each in messages[:first] if isinstance(each, HumanMessage)]
    reports = [report for report in map(read_tests, texts) if report is not None]
    usable = [report for report in reports if report.suspicions or report.outcome == "timeout"]
    return usable[-1] if usable else NOT_RUN


def _same(turn: Turn, exchange: _Exchange) -> bool:
    """Whether the past turn is this one: the same tools, in the same order."""
    return [call.name for call in turn.calls] == [call["name"] for call in exchange.message.tool_calls]


def _message(turn: Turn, *, number: int) -> AIMessage:
    return AIMessage(
        content=turn.text,
        tool_calls=[
            {"name": call.name, "args": call.args, "id": f"search-{number}-{place}", "type": "tool_call"}
            for place, call in enumerate(turn.calls)
        ],
        usage_metadata={"input_tokens": 0, "output_tokens": 0, "total_tokens": 0},
        response_metadata={"model_name": "search-repair", "finish_reason": "tool_calls" if turn.calls else "stop"},
    )


def _text(message: BaseMessage) -> str:
    content = message.content
    if isinstance(content, str):
        return content
    return "".join(each if isinstance(each, str) else str(each.get("text", "")) for each in content)
