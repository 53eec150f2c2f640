"""scripted: a model that says what a script says. The tests' model, and a way to try a job or a policy without one.

A script is a JSON array of turns. A turn is a text, or an object with any of

    content            a text, or a list of content blocks
    tool_calls         [{"name": ..., "args": {...}, "id": ...}], the id may be left out
    invalid_tool_calls [{"name": ..., "args": "not JSON", "id": ..., "error": ...}]
    usage_metadata     {"input_tokens": ..., "output_tokens": ..., "total_tokens": ...}
    response_metadata  such as {"finish_reason": "length", "model_name": ...}
    additional_kwargs  such as {"refusal": ...}

Turn N is said when the history holds N answers of the model, so a resumed run, in whatever process, goes on where it
was. After the last turn the model says that the script has ended.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from state.errors import Refused

_END = AIMessage("The script has ended.")


class ScriptedCall(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: str
    args: dict[str, Any] = {}
    id: str | None = None


class Turn(BaseModel):
    """What the model says at one call."""

    model_config = ConfigDict(extra="forbid")

    content: str | list[str | dict[str, Any]] = ""
    tool_calls: list[ScriptedCall] = []
    invalid_tool_calls: list[dict[str, Any]] = []
    usage_metadata: dict[str, Any] | None = None
    response_metadata: dict[str, Any] = {}
    additional_kwargs: dict[str, Any] = {}

    def message(self, number: int) -> AIMessage:
        """The turn as an answer. Raises ValidationError where a field is not one of an answer's."""
        calls = [
            {"name": call.name, "args": call.args, "id": call.id or f"call-{number}-{place}", "type": "tool_call"}
            for place, call in enumerate(self.tool_calls)
        ]
        broken = [
            {"name": None, "args": None, "id": None, "error": None, **call, "type": "invalid_tool_call"}
            for call in self.invalid_tool_calls
        ]
        fields = self.model_dump(exclude={"tool_calls", "invalid_tool_calls"})
        return AIMessage.model_validate({**fields, "tool_calls": calls, "invalid_tool_calls": broken})


class ScriptedModel(BaseChatModel):
    """Says answer N after N answers of its own in the history: stateless, so a resumed run goes on where it was."""

    answers: list[AIMessage] = Field(repr=False)

    @classmethod
    def of(cls, turns: Sequence[Turn | str]) -> ScriptedModel:
        """Raises ValidationError for a turn that is no answer."""
        said = [Turn(content=turn) if isinstance(turn, str) else turn for turn in turns]
        return cls(answers=[turn.message(number) for number, turn in enumerate(said)])

    @classmethod
    def load(cls, path: Path) -> ScriptedModel:
        """Raises Refused, in one sentence, for a file that can't be read or is no script."""
        try:
            turns = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else f"it is not JSON ({error})"
            raise Refused(f"the script {path} can't be used: {reason}") from None
        if not isinstance(turns, list):
            raise Refused(f"the script {path} can't be used: it is not a list of turns")
        return cls(answers=[_answer(turn, number, path) for number, turn in enumerate(turns)])

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(
        self,
        tools: Sequence[dict[str, Any] | type | Callable[..., Any] | BaseTool],
        *,
        tool_choice: str | None = None,
        **kwargs: Any,
    ) -> Runnable[Any, AIMessage]:
        return self

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        said = sum(isinstance(message, AIMessage) for message in messages)
        answer = self.answers[said] if said < len(self.answers) else _END
        return ChatResult(generations=[ChatGeneration(message=answer.model_copy(deep=True))])


def _answer(turn: object, number: int, path: Path) -> AIMessage:
    try:
        said = Turn(content=turn) if isinstance(turn, str) else Turn.model_validate(turn)
        return said.message(number)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(["", *map(str, first["loc"])])
        raise Refused(f"the script {path} can't be used: turn {number + 1}{where}: {first['msg']}") from None
