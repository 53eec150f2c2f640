"""Rows of the fault campaign with the answers of servers that others wrote, each a real process."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from scripts.bench.crash.peers.environment import node_environment
from scripts.bench.faults.blows import Blows
from scripts.bench.faults.campaign import Trial, World
from scripts.bench.faults.endpoint import Answer, Dropped, Hangup, Reply, Trickle, calling, chunk, endpoint, saying
from scripts.bench.faults.figures import fault_figures
from scripts.bench.faults.servers import AIMOCK, Llmock, Server, aimock, llmock, opened
from scripts.bench.faults.table import LOOK, POST, TABLE, Row, error
from scripts.bench.faults.traces import TraceFigures
from scripts.bench.machine import Machine
from state.errors import DevfixError, Refused
from state.settings import Settings

ROWS = {row.name: row for row in TABLE}
_HALF = calling(("a", "post", '{"to": "a'))[:1]
_END = b"0\r\n\r\n"
"""Of a body in pieces: without it the client knows that something is missing."""


@pytest.fixture
def world(database_url: str, tmp_path: Path) -> World:
    return World(folder=tmp_path, url=database_url, blows=Blows(database_url))


@pytest.fixture
async def mock() -> AsyncIterator[Llmock]:
    async with llmock(Path(sys.executable).parent / "llmock") as server:
        yield server


async def _came(server: Server, *answers: Answer, seconds: float = 5.0) -> list[bytes]:
    """What each of these answers is on the wire, or what of it comes in this time."""
    body = b'{"model": "gpt-4o", "stream": true, "messages": [{"role": "user", "content": "hi"}]}'
    typed = f"content-type: application/json\r\ncontent-length: {len(body)}"
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\n{typed}\r\n\r\n"
    came: list[bytes] = []
    async with endpoint(*map(server.answer, answers)) as made:
        for _ in answers:
            reader, writer = await asyncio.open_connection("127.0.0.1", urlsplit(made.url).port)
            writer.write(head.encode() + body)
            heard = bytearray()
            try:
                async with asyncio.timeout(seconds):
                    while piece := await reader.read(2**16):
                        heard += piece
            except TimeoutError:
                heard += b"..."
            came.append(bytes(heard))
            writer.close()
    return came


async def test_llmock_gives_the_answers_in_turn(mock: Llmock) -> None:
    """Each with its own fault, and the connection ends as a client must see it."""
    cut = [chunk(content="I po")]
    refused, called, ended, dropped, broken, said = await _came(
        mock, error(429, retry_after="7"), POST, cut, Dropped(_HALF), ['data: {"id": \n\n'], saying(content="done")
    )
    assert refused.startswith(b"HTTP/1.1 429")
    assert b"retry-after: 7" in refused.lower()
    assert b'"name":"post"' in called
    assert called.endswith(_END)
    assert b'"po"' in ended
    assert b"[DONE]" not in ended
    assert ended.endswith(_END)
    assert b'"name":"post"' in dropped
    assert not dropped.endswith(_END)
    assert b"[DONE]" not in broken or b"data: {" in broken
    assert b'"done"' in said


@pytest.mark.parametrize(
    "name",
    [
        "HTTP 401 of the fallback",
        "a stream that is cut in a call, for ever",
        "a stream that breaks off in the text, once",
        "arguments that are cut, once",
        "a circle of 2",
    ],
)
async def test_a_row_that_llmock_serves_ends_as_the_table_says(world: World, mock: Llmock, name: str) -> None:
    """Judged as with the campaign's own endpoint."""
    assert mock.serves(ROWS[name])
    outcome = await Trial(world=world, row=ROWS[name], seed=1, server=mock).outcome()
    assert outcome.right, str(outcome)
    assert outcome.served_by == "llmock"


async def test_a_served_row_that_ends_otherwise_is_told(world: World, mock: Llmock) -> None:
    """By its standing and by who served it, and it does not count among the campaign's own."""
    row = Row(name="wrong", group="model", says=[error(503), POST], ends="failed: refused", asks=2)
    wrong = await Trial(world=world, row=row, seed=1, server=mock).outcome()
    right = await Trial(world=world, row=replace(row, name="right", ends="completed: done"), seed=1).outcome()
    assert "served by llmock): completed: done instead of failed: refused" in str(wrong)
    machine = Machine.model_construct(cores=1)
    seen = TraceFigures.model_construct(loops=0)
    figures = fault_figures(machine, [right, wrong], seen, seeds=1, seconds=1.0)
    assert (figures.rows, figures.right, figures.whole) == (1, 1, False)
    assert [(each.group, each.right) for each in figures.servers] == [("llmock: model", 0)]
    assert figures.only_here == ["model: right"]


async def test_a_server_that_is_gone_is_trouble(world: World) -> None:
    """However the run ends: a closed connection is what many rows are about."""
    row = ROWS["HTTP 503 for ever"]
    async with llmock(Path(sys.executable).parent / "llmock") as gone:
        pass
    outcome = await Trial(world=world, row=row, seed=1, server=gone).outcome()
    assert outcome.standing == row.ends
    assert not outcome.right
    assert "no answer could be given" in str(outcome)


async def test_rows_that_aimock_serves(world: World, tmp_path: Path) -> None:
    """Where Node.js is there and its package can be had: its answers, and rows that end as the table says."""
    try:
        programs = await asyncio.to_thread(node_environment, tmp_path / "peers", AIMOCK)
    except DevfixError as missing:
        pytest.skip(str(missing))
    names = [
        "the connection is closed for ever",
        "arguments that are null, once",
        "tokens are used up",
        "a circle of 2",
    ]
    rows = [ROWS[name] for name in names]
    faults = (
        error(429, retry_after="7"),
        Hangup(),
        Reply(200, "<html>"),
        Dropped(_HALF),
        Trickle([chunk(content="x")]),
    )
    told = Row(name="f", group="model", says=[*faults, LOOK], ends="")
    async with aimock(programs / "llmock", [*rows, told]) as server:
        refused, closed, page, dropped, slow, called = await _came(server, *faults, LOOK, seconds=1.0)
        for row in rows:
            outcome = await Trial(world=world, row=row, seed=1, server=server).outcome()
            assert outcome.right, str(outcome)
    assert refused.startswith(b"HTTP/1.1 429")
    assert b"Retry-After: 7" in refused
    assert closed == b""
    assert b"malformed json" in page
    assert b'"name":"post"' in dropped
    assert not dropped.endswith(_END)
    assert slow.count(b'"content":"x"') > 10
    assert slow.endswith(b"...")
    assert b'"name":"look"' in called
    assert _END in called


async def test_what_is_missing_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that is no server's, a machine without Node.js, and a server that ends at its start."""
    settings = Settings(home=tmp_path)
    with pytest.raises(Refused, match="it is llmock or aimock"):
        async with opened(settings, ["mockllm"], TABLE):
            pass
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(DevfixError, match=r"@copilotkit/aimock@.* needs Node.js and npm"):
        async with opened(settings, ["aimock"], TABLE):
            pass
    with pytest.raises(DevfixError, match="llmock has not started"):
        async with llmock(Path(sys.executable)):
            pass
