"""The models of a run, asked in their order: retries, pauses that runs share, fallbacks; against servers on loopback.

Time passes at once: what would be slept is taken off the clock and off the pauses in the database.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import HumanMessage

from graph.models.ask import Answer, Heard, ask
from graph.models.chain import Answered, Chain, PutDown
from graph.models.load import ModelLoader
from graph.models.trouble import ModelTrouble
from graph.policy import POLICY
from state.database import Database
from state.pauses import LONGEST_SECONDS, Pauses
from state.settings import Settings
from tests.helpers.endpoint import Endpoint, Reply, Trickle, chunk, endpoint, saying
from tests.helpers.memory_stores import MemoryRuns, MemoryTrace

FIRST, SECOND = "openai:first", "openai:second"
RETRIES = POLICY["model_error"].limit
DOWN = Reply(503)
HI = saying(content="hi")


def limited(**headers: str) -> Reply:
    return Reply(429, {"error": {"message": "slow down"}}, {name.replace("_", "-"): headers[name] for name in headers})


class Watching:
    """An asker that notes what it is told."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.missing: list[str] = []
        self.text = ""
        self.waited: list[float] = []
        self.in_a_hurry = False
        self.left = 60.0
        self.missed_one = asyncio.Event()

    def begins(self, model: str) -> None:
        self.asked.append(model)
        self.text = ""

    def hears(self, text: str) -> None:
        self.text += text

    def waits(self, model: str, seconds: float, why: str) -> None:
        self.waited.append(seconds)

    async def missed(self, model: str, trouble: ModelTrouble) -> None:
        self.missing.append(str(trouble))
        self.missed_one.set()

    def hurried(self) -> bool:
        return self.in_a_hurry

    def seconds_left(self) -> float:
        return self.left


class Process:
    """One process's chain, on a database that it may share with others."""

    def __init__(self, database: Database, settings: Settings) -> None:
        self.database = database
        self.watching = Watching()
        self.servers: list[Endpoint] = []
        self.now = 0.0
        self.models = ModelLoader(runs=MemoryRuns(), trace=MemoryTrace(), settings=settings)
        self.chain = Chain(
            models=self.models,
            pauses=Pauses(database=database),
            settings=settings,
            retries=RETRIES,
            sleep=self._pass,
            chance=lambda: 1.0,
            clock=lambda: self.now,
        )

    async def ask(self, *, seconds: float = 20.0) -> Answered:
        async def question(model: BaseChatModel, heard: Heard) -> Answer:
            return await ask(model, [HumanMessage("hello")], [], call_id="model-1", seconds=seconds, heard=heard)

        return await self.chain.ask(FIRST, question, self.watching)

    @property
    def requests(self) -> list[int]:
        """How often each model was asked."""
        return [len(server.requests) for server in self.servers]

    async def refused(self, **options: Any) -> ModelTrouble:
        with pytest.raises(ModelTrouble) as raised:
            await self.ask(**options)
        return raised.value

    async def _pass(self, seconds: float) -> None:
        self.now += seconds
        async with self.database.transaction() as connection:
            past = "make_interval(secs => %s::float8)"
            await connection.execute(
                f"UPDATE pauses SET until = until - {past}, trial_until = trial_until - {past}", (seconds, seconds)
            )


@asynccontextmanager
async def process(database: Database, *models: Sequence[Any], **settings: Any) -> AsyncIterator[Process]:
    """With a first model, and a second one to fall back to, whose servers give these answers."""
    async with AsyncExitStack() as stack:
        servers = [await stack.enter_async_context(endpoint(*answers)) for answers in models]
        known = {name: {"base_url": server.url} for name, server in zip((FIRST, SECOND), servers, strict=False)}
        given = {"models": known, "fallback_models": list(known)[1:], "home": Path("/nowhere"), **settings}
        made = Process(database, Settings(**given))
        made.servers = servers
        stack.push_async_callback(made.models.close)
        yield made


async def test_pauses_grow_and_so_many_retries_are_enough(database: Database) -> None:
    """Twice as long each time, with chance in them; then it is told what each model said."""
    async with process(database, [DOWN]) as one:
        met = await one.refused()
        assert (met.kind, met.remedy) == ("model_unavailable", "none")
        assert "openai:first: OpenAIAPIError: Error code: 503" in str(met)
        assert (one.watching.waited, one.now) == ([2.0, 4.0, 8.0, 16.0], 30.0)
        assert one.requests == [len(one.watching.missing)] == [RETRIES + 1]
        one.chain.chance, one.now = (lambda: 0.0), 0.0
        await one.refused()
        assert one.now == 15.0


@pytest.mark.parametrize("asked", ["seconds", "date", "date by a wrong clock", "milliseconds"])
async def test_b45_a_pause_is_as_long_as_the_server_asks(database: Database, asked: str) -> None:
    """Neither too early nor far too late, in whatever form it asks."""
    now = datetime.now(UTC).replace(microsecond=0)
    wrong = now - timedelta(days=30)
    headers = {
        "seconds": {"retry_after": "7"},
        "date": {"retry_after": format_datetime(now + timedelta(seconds=8), usegmt=True)},
        "date by a wrong clock": {
            "date": format_datetime(wrong, usegmt=True),
            "retry_after": format_datetime(wrong + timedelta(seconds=7), usegmt=True),
        },
        "milliseconds": {"retry_after_ms": "7000", "retry_after": "99"},
    }[asked]
    async with process(database, [limited(**headers), HI]) as one:
        assert (await one.ask()).answer.message.content == "hi"
        assert 6.5 <= one.now <= 9.0
        assert one.requests == [2]


async def test_b45_a_pause_that_is_too_long_is_not_waited_for(database: Database) -> None:
    """It counts against what is borne of trouble; and no server's word keeps a model away for more than minutes."""
    async with process(database, [limited(retry_after="86400"), HI]) as one:
        met = await one.refused()
        assert "slow down; its server asks for a pause" in str(met)
        assert (one.now, one.requests) == (0.0, [1])
        await one._pass(LONGEST_SECONDS)
        assert (await one.ask()).answer.message.content == "hi"


async def test_trouble_is_borne_for_so_long_in_all(database: Database) -> None:
    """90 s by default, however few the retries; the clock starts with the trouble, not with the turn."""
    async with process(database, [limited(retry_after="40")]) as one:
        one.now = 1000.0
        await one.refused()
        assert (one.requests, 1080 <= one.now <= 1090) == ([3], True)
    async with process(database, [DOWN], model_retry_seconds=0) as one:
        await one.refused()
        assert (one.requests, one.now) == ([1], 0.0)


async def test_a_stream_that_trickles_for_ever_ends(database: Database) -> None:
    """Each chunk comes in time, the answer does not; the other model gives one."""
    forever = Trickle([chunk(content="x")])
    async with process(database, [forever], [HI], model_retry_seconds=0) as one:
        answered = await one.ask(seconds=0.3)
    assert (answered.model, answered.answer.message.content, one.watching.text) == (SECOND, "hi", "hi")
    assert one.watching.missing == ["the answer had not ended after 0.3 s"]


@pytest.mark.parametrize("pause", [0.01, 30.0])
async def test_a_call_is_cut_off_when_the_askers_time_is_over(database: Database, pause: float) -> None:
    """Whether the server trickles or says nothing more; the other model is not asked, and the first one is not taken
    for one that fails."""
    async with process(database, [Trickle([chunk(content="x")], pause=pause)], [HI]) as one:
        one.watching.left = 0.3
        with pytest.raises(PutDown):
            await one.ask()
        assert (one.requests, one.chain.failing) == ([1, 0], set())
    assert one.watching.missing == ["cut off: the time of the run was used up"]


async def test_a_server_that_says_nothing_ends(database: Database) -> None:
    """Long before the whole time of a call is over."""
    silent = Trickle([chunk(content="x")], pause=30.0)
    settings = {"model_retry_seconds": 0, "model_silence_seconds": 0.2}
    async with process(database, [silent], **settings) as one:
        assert "timed out" in str(await one.refused())


@pytest.mark.parametrize("status", [401, 403])
async def test_a_refused_key_is_nobodys_turn(database: Database, status: int) -> None:
    """Neither asked again nor fallen back from; so it is with the key of a fallback model."""
    async with process(database, [Reply(status)], [HI]) as one:
        assert (await one.refused()).kind == "model_key_refused"
        assert one.requests == [1, 0]
    async with process(database, [Reply(404)], [Reply(status)]) as one:
        assert (await one.refused()).kind == "model_key_refused"


async def test_a_fallback_model_without_its_key_is_told_of(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is a mistake in the settings, which waiting does not mend."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    async with process(database, [Reply(404)], fallback_models=["openai:other"]) as one:
        met = await one.refused()
        assert (met.kind, "openai:other needs a key" in str(met)) == ("model_key_refused", True)


@pytest.mark.parametrize(
    ("status", "code"), [(404, "model_not_found"), (400, "context_length_exceeded"), (429, "insufficient_quota")]
)
async def test_what_only_another_model_may_survive_is_not_tried_again(
    database: Database, status: int, code: str
) -> None:
    """The next one is asked at once, and other runs ask the first one as ever."""
    refusal = Reply(status, {"error": {"message": "no", "code": code}})
    async with process(database, [refusal], [HI]) as one:
        answered = await one.ask()
        assert (answered.model, one.now, one.requests) == (SECOND, 0.0, [1, 1])
        place = (await one.models.get(FIRST)).place  # type: ignore[attr-defined]
        assert (one.chain.failing, (await one.chain.pauses.turn(place)).seconds) == (set(), 0.0)


async def test_each_model_has_its_share_of_the_time(database: Database) -> None:
    """Else the first one would use it up."""
    async with process(database, [DOWN], [DOWN, DOWN, HI], model_retry_seconds=20) as one:
        assert (await one.ask()).model == SECOND
    assert (one.requests, one.now) == ([3, 3], 12.0)


async def test_b42_after_a_fallback_the_first_model_can_go_on(database: Database) -> None:
    """Each turn begins with it; while it fails it has one try a turn, and no pauses are waited for."""
    async with process(database, [*[DOWN] * (RETRIES + 2), HI], [HI]) as one:
        turns = [(await one.ask()).model for _ in range(3)]
    assert turns == [SECOND, SECOND, FIRST]
    assert (one.requests, one.now) == ([RETRIES + 3, 2], 30.0)


async def test_a_paused_model_is_passed_over_where_another_one_answers(database: Database) -> None:
    """Its pause is honoured, and not waited for."""
    async with process(database, [limited(retry_after="60"), HI], [HI]) as one:
        assert [(await one.ask()).model for _ in range(3)] == [SECOND] * 3
        assert (one.requests, one.now) == ([1, 3], 0.0)
        await one._pass(61)
        assert (await one.ask()).model == FIRST


async def test_who_is_in_a_hurry_does_not_wait(database: Database) -> None:
    """A run that is put down, or whose own time is over, leaves no question behind."""
    async with process(database, [DOWN]) as one:
        one.watching.in_a_hurry = True
        with pytest.raises(PutDown):
            await one.ask()
        assert (one.requests, one.now) == ([1], 0.0)


async def test_without_a_word_from_the_server_shared_pauses_grow(database: Database) -> None:
    """From one 429 to the next; an answer ends that."""
    async with process(database, [*[limited()] * 3, HI, limited(), HI]) as one:
        await one.ask()
        assert 14.0 <= one.now <= 14.0 * 1.1 + 1.0
        before = one.now
        await one.ask()
        assert one.now - before < 3.0
        assert one.requests == [6]


async def test_ten_runs_in_three_processes_do_not_storm(database: Database, database_url: str) -> None:
    """While one model's pause lasts nobody asks it; when it is over one of them does, and the others once it was heard:
    one question that was too much, one on trial that was too, one that was heard, and then the other nine."""
    others = [Database(Settings(database_url=database_url)) for _ in range(2)]
    pause = limited(retry_after_ms="400")
    async with endpoint(pause, pause, HI) as server:
        made = [Process(each, Settings(model_base_url=server.url)) for each in (database, *others)]
        for each in made:
            each.chain.sleep, each.chain.clock = asyncio.sleep, asyncio.get_running_loop().time
            each.chain.chance = lambda: 0.0
        first = asyncio.create_task(made[0].ask())
        await made[0].watching.missed_one.wait()
        rest = [each.ask() for each in [*made, *made, *made]]
        answers: Sequence[Answered] = await asyncio.gather(first, *rest)
        assert [each.answer.message.content for each in answers] == ["hi"] * 10
        assert len(server.requests) == 2 + 10
        assert sum(len(each.watching.missing) for each in made) == 2
        for each in made:
            await each.models.close()
    for other in others:
        await other.close()


async def test_whoever_dies_on_trial_does_not_keep_the_others(database: Database) -> None:
    """The next one may ask when its time is over."""
    pauses = Pauses(database=database)
    await pauses.pause("m", 0.0, first=1.0)
    assert await pauses.turn("m") == (0.0, True)
    assert (await pauses.turn("m")).seconds > 0
    async with database.transaction() as connection:
        await connection.execute("UPDATE pauses SET trial_until = clock_timestamp() - interval '1 ms'")
    assert await pauses.turn("m") == (0.0, True)
    await pauses.over("m")
    assert await pauses.turn("m") == (0.0, False)
