"""openai:NAME: any OpenAI-compatible endpoint, through langchain-openai's ChatOpenAI, or Azure's.

What its client libraries raise becomes `ModelTrouble` here, in the one module that knows them; importing it takes a
second, so `load` does that when such a model is asked for. The clients try nothing again: the chain does.
"""

from __future__ import annotations

import json
import logging
import re
import ssl
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import httpx2
import openai
from langchain_core.callbacks import AsyncCallbackManagerForLLMRun
from langchain_core.exceptions import ContextOverflowError, ModelError
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessageChunk, BaseMessage
from langchain_core.messages.ai import UsageMetadata
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool
from langchain_openai import AzureChatOpenAI, ChatOpenAI
from pydantic import PrivateAttr, SecretStr

from graph.models.secrets import Secrets
from graph.models.trouble import ModelTrouble, Remedy, retry_after
from graph.models.wire import error_in, mended
from state.errors import Refused
from state.model_settings import EndpointSettings

_CONNECT_SECONDS: Final = 10.0
_UNREADABLE: Final = (AttributeError, KeyError, IndexError, TypeError, ValueError)
"""What the client libraries raise on an answer of a form that they do not know: no `choices`, an `error` within a
success, a chunk that is not JSON."""
_TOLD: Final = 600
"""Characters of an error: some servers send a whole page."""
_KEY_REFUSED: Final = frozenset({401, 403})
_NOT_FOUND: Final = 404
_PASSING: Final = frozenset({408, 409, 425, 429})
"""Refusals that are over after a while; so is whatever is the server's own fault."""
_TOO_MUCH: Final = frozenset({429, 503, 529})
_SPENT: Final = ("insufficient_quota", "billing_hard_limit_reached", "billing_not_active")
"""Codes of a 429 that no waiting helps against."""
_FILTERED: Final = ("content_filter", "ResponsibleAIPolicyViolation")
_TOO_LONG: Final = frozenset({400, 413, 422, 500})
_OVERFLOW: Final = re.compile(
    r"context.?(length|window|size)|maximum context|prompt is too long|too many (input )?tokens|exceeds? the .*context",
    re.IGNORECASE,
)
_CANT_STREAM: Final = " (for one that can't stream, set model_stream = false)"
_OPENAI: Final = "api.openai.com"
_NO_KEY: Final = "none"
_ANSWER_SHARE: Final = 8
"""Of a window, where nothing says how long an answer may be."""
_FUNCTION: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""What such an endpoint takes as the name of a tool."""

_log = logging.getLogger(__name__)

_EVENTS: Final = "text/event-stream"
_JSON: Final = "application/json"
_NOTED: Final = 2000
"""Bytes of a body that are kept, for the first characters of them to be shown without secrets."""
_SHOWN: Final = 120


@dataclass
class _Body:
    """How the body of a successful answer begins, where it is not of the type that was asked for."""

    wanted: str
    kind: str = ""
    first: bytes = b""

    def described(self, scrubbed: Callable[[str], str]) -> str:
        """For the end of an error; empty where the type is right."""
        if not self.kind:
            return ""
        begins = scrubbed(" ".join(self.first.decode("utf-8", "replace").split()))[:_SHOWN]
        return f"; not {self.wanted} came but {self.kind}, which begins with {begins!r} (is the address right?)"


_body: ContextVar[_Body | None] = ContextVar("_body", default=None)
"""Of the call that is under way."""


class _Noting(httpx2.AsyncByteStream):
    """A body that is passed on, and whose beginning is noted."""

    def __init__(self, stream: httpx2.AsyncByteStream, body: _Body) -> None:
        self._stream = stream
        self._body = body

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for piece in self._stream:
            if len(self._body.first) < _NOTED:
                self._body.first += piece[:_NOTED]
            yield piece

    async def aclose(self) -> None:
        await self._stream.aclose()


async def _note_body(response: httpx2.Response) -> None:
    body, kind = _body.get(), response.headers.get("content-type") or "something of no type"
    if body is None or not response.is_success or kind.startswith(body.wanted):
        return
    body.kind = kind
    if "content-encoding" not in response.headers and isinstance(response.stream, httpx2.AsyncByteStream):
        response.stream = _Noting(response.stream, body)


class _Setup(NamedTuple):
    """What an endpoint was made with."""

    settings: EndpointSettings = EndpointSettings()
    secrets: tuple[str, ...] = ()
    place: str = ""
    elsewhere: bool = False
    """Its server is not OpenAI's own, nor Azure."""
    window: int = 0


class RequestNotMade(RuntimeError):
    """The conversation can't be put into a request: DevFix's own mistake, not the model's trouble."""


if TYPE_CHECKING:
    from langchain_openai import ChatOpenAI as _Client
else:
    # A mixin that is itself a Pydantic model would bring BaseChatModel's fields back over those of the clients.
    _Client = object


class _Tamed(_Client):
    """A `Served` model. What both clients are made to do: they answer or raise `ModelTrouble`, and no secret is in its
    message."""

    _setup: _Setup
    _dropped: set[str]
    """Tools that were told of as not sent."""

    @property
    def window(self) -> int:
        return self._setup.window

    @property
    def place(self) -> str:
        return self._setup.place

    async def aclose(self) -> None:
        await self.root_async_client.close()

    async def _astream(self, *args: Any, **kwargs: Any) -> AsyncIterator[ChatGenerationChunk]:
        answered, usage = False, None
        _body.set(body := _Body(_EVENTS if self._setup.settings.stream else _JSON))
        try:
            async for chunk in (super()._astream if self._setup.settings.stream else self._at_once)(*args, **kwargs):
                answered = True
                usage = _taken(chunk) or (None if _says_more(chunk) else usage)
                yield chunk
        except (ModelError, openai.OpenAIError, httpx2.HTTPError, *_UNREADABLE) as error:
            raise self._trouble(error, body) from None
        if not answered:
            came = body.described(self._scrubbed)
            raise ModelTrouble(
                "model_error", f"the model's server ended its answer before it began{came}{_CANT_STREAM}"
            )
        if usage is not None:
            yield ChatGenerationChunk(message=AIMessageChunk(content="", usage_metadata=usage))

    async def _at_once(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        """The whole answer as the one chunk of a stream, so that it is read as strictly as any."""
        payload = self._get_request_payload(messages, stop=stop, **kwargs)
        answer = (await self.async_client.create(**payload)).model_dump()
        first = answer["choices"][0]
        chunk = {**answer, "choices": [{**first, "delta": first["message"]}]}
        if (made := self._convert_chunk_to_generation_chunk(chunk, AIMessageChunk, {})) is not None:
            yield made

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

    def bind_tools(
        self, tools: Sequence[dict[str, Any] | type | Callable[..., Any] | BaseTool], **kwargs: Any
    ) -> Runnable[Any, Any]:
        """With the tools that such an endpoint takes; one that it does not would make it refuse every request."""
        fit = [tool for tool in tools if not isinstance(tool, dict) or _is_function(tool)]
        for name in {_name_of(tool) for tool in tools if tool not in fit} - self._dropped:
            self._dropped.add(name)
            _log.warning("%s is not sent the tool %s, whose form it would refuse", self.place, name)
        return super().bind_tools(fit, **kwargs)

    def _get_request_payload(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        try:
            payload: dict[str, Any] = super()._get_request_payload(*args, **kwargs)
        except _UNREADABLE as error:
            raise RequestNotMade(f"{type(error).__name__}: {error}") from error
        if self._setup.elsewhere and "max_completion_tokens" in payload:
            payload["max_tokens"] = payload.pop("max_completion_tokens")  # the name that all others know
        payload = {name: _sendable(value) for name, value in payload.items()}
        if "messages" in payload:
            # As they are: openai's client looks at each part of what it is given for something to rename, which takes
            # 100 ms for 200 messages in which there never is.
            said = {"messages": _taking_turns(payload["messages"])}
            payload |= {"messages": [], "extra_body": {**(payload.get("extra_body") or {}), **said}}
        return payload

    def _convert_chunk_to_generation_chunk(
        self, chunk: dict[str, Any], default_chunk_class: type, base_generation_info: dict[str, Any] | None
    ) -> ChatGenerationChunk | None:
        """A refusal is kept: langchain-openai reads it from whole answers only."""
        if (said := error_in(chunk)) is not None:
            raise openai.APIError(said, httpx2.Request("POST", self.root_async_client.base_url), body=chunk)
        chunk = mended(chunk)
        delta = chunk["choices"][0]["delta"] if chunk["choices"] else {}
        made: ChatGenerationChunk | None = super()._convert_chunk_to_generation_chunk(
            chunk, default_chunk_class, base_generation_info
        )
        if made is not None and (refusal := delta.get("refusal")):
            made.message.additional_kwargs["refusal"] = refusal
        return made

    def _trouble(self, error: Exception, body: _Body | None = None) -> ModelTrouble:
        status, headers = _status(error), _headers(error)
        sentence = _sentence(error)
        if status == _NOT_FOUND:
            sentence = f"the model {self.model_name} was not found at {self.root_async_client.base_url}: {sentence}"
        elif body is not None and isinstance(error, _UNREADABLE):
            sentence += body.described(self._scrubbed)
        said = self._scrubbed(" ".join(sentence.split()))[:_TOLD]
        if status in _KEY_REFUSED:
            return ModelTrouble("model_key_refused", said)
        if _is_filtered(error):
            return ModelTrouble("refused", said)
        pause = retry_after(headers) if status in _TOO_MUCH else None
        limited = status == 429 or pause is not None
        overflow = _is_overflow(error, status)
        remedy: Remedy = "another" if overflow else _remedy(error, status, headers)
        return ModelTrouble(
            "model_error",
            said,
            remedy=remedy,
            pause=pause,
            limited=limited,
            overflow=overflow,
            unanswered=any(isinstance(cause, httpx2.ReadTimeout) for cause in _causes(error)),
        )

    def _scrubbed(self, text: str) -> str:
        """Without the secrets, which some servers and proxies send back in their errors."""
        for secret in self._setup.secrets:
            text = text.replace(secret, "***")
        return text


class Endpoint(_Tamed, ChatOpenAI):
    """ChatOpenAI, tamed."""

    _setup: _Setup = PrivateAttr(default=_Setup())
    _dropped: set[str] = PrivateAttr(default_factory=set)


class AzureEndpoint(_Tamed, AzureChatOpenAI):
    """AzureChatOpenAI, tamed."""

    _setup: _Setup = PrivateAttr(default=_Setup())
    _dropped: set[str] = PrivateAttr(default_factory=set)


def _taken(chunk: ChatGenerationChunk) -> UsageMetadata | None:
    """The chunk's usage, taken off it: of a server that tells it with each chunk, as it grows, the last one counts."""
    message = chunk.message
    if not isinstance(message, AIMessageChunk) or message.usage_metadata is None:
        return None
    usage, message.usage_metadata = message.usage_metadata, None
    return usage


def _says_more(chunk: ChatGenerationChunk) -> bool:
    """Whether the chunk goes on with the answer: a count that came before it is not the whole of it."""
    message = chunk.message
    return bool(message.content) or bool(isinstance(message, AIMessageChunk) and message.tool_call_chunks)


def _is_function(tool: Mapping[str, Any]) -> bool:
    return tool.get("type") == "function" and _FUNCTION.fullmatch(_name_of(tool)) is not None


def _name_of(tool: Any) -> str:
    return str((tool.get("function") or {}).get("name") or tool.get("type")) if isinstance(tool, dict) else str(tool)


def _status(error: Exception) -> int | None:
    """The HTTP status; for an error in the middle of a stream, the code that it gives in its place."""
    if isinstance(status := getattr(error, "status_code", None), int):
        return status
    code = getattr(error, "code", None)
    return int(code) if isinstance(code, (int, str)) and str(code).isdigit() else None


def _headers(error: Exception) -> Mapping[str, str]:
    return getattr(getattr(error, "response", None), "headers", None) or {}


def _is_filtered(error: Exception) -> bool:
    return getattr(error, "status_code", None) == 400 and any(
        word in str(getattr(error, "body", None)) for word in _FILTERED
    )


def _is_overflow(error: Exception, status: int | None) -> bool:
    """In OpenAI's words, or in those of vLLM, llama.cpp, Ollama and gateways."""
    if isinstance(error, ContextOverflowError):
        return True
    told = f"{error} {getattr(error, 'body', None)}"
    return status in _TOO_LONG and _OVERFLOW.search(told) is not None


def _remedy(error: Exception, status: int | None, headers: Mapping[str, str]) -> Remedy:
    told = headers.get("x-should-retry")
    if told in {"true", "false"}:
        return "again" if told == "true" else "another"
    if getattr(error, "code", None) in _SPENT:
        return "another"
    if any(isinstance(cause, ssl.SSLCertVerificationError) for cause in _causes(error)):
        return "another"
    return "again" if status is None or status in _PASSING or status >= 500 else "another"


def _causes(error: BaseException) -> Iterator[BaseException]:
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__ or cause.__context__


def _sentence(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"the model's server sent something that is not JSON: {error}"
    if isinstance(error, openai.APIConnectionError):
        return f"{type(error).__name__}: {error} ({[*_causes(error)][-1] or 'no reason was given'})"
    if isinstance(error, (ModelError, openai.OpenAIError, httpx2.HTTPError)):
        return f"{type(error).__name__}: {error}{_more(error)}"
    return f"the model's server sent an answer that can't be read ({type(error).__name__}: {error})"


def _more(error: Exception) -> str:
    """What the server said besides, where openai reads no message out of it: {"error": "no such model"}, a page."""
    body = getattr(error, "body", None)
    if not body or (isinstance(body, dict) and body.get("message")):
        return ""
    return f" - {body if isinstance(body, str) else json.dumps(body)}"


def _taking_turns(messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """With what one side says in a row as one message: the templates of some local models take nothing else."""
    turns: list[dict[str, Any]] = []
    for message in messages:
        last = turns[-1] if turns else {}
        both = (last.get("content"), message.get("content"))
        if last.get("role") == message.get("role") == "user" and all(isinstance(each, str) for each in both):
            turns[-1] = {**last, "content": "\n\n".join(map(str, both))}
        else:
            turns.append(message)
    return turns


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


def endpoint(name: str, settings: EndpointSettings, secrets: Secrets, *, silence_seconds: float) -> BaseChatModel:
    """The model `openai:NAME` where its settings say. Raises Refused for certificates that can't be read."""
    common: dict[str, Any] = {
        "model": settings.name or name.partition(":")[2],
        "api_key": SecretStr(secrets.key or _NO_KEY),
        "max_retries": 0,
        "timeout": (timeout := httpx2.Timeout(silence_seconds, connect=_CONNECT_SECONDS)),
        "stream_usage": settings.stream_usage,
        "stream_chunk_timeout": None,  # httpx watches for silence, the caller over the whole
        "http_async_client": _client(settings, secrets, timeout),
        "openai_proxy": None,
    }
    if settings.max_tokens is not None:
        common["max_tokens"] = settings.max_tokens
    made: Endpoint | AzureEndpoint
    if settings.api_version is not None:
        made = AzureEndpoint(azure_endpoint=settings.base_url, api_version=settings.api_version, **common)
    else:
        made = Endpoint(base_url=settings.base_url, **common) if settings.base_url else Endpoint(**common)
    address = made.root_async_client.base_url
    made._setup = _Setup(
        settings=settings,
        secrets=secrets.all,
        place=f"{name} at {address}",
        elsewhere=isinstance(made, Endpoint) and address.host != _OPENAI,
        window=settings.context_tokens - (settings.max_tokens or settings.context_tokens // _ANSWER_SHARE),
    )
    return made


def _client(settings: EndpointSettings, secrets: Secrets, timeout: httpx2.Timeout) -> httpx2.AsyncClient:
    """One of its own, so that no two event loops share a pool. Redirects are not followed: key and headers go to the
    server that was named and to no other."""
    verify: ssl.SSLContext | bool = True
    if settings.ca_bundle is not None:
        try:
            verify = ssl.create_default_context(cafile=settings.ca_bundle)
        except OSError as error:
            raise Refused(f"the certificates in {settings.ca_bundle} can't be used: {error}") from None
    return httpx2.AsyncClient(
        verify=verify,
        proxy=secrets.proxy or settings.proxy,
        headers={**settings.headers, **secrets.headers},
        timeout=timeout,
        follow_redirects=False,
        event_hooks={"response": [_note_body]},
    )
