"""scripted: a model that says what a script says. The tests' model, and a way to try a job or a policy without one.

A script is a JSON array of turns. A turn is a text, or an object with `content` and `tool_calls`
(`[{"name": ..., "args": {...}}]`), or any field of an AI message besides.
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
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from state.errors import Refused


class ScriptedCall(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: str
    args: dict[str, Any] = {}
    id: str | None = None


class Turn(BaseModel):
    """What the model says at one call."""

    model_config = ConfigDict(extra="forbid")

    content: str = ""
    tool_calls: list[ScriptedCall] = []
    invalid_tool_calls: list[dict[str, Any]] = []
    usage_metadata: dict[str, Any] | None = None
    response_metadata: dict[str, Any] = {}


_TURNS = TypeAdapter(list[Turn | str])


class ScriptedModel(BaseChatModel):
    """Says turn N after N turns of its own in the history: stateless, so a resumed run goes on where it was."""

    turns: list[Turn] = Field(repr=False)

    @classmethod
    def of(cls, turns: Sequence[Turn | str]) -> ScriptedModel:
        return cls(turns=[Turn(content=turn) if isinstance(turn, str) else turn for turn in turns])

    @classmethod
    def load(cls, path: Path) -> ScriptedModel:
        """Raises Refused for a file that can't be read or is no script."""
        try:
            return cls.of(_TURNS.validate_python(json.loads(path.read_text())))
        except (OSError, ValueError) as error:
            reason = error.errors()[0]["msg"] if isinstance(error, ValidationError) else error
            raise Refused(f"the script {path} can't be used: {reason}") from None

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
        turn = self.turns[said] if said < len(self.turns) else Turn(content="The script has ended.")
        return ChatResult(generations=[ChatGeneration(message=_message(turn, said))])


def _message(turn: Turn, said: int) -> AIMessage:
    calls = [
        {"name": call.name, "args": call.args, "id": call.id or f"call-{said}-{place}", "type": "tool_call"}
        for place, call in enumerate(turn.tool_calls)
    ]
    return AIMessage.model_validate({**turn.model_dump(exclude={"tool_calls"}), "tool_calls": calls})
