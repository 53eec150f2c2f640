"""Chat servers that others wrote, each a process of its own: what of the table they can say, they say."""

from __future__ import annotations

import asyncio
import json
import socket
import tempfile
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final

import httpx2

from scripts.bench.crash.peers.environment import environment, node_environment
from scripts.bench.faults.endpoint import Answer, Blow, Elsewhere
from scripts.bench.faults.table import DEEPEST, Row, before
from scripts.bench.faults.words import Words, for_aimock, for_llmock, heard
from state.errors import DevfixError, Refused
from state.settings import Settings

LLMOCK: Final = ("llmock==0.2.2",)
AIMOCK: Final = ("@copilotkit/aimock@1.43.0",)
_ABOUT_IDS: Final = frozenset(
    {
        "calls without ids",
        "calls with the same id",
        "an id of an earlier turn",
        "an id that is far too long",
        "an id that DevFix gives itself",
    }
)
_START_SECONDS: Final = 30.0
_COUNTED: Final = {"budget_usd", "budget_tokens"}


class Server(ABC):
    """One of them, for as long as its block runs. The campaign's endpoint hands a request on to it, and counts."""

    name: str

    def serves(self, row: Row) -> bool:
        """It can say all that the row's model says. What strikes at the database is no server's matter."""
        answers = [*before(DEEPEST), *row.says, *row.again, *row.second]
        counted = bool(_COUNTED & {*row.limits, *row.limits_a_turn}) or "model_max_tokens" in row.settings
        return (
            row.group != "database"
            and self._is_about_it(row)
            and (not counted or self._counts(answers))
            and all(self._says(each) for each in answers)
        )

    def answer(self, answer: Answer) -> Answer:
        """The same, given by this server."""
        if isinstance(answer, Blow):
            return answer._replace(answer=self._elsewhere(answer.answer))
        return self._elsewhere(answer)

    def _elsewhere(self, answer: Answer) -> Elsewhere:
        return Elsewhere(lambda request, writer: self._give(answer, request, writer))

    def _is_about_it(self, row: Row) -> bool:
        return True

    def _counts(self, answers: Sequence[Answer]) -> bool:
        """It says of each answer what it used, as the table has it."""
        return False

    @abstractmethod
    def _says(self, answer: Answer) -> bool: ...

    @abstractmethod
    async def _give(self, answer: Answer, request: bytes, writer: asyncio.StreamWriter) -> None: ...


class Llmock(Server):
    """Told before each request how to behave at it; one request at a time, until its answer begins."""

    name = "llmock"

    def __init__(self, port: int, client: httpx2.AsyncClient) -> None:
        self._port = port
        self._client = client
        self._one = asyncio.Lock()

    def _is_about_it(self, row: Row) -> bool:
        return row.name not in _ABOUT_IDS

    def _says(self, answer: Answer) -> bool:
        return for_llmock(answer) is not None

    async def _give(self, answer: Answer, request: bytes, writer: asyncio.StreamWriter) -> None:
        await self._one.acquire()
        try:
            await self._client.post("/_llmock/reset")
            behaviours = json.dumps({"behaviors": for_llmock(answer)})
            told = await self._client.post("/_llmock/scenario", content=behaviours)
            told.raise_for_status()
        except BaseException:
            self._one.release()
            raise
        await _pass_on(self._port, request, writer, begun=self._one.release)


class Aimock(Server):
    """Has all answers from the start; a header says which one a request is to have."""

    name = "aimock"

    def __init__(self, port: int, places: Mapping[str, str]) -> None:
        self._port = port
        self._places = places

    def _counts(self, answers: Sequence[Answer]) -> bool:
        turns = [heard(each) for each in answers if isinstance(each, list)]
        return len(turns) == len(answers) and all(turn is not None and turn.usage for turn in turns)

    def _says(self, answer: Answer) -> bool:
        return for_aimock(answer) is not None

    async def _give(self, answer: Answer, request: bytes, writer: asyncio.StreamWriter) -> None:
        place = self._places[json.dumps(for_aimock(answer))]
        await _pass_on(self._port, request, writer, {"x-aimock-context": place})


# -- processes --------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def llmock(program: Path) -> AsyncIterator[Llmock]:
    """Its own server, saying what it is told to and nothing else."""
    port = _free_port()
    command = (str(program), "serve", "--port", str(port), "--tool-mode", "off", "--log-level", "error")
    async with (
        _process("llmock", command, port, "/health"),
        httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client,
    ):
        yield Llmock(port, client)


@asynccontextmanager
async def aimock(program: Path, rows: Sequence[Row]) -> AsyncIterator[Aimock]:
    """Its own server, with what these rows take and it can say."""
    answers = [answer for row in rows for answer in (*before(DEEPEST), *row.says, *row.again, *row.second)]
    said = {json.dumps(words): words for each in answers if (words := for_aimock(each)) is not None}
    places = {key: f"answer-{number}" for number, key in enumerate(said)}
    port = _free_port()
    with tempfile.TemporaryDirectory(prefix="devfix-bench-") as folder:
        fixtures = Path(folder) / "answers.json"
        fixtures.write_text(json.dumps({"fixtures": [_fixture(places[key], words) for key, words in said.items()]}))
        command = (str(program), "--port", str(port), "--fixtures", str(fixtures), "--log-level", "warn")
        async with _process("aimock", command, port, "/__aimock/health"):
            yield Aimock(port, places)


def _fixture(place: str, words: Words) -> dict[str, Any]:
    return {"match": {"context": place}, **words}


@asynccontextmanager
async def opened(settings: Settings, names: Sequence[str], rows: Sequence[Row]) -> AsyncIterator[list[Server]]:
    """These servers, installed below DEVFIX_HOME where they are not there yet. Raises DevfixError where one can't be
    installed or does not start, and Refused where there is none of this name."""
    cache = settings.home / "peers"
    async with AsyncExitStack() as stack:
        servers: list[Server] = []
        for name in dict.fromkeys(names):
            match name:
                case "llmock":
                    programs = await asyncio.to_thread(environment, cache, LLMOCK)
                    servers.append(await stack.enter_async_context(llmock(programs / "llmock")))
                case "aimock":
                    programs = await asyncio.to_thread(node_environment, cache, AIMOCK)
                    servers.append(await stack.enter_async_context(aimock(programs / "llmock", rows)))
                case _:
                    raise Refused(f"there is no server {name!r} here: it is llmock or aimock")
        yield servers


@asynccontextmanager
async def _process(name: str, command: Sequence[str], port: int, health: str) -> AsyncIterator[None]:
    with tempfile.TemporaryFile() as log:
        process = await asyncio.create_subprocess_exec(
            *command, stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log
        )
        try:
            if not await _answers(process, f"http://127.0.0.1:{port}{health}"):
                log.seek(0)
                told = log.read().decode(errors="replace").strip()[-500:]
                raise DevfixError(f"{name} has not started within {_START_SECONDS:.0f} s: {told}")
            yield
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()


async def _answers(process: asyncio.subprocess.Process, url: str) -> bool:
    loop = asyncio.get_running_loop()
    until = loop.time() + _START_SECONDS
    async with httpx2.AsyncClient() as client:
        while process.returncode is None and loop.time() < until:
            try:
                if (await client.get(url)).is_success:
                    return True
            except httpx2.TransportError:
                await asyncio.sleep(0.05)
    return False


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


# -- the request, and what comes back ---------------------------------------------------------------------------------


async def _pass_on(
    port: int,
    request: bytes,
    writer: asyncio.StreamWriter,
    headers: Mapping[str, str] | None = None,
    begun: Callable[[], None] = lambda: None,
) -> None:
    """Byte by byte as it comes, to its end; but the connection is this one request's."""
    try:
        try:
            reader, server = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            raise DevfixError(f"no server listens on port {port} any more") from None
        try:
            server.write(_alone(request, headers or {}))
            piece = await reader.read(2**16)
        except BaseException:
            server.close()
            raise
    finally:
        begun()
    try:
        piece = piece.replace(b"onnection: keep-alive", b"onnection: close", 1)
        while piece:
            writer.write(piece)
            await writer.drain()
            piece = await reader.read(2**16)
    finally:
        server.close()


def _alone(request: bytes, headers: Mapping[str, str]) -> bytes:
    head, _, body = request.partition(b"\r\n\r\n")
    lines = [line for line in head.split(b"\r\n") if not line.lower().startswith(b"connection:")]
    lines += [f"{name}: {value}".encode() for name, value in {**headers, "connection": "close"}.items()]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body
