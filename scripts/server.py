"""What the LangGraph dev server loads (`langgraph.json`): the graph, its checkpointer, and routes of our own.

Importing this opens nothing and reads no environment: the application is put together when the server, in its own
event loop, asks for the checkpointer. The graph shares it, so that both count and fence the same steps.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from importlib.metadata import version
from typing import Any, cast

from fastapi import FastAPI
from fastapi.responses import JSONResponse
from httpx import HTTPError
from langgraph_sdk import get_client
from langgraph_sdk.client import LangGraphClient

from graph.agent import build_agent
from graph.notices import keep_sending
from graph.services import Services
from scripts.bootstrap import Application, build
from state.checkpointer import FencedSaver
from state.errors import DevfixError
from state.runs import Run
from state.status import TERMINAL

GRAPH_ID = "devfix"
"""The graph's name in `langgraph.json`."""
RESTORED_RUNS = 500
"""How many of the newest runs are looked through for threads to bring back."""

_log = logging.getLogger(__name__)


@cache
def application() -> Application:
    """The server process's DevFix, put together at first use."""
    return build(label="langgraph server")


class _LateServices:
    """The application's services, put together when the first of them is used."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(application().services, name)


graph = build_agent(cast("Services", _LateServices()))


@asynccontextmanager
async def checkpointer() -> AsyncIterator[FencedSaver]:
    """The saver, for as long as the server lives. It is left after the workers, so here the connections are closed.

    Raises DatabaseUnavailable at the server's start rather than at the first run.
    """
    made = await asyncio.to_thread(application)
    await made.database.open()
    try:
        yield made.saver()
    finally:
        await made.services.close()


@asynccontextmanager
async def _lifespan(_: FastAPI) -> AsyncIterator[None]:
    """Ends before the workers do, so nothing that a node uses is closed here."""
    beside = {asyncio.create_task(_restore_threads()), asyncio.create_task(_tell_people())}
    try:
        yield
    finally:
        for each in beside:
            each.cancel()
        await asyncio.wait(beside)


app = FastAPI(title="DevFix", lifespan=_lifespan)


@app.get("/devfix/health")
async def health() -> JSONResponse:
    """Whether the database answers, and which versions these are; 503 with the reason when it does not."""
    facts = {"version": await asyncio.to_thread(version, "devfix")}
    try:
        async with application().database.transaction() as connection:
            cursor = await connection.execute("SELECT current_setting('server_version') AS postgresql")
            row = await cursor.fetchone()
    except DevfixError as error:
        return JSONResponse({**facts, "database": "unavailable", "reason": str(error)}, status_code=503)
    return JSONResponse({**facts, "database": "ok", **(row or {})})


async def _tell_people() -> None:
    """Send what is to be told of runs, as it comes."""
    await keep_sending((await asyncio.to_thread(application)).services, complain=_log.warning)


async def _restore_threads() -> None:
    """Bring back the threads of runs that have not ended.

    The server keeps its list of threads in memory and writes it every ten seconds, so a kill loses the newest ones,
    and it has never heard of runs that were started at the command line. The checkpoints are in PostgreSQL all the
    same: a thread that is created anew under the run's id shows its state and its open questions again.
    """
    try:
        async with get_client() as client:
            await _until_up(client)
            for run in await application().services.runs.newest(RESTORED_RUNS):
                if run.status not in TERMINAL:
                    await _restore(client, run)
    except (DevfixError, HTTPError) as error:
        _log.warning("threads of waiting runs were not brought back: %s; each can be created under its run's id", error)


async def _until_up(client: LangGraphClient) -> None:
    while True:
        try:
            await client.http.get("/ok")
        except HTTPError:
            await asyncio.sleep(0.5)
        else:
            return


async def _restore(client: LangGraphClient, run: Run) -> None:
    metadata = {"goal": run.goal, "restored": True}
    await client.threads.create(thread_id=run.run_id, if_exists="do_nothing", graph_id=GRAPH_ID, metadata=metadata)
