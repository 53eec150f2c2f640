"""openai:NAME: any OpenAI-compatible endpoint, through langchain-openai's ChatOpenAI.

What its client libraries raise becomes `ModelTrouble` here, in the one module that knows them; importing it takes a
second, so `load` does that when such a model is asked for.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any, Final

import httpx2
import openai
from langchain_core.callbacks import AsyncCallbackManagerForLLMRun
from langchain_core.exceptions import ModelError
from langchain_core.messages import BaseMessage
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from langchain_openai import ChatOpenAI
from pydantic import SecretStr

from graph.models.ask import ModelTrouble, trouble_of

_TIMEOUT: Final = httpx2.Timeout(120.0, connect=10.0)
"""Seconds without a byte, not in all. An instance of its own also keeps langchain-openai from sharing one connection
pool between event loops."""
_UNREADABLE: Final = (AttributeError, KeyError, IndexError, TypeError, ValueError)
"""What the client libraries raise on an answer of a form that they do not know: no `choices`, an `error` within a
success, a chunk that is not JSON."""
_TOLD: Final = 600
"""Characters of an error: some servers send a whole page."""


class RequestNotMade(RuntimeError):
    """The conversation can't be put into a request: DevFix's own mistake, not the model's trouble."""


class Endpoint(ChatOpenAI):
    """ChatOpenAI, which answers or raises `ModelTrouble`; the key is in none of its messages."""

    async def _astream(self, *args: Any, **kwargs: Any) -> AsyncIterator[ChatGenerationChunk]:
        answered = False
        try:
            async for chunk in super()._astream(*args, **kwargs):
                answered = True
                yield chunk
        except (ModelError, openai.OpenAIError, httpx2.HTTPError, *_UNREADABLE) as error:
            raise self._trouble(error) from None
        if not answered:
            raise ModelTrouble("model_error", "the model's server ended its answer before it began")

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        try:
            return await super()._agenerate(messages, stop=stop, run_manager=run_manager, **kwargs)
        except (ModelError, openai.OpenAIError, httpx2.HTTPError, *_UNREADABLE) as error:
            raise self._trouble(error) from None

    async def aclose(self) -> None:
        """Close the connections, in the event loop that opened them."""
        await self.root_async_client.close()

    def _get_request_payload(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        try:
            payload: dict[str, Any] = super()._get_request_payload(*args, **kwargs)
        except _UNREADABLE as error:
            raise RequestNotMade(f"{type(error).__name__}: {error}") from error
        return {name: _sendable(value) for name, value in payload.items()}

    def _convert_chunk_to_generation_chunk(
        self, chunk: dict[str, Any], default_chunk_class: type, base_generation_info: dict[str, Any] | None
    ) -> ChatGenerationChunk | None:
        """A refusal is kept: langchain-openai reads it from whole answers only."""
        made = super()._convert_chunk_to_generation_chunk(chunk, default_chunk_class, base_generation_info)
        choices = chunk.get("choices") or [{}]
        if made is not None and (refusal := (choices[0].get("delta") or {}).get("refusal")):
            made.message.additional_kwargs["refusal"] = refusal
        return made

    def _trouble(self, error: Exception) -> ModelTrouble:
        kind = trouble_of(error, status=getattr(error, "status_code", None))
        return ModelTrouble(kind, self._scrubbed(" ".join(_sentence(error).split()))[:_TOLD])

    def _scrubbed(self, text: str) -> str:
        """Without the key, which some servers and proxies send back in their errors."""
        key = self.openai_api_key
        return text.replace(key.get_secret_value(), "***") if isinstance(key, SecretStr) else text


def _sentence(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"the model's server sent something that is not JSON: {error}"
    if isinstance(error, (ModelError, openai.OpenAIError, httpx2.HTTPError)):
        return f"{type(error).__name__}: {error}"
    return f"the model's server sent an answer that can't be read ({type(error).__name__}: {error})"


def _sendable(value: Any) -> Any:
    """The value with what UTF-8 can't carry replaced: a file's undecodable bytes travel as lone surrogates."""
    match value:
        case str():
            return value if value.isascii() else value.encode("utf-8", "replace").decode()
        case dict():
            return {name: _sendable(each) for name, each in value.items()}
        case list():
            return [_sendable(each) for each in value]
    return value


def endpoint(model: str, *, retries: int) -> Endpoint:
    """The model behind OPENAI_BASE_URL, with OPENAI_API_KEY."""
    return Endpoint(model=model, max_retries=retries, timeout=_TIMEOUT, stream_usage=True)
