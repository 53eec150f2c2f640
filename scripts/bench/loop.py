"""One small graph, on our saver and on LangGraph's own: a node that appends a text to a list, again and again."""

from __future__ import annotations

import random
import string
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Any, cast

import psycopg
from langchain_core.runnables import RunnableConfig
from langgraph.channels import DeltaChannel
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.types import Checkpointer
from psycopg import sql
from pydantic import JsonValue
from typing_extensions import TypedDict

from graph.durable import DurableGraph
from graph.services import Services
from scripts.bootstrap import Application, build
from state import embedded
from state.agent_state import DELTA_SNAPSHOT_EVERY
from state.approvals import digest_of
from state.ledger import Intent
from state.messages import APPEND, append_records
from state.settings import Settings
from state.trace import Call
from tools.execution import effect_key

Graph = CompiledStateGraph[Any, Any, Any, Any]


@dataclass(frozen=True)
class Timed:
    """One run of the graph."""

    config: RunnableConfig
    step_ms: list[float]
    """From the beginning of one step to the beginning of the next: the node, the save, and LangGraph's own work."""


class Text:
    """Words of random letters, which PostgreSQL's compression can't make smaller; the same ones for the same seed."""

    def __init__(self, size: int, *, seed: int = 1) -> None:
        self._size = size
        self._random = random.Random(seed)  # noqa: S311 - a measure, not a secret

    def next(self) -> str:
        letters = self._random.choices(string.ascii_lowercase + "      ", k=self._size)
        return "".join(letters)


Work = Callable[[int, str], Awaitable[None]]
"""What a node does besides, given its step's number and text."""


def small_graph(
    text: Text, begun: list[float], *, every: int, besides: Work | None = None
) -> StateGraph[Any, Any, Any, Any]:
    """`steps` times one node; `begun` receives the moments at which it began."""

    messages = DeltaChannel(append_records, list, snapshot_frequency=every)
    # Not a class: LangGraph reads annotations as a module's, where `messages` has no meaning.
    state = TypedDict(  # noqa: UP013
        "state", {"steps": int, "done": int, "messages": Annotated[list[Any], messages]}, total=False
    )

    async def work(given: Any) -> dict[str, Any]:
        begun.append(time.perf_counter())
        done = given.get("done", 0) + 1
        said = text.next()
        if besides is not None:
            await besides(done, said)
        return {"messages": {APPEND: [{"type": "human", "id": f"m{done}", "content": said}]}, "done": done}

    graph: StateGraph[Any, Any, Any, Any] = StateGraph(state)
    graph.add_node("work", cast("Any", work))
    graph.add_edge(START, "work")
    graph.add_conditional_edges("work", lambda given: "work" if given["done"] < given["steps"] else END)
    return graph


class Bench:
    """The small graph on one saver, in a schema of its own that is dropped afterwards."""

    def __init__(self, name: str, saver: Checkpointer, schema: str, *, application: Application | None = None) -> None:
        self.name = name
        self.schema = schema
        self._saver = saver
        self._application = application

    def compiled(self, text: Text, begun: list[float], *, every: int, besides: Work | None = None) -> Graph:
        graph = small_graph(text, begun, every=every, besides=besides).compile(checkpointer=self._saver)
        return DurableGraph.of(graph, self._application.services) if self._application else graph

    async def run(self, steps: int, size: int, *, every: int = DELTA_SNAPSHOT_EVERY, effects: bool = False) -> Timed:
        """One new run of so many steps of so many bytes, saved after each of them. Ours also records a call in each, as
        a model's or a tool's is recorded; and with `effects` what the ledger keeps of an effect."""
        begun: list[float] = []
        run_id = str(uuid.uuid4())
        config: RunnableConfig = {"configurable": {"thread_id": run_id}, "recursion_limit": steps + 10}
        graph = self.compiled(Text(size), begun, every=every, besides=self._besides(run_id, effects=effects))
        async for _ in graph.astream({"steps": steps}, config, stream_mode="updates", durability="sync"):
            pass
        return Timed(config, [(after - before) * 1000 for before, after in pairwise(begun)])

    def _besides(self, run_id: str, *, effects: bool) -> Work | None:
        if self._application is None:
            return None  # the peer has neither
        services = self._application.services

        async def work(step: int, said: str) -> None:
            now = services.now()
            if effects:
                await _effect(services, run_id, step, said)
            services.trace.record_with_step(
                Call(
                    run_id=run_id,
                    epoch=services.attempt(run_id).epoch,
                    step=step,
                    kind="model",
                    name="bench",
                    call_id=f"model-{step}",
                    request={"messages": step},
                    result={"type": "ai", "content": said},
                    started_at=now,
                    ended_at=now,
                )
            )

        return work

    async def load(self, config: RunnableConfig, *, every: int = DELTA_SNAPSHOT_EVERY) -> tuple[float, int]:
        """Milliseconds to load the newest state, and how many messages it holds."""
        graph = self.compiled(Text(0), [], every=every)
        began = time.perf_counter()
        state = await graph.aget_state({"configurable": config["configurable"]})
        return (time.perf_counter() - began) * 1000, len(state.values["messages"])


async def _effect(services: Services, run_id: str, step: int, said: str) -> None:
    """The intent and the receipt of one, which takes no time itself."""
    arguments: dict[str, JsonValue] = {"text": said}
    epoch, call_id = services.attempt(run_id).epoch, f"effect-{step}"
    key = effect_key(run_id, call_id)
    intent = Intent(run_id, call_id, "bench", digest_of("bench", arguments), arguments, key)
    await services.ledger.claim(intent, epoch=epoch)
    await services.ledger.settle(run_id, call_id, {"content": said}, epoch=epoch)


@asynccontextmanager
async def ours(settings: Settings) -> AsyncIterator[Bench]:
    """Our saver, claim, fence, heartbeat, steps row and all."""
    schema = f"devfix_bench_{uuid.uuid4().hex[:8]}"
    url = await server_url(settings)
    application = build(settings.model_copy(update={"database_schema": schema, "database_url": url}), label="bench")
    try:
        await application.database.open()
        yield Bench("devfix", application.saver(), schema, application=application)
    finally:
        await application.services.close()
        await drop_schema(url, schema)


@asynccontextmanager
async def plain(settings: Settings) -> AsyncIterator[Bench]:
    """LangGraph's own saver, as its documentation sets it up: one connection, autocommit, prepared statements."""
    schema = f"devfix_bench_{uuid.uuid4().hex[:8]}"
    url = await server_url(settings)
    try:
        async with AsyncPostgresSaver.from_conn_string(url) as saver:
            connection = cast("psycopg.AsyncConnection[Any]", saver.conn)
            name = sql.Identifier(schema)
            await connection.execute(sql.SQL("CREATE SCHEMA {}").format(name))
            await connection.execute(sql.SQL("SET search_path TO {}").format(name))
            await saver.setup()
            yield Bench("AsyncPostgresSaver", saver, schema)
    finally:
        await drop_schema(url, schema)


async def server_url(settings: Settings) -> str:
    """The same PostgreSQL for both: the user's, or the embedded one."""
    return settings.database_url or await embedded.start(settings.home)


async def drop_schema(url: str, schema: str) -> None:
    """With all that is in it."""
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        await connection.execute(sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(sql.Identifier(schema)))
