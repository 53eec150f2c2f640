"""What the models' layer costs a call: the chain of models, its shared pauses and its reading of answers, against
LangChain's ChatOpenAI alone on the same server."""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import BaseMessage, HumanMessage, SystemMessage
from langchain_openai import ChatOpenAI
from pydantic import BaseModel, ConfigDict, SecretStr

from graph.models.ask import Answer, Heard, ask
from graph.models.chain import Chain
from graph.models.trouble import ModelTrouble
from scripts.bench.faults.endpoint import Chunks, chunk, endpoint
from scripts.bench.faults.errand import ERRAND
from scripts.bench.loop import drop_schema, server_url
from scripts.bench.machine import Machine, machine
from scripts.bench.spread import Spread, in_pairs, ratio
from scripts.bootstrap import build
from state.settings import Settings

NAME = "openai:bench"
WARM_UP_CALLS = 5
PIECES = 20
_MESSAGES: list[BaseMessage] = [SystemMessage("Post the letter."), HumanMessage("post the letter to ada")]


class Call(NamedTuple):
    """Milliseconds from the question on."""

    whole: float
    first: float
    """Until the first piece of text is there."""


class LayerFigures(BaseModel):
    """Milliseconds a call, ours and the peer's taking turns."""

    model_config = ConfigDict(frozen=True)

    figure: str = "layer"
    machine: Machine
    calls: int
    ours_ms: Spread
    peer: str = "ChatOpenAI alone, the same server, the same tools, streaming"
    peer_ms: Spread
    added_ms: float
    """The difference of the medians."""
    first_ours_ms: Spread
    """Until the first piece of text."""
    first_peer_ms: Spread
    first_added_ms: float
    ratio: float
    target_added_ms: float = 3.0


class _Listener:
    """Asks, and notes when the answer begins."""

    def __init__(self) -> None:
        self.first: float | None = None

    def begins(self, model: str) -> None:
        return None

    def hears(self, text: str) -> None:
        self.first = self.first or time.perf_counter()

    def waits(self, model: str, seconds: float, why: str) -> None:
        return None

    async def missed(self, model: str, trouble: ModelTrouble) -> None:
        raise trouble

    def hurried(self) -> bool:
        return False

    def seconds_left(self) -> float:
        return 600.0


def answer() -> Chunks:
    """A text in pieces."""
    return [*[chunk(content=f"word {number} ") for number in range(PIECES)], chunk("stop"), "data: [DONE]\n\n"]


async def measure(settings: Settings, *, calls: int = 200) -> LayerFigures:
    """So many calls of each, in turns (A B B A …). Raises DatabaseUnavailable."""
    async with endpoint(answer()) as server, _chain(settings, server.url) as (chain, facts):
        peer = ChatOpenAI(
            model="bench", base_url=server.url, api_key=SecretStr("none"), max_retries=0, stream_usage=True
        )
        for _ in range(WARM_UP_CALLS):
            await _ours(chain)
            await _peers(peer)
        found: dict[bool, list[Call]] = {True: [], False: []}
        for turn in in_pairs(calls):
            found[turn].append(await (_ours(chain) if turn else _peers(peer)))
        about = await facts()
    return figures(about, found[True], found[False])


@asynccontextmanager
async def _chain(settings: Settings, url: str) -> AsyncIterator[tuple[Chain, Callable[[], Awaitable[Machine]]]]:
    """The chain of an application of the bench's own, whose one model is there."""
    schema, database = f"devfix_bench_{uuid.uuid4().hex[:8]}", await server_url(settings)
    own = {"database_schema": schema, "database_url": database, "models": {NAME: {"base_url": url}}}
    application = build(Settings.model_validate({**settings.model_dump(), **own, "fallback_models": []}), label="bench")
    try:
        await application.services.open()
        yield application.services.chain, lambda: machine(application.database)
    finally:
        await application.services.close()
        await drop_schema(database, schema)


async def _ours(chain: Chain) -> Call:
    listener, tools = _Listener(), ERRAND.toolbox.schemas

    async def question(model: BaseChatModel, heard: Heard) -> Answer:
        return await ask(model, _MESSAGES, tools, call_id="model-1", seconds=600.0, heard=heard)

    began = time.perf_counter()
    await chain.ask(NAME, question, listener)
    return _call(began, listener.first)


async def _peers(model: ChatOpenAI) -> Call:
    whole: Any = None
    began, first = time.perf_counter(), None
    async for piece in model.bind_tools(ERRAND.toolbox.schemas).astream(_MESSAGES):
        first = first or (time.perf_counter() if piece.text else None)
        whole = piece if whole is None else whole + piece
    return _call(began, first)


def _call(began: float, first: float | None) -> Call:
    ended = time.perf_counter()
    return Call((ended - began) * 1000, ((first or ended) - began) * 1000)


def figures(facts: Machine, ours: list[Call], peers: list[Call]) -> LayerFigures:
    """What the measured calls say."""
    spreads: dict[str, Any] = {
        "ours_ms": Spread.of([each.whole for each in ours]),
        "peer_ms": Spread.of([each.whole for each in peers]),
        "first_ours_ms": Spread.of([each.first for each in ours]),
        "first_peer_ms": Spread.of([each.first for each in peers]),
    }
    return LayerFigures(
        machine=facts,
        calls=len(ours),
        **spreads,
        added_ms=round(spreads["ours_ms"].median - spreads["peer_ms"].median, 3),
        first_added_ms=round(spreads["first_ours_ms"].median - spreads["first_peer_ms"].median, 3),
        ratio=ratio(spreads["ours_ms"].median, spreads["peer_ms"].median),
    )
