"""The models of a run, asked in their order until one answers.

A model whose trouble may pass is asked again, after pauses that grow, or as its server asks; then it is the next one's.
The trouble of one turn is borne for so many seconds, of which each model that is still to come has its share. A turn
begins with the first model again, whoever answered the last one.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from langchain_core.language_models import BaseChatModel

from graph.models.ask import Answer, Heard
from graph.models.load import ModelLoader
from graph.models.served import Served
from graph.models.trouble import ModelTrouble
from graph.spending import BYTES_A_TOKEN
from state.errors import Refused
from state.model_settings import ModelSettings
from state.pauses import Pauses, Turn

LONGEST_PAUSE_SECONDS = 30.0
"""Between two tries, where the server asks for none."""
_SLICE_SECONDS = 1.0
_TOLD = 300

Question = Callable[[BaseChatModel, Heard], Awaitable[Answer]]


class PutDown(Exception):
    """Whoever asked does not want to wait any longer: nothing came of it, and nothing is lost."""


class Asker(Protocol):
    """Who asks, and is told how it goes."""

    def begins(self, model: str) -> None:
        """This model is asked now; what was heard of the turn so far is void."""

    def hears(self, text: str) -> None:
        """The answer grows by this text."""

    def waits(self, model: str, seconds: float, why: str) -> None:
        """Nobody is asked for so long."""

    async def missed(self, model: str, trouble: ModelTrouble) -> None:
        """This model was asked and did not answer."""

    def hurried(self) -> bool:
        """Whether to wait, and to ask, no longer."""

    def seconds_left(self) -> float:
        """How much longer a call may take, for whoever asks."""


class Answered(NamedTuple):
    """An answer, and by whom: the name by which the chain knows the model."""

    model: str
    answer: Answer


@dataclass(kw_only=True)
class Chain:
    """Asks one process's models. Pauses, chance and the clock can be set."""

    models: ModelLoader
    pauses: Pauses
    settings: ModelSettings
    retries: int
    """How often one model is asked again in a turn."""
    sleep: Callable[[float], Awaitable[Any]] = asyncio.sleep
    chance: Callable[[], float] = random.random
    clock: Callable[[], float] = time.monotonic
    failing: set[str] = field(default_factory=set)
    """Models that did not answer when they were asked last: they have one try, where there is another one to ask."""

    def names(self, first: str) -> list[str]:
        """A run's models, in their order."""
        return [first, *(name for name in self.settings.fallback_models if name != first)]

    async def check(self, first: str) -> None:
        """Raises Refused for a run's models of which one stands for nothing or lacks its settings; SecretMissing where
        that is a key."""
        for name in self.names(first):
            await self.models.get(name)

    async def ask(self, first: str, question: Question, asker: Asker) -> Answered:
        """Put the question to the run's models until one answers.

        Raises:
            ModelTrouble: none answered, or one of them refused its key or the question.
            PutDown: the asker was in a hurry, or its time was over in the middle of a call.
        """
        bearing = _Bearing(self.settings.model_retry_seconds, self.clock)
        names, missed = self.names(first), dict[str, str]()
        for place, name in enumerate(names):
            if missed and asker.hurried():
                raise PutDown
            tries = _Tries(self, name, asker, bearing, left=len(names) - place)
            try:
                return Answered(name, await tries.answer(question))
            except ModelTrouble as trouble:
                if trouble.remedy == "none":
                    raise
                missed[name] = str(trouble)
        told = "; ".join(f"{name}: {said[:_TOLD]}" for name, said in missed.items())
        raise ModelTrouble("model_unavailable", told)


class _Bearing:
    """How much longer a turn's trouble is borne, from the first of it on."""

    def __init__(self, seconds: float, clock: Callable[[], float]) -> None:
        self._seconds = seconds
        self._clock = clock
        self._began: float | None = None

    def allows(self, pause: float, *, left: int) -> bool:
        """Whether so long a pause fits in the share of the next of so many models."""
        now = self._clock()
        if self._began is None:
            self._began = now
        return now + pause <= self._began + self._seconds / left


class _Tries:
    """One model's tries in one turn."""

    def __init__(self, chain: Chain, name: str, asker: Asker, bearing: _Bearing, *, left: int) -> None:
        self._chain = chain
        self._name = name
        self._asker = asker
        self._bearing = bearing
        self._left = left
        self._why = "its server asks for a pause"
        self._received = 0
        """About how many tokens of the answer to the present try have come."""

    async def answer(self, question: Question) -> Answer:
        chain, model = self._chain, await self._model()
        place = model.place if isinstance(model, Served) else None
        retries, count = 0 if self._is_failing else chain.retries, 0
        try:
            while True:
                if count and self._asker.hurried():
                    raise PutDown
                turn = await self._turn(place)
                self._asker.begins(self._name)
                self._received = 0
                try:
                    answer = await self._in_time(question(model, self._heard(place, turn)))
                except ModelTrouble as trouble:
                    pause = await self._missed(trouble, place, turn, count)
                    count += 1
                    if trouble.remedy != "again" or count > retries or not self._bearing.allows(pause, left=self._left):
                        raise
                    await self._wait(pause, str(trouble))
                else:
                    chain.failing.discard(self._name)
                    return answer
        except ModelTrouble as trouble:
            if trouble.remedy == "again":
                chain.failing.add(self._name)
            raise

    async def _in_time(self, call: Awaitable[Answer]) -> Answer:
        """Raises PutDown where the asker's time is over before the answer is there: the call is cut off."""
        own = asyncio.timeout(self._asker.seconds_left())
        try:
            async with own:
                return await call
        except TimeoutError:
            if not own.expired():
                raise
        trouble = ModelTrouble("model_error", "cut off: the time of the run was used up", unanswered=True)
        trouble.received = self._received
        await self._asker.missed(self._name, trouble)
        raise PutDown

    @property
    def _is_failing(self) -> bool:
        return self._name in self._chain.failing and self._left > 1

    async def _model(self) -> BaseChatModel:
        try:
            return await self._chain.models.get(self._name)
        except Refused as error:
            trouble = ModelTrouble("model_key_refused", str(error))
            await self._asker.missed(self._name, trouble)
            raise trouble from None

    async def _turn(self, place: str | None) -> Turn:
        """Wait out a pause that the model's server asked for, of whatever run it asked that."""
        if place is None:
            return Turn(0.0)
        while (turn := await self._chain.pauses.turn(place)).seconds:
            seconds = turn.seconds * (1 + self._chain.chance() / 10)
            if self._is_failing or not self._bearing.allows(seconds, left=self._left):
                raise ModelTrouble("model_error", f"{self._why}, for {seconds:.0f} s more")
            await self._wait(seconds, self._why)
        return turn

    def _heard(self, place: str | None, turn: Turn) -> Heard:
        on_trial = turn.trial

        async def heard(text: str) -> None:
            nonlocal on_trial
            self._received += max(1, -(-len(text) // BYTES_A_TOKEN))
            if on_trial and place is not None:
                on_trial = False
                await self._chain.pauses.over(place)
            if text:
                self._asker.hears(text)

        return heard

    async def _missed(self, trouble: ModelTrouble, place: str | None, turn: Turn, count: int) -> float:
        """How long to wait before the next try; where it is too much for the server, so does everybody else."""
        trouble.received = self._received
        await self._asker.missed(self._name, trouble)
        settings, chance = self._chain.settings, self._chain.chance()
        backoff = min(settings.model_pause_seconds * 2.0**count, LONGEST_PAUSE_SECONDS) * (0.5 + chance / 2)
        if place is None:
            return max(backoff, trouble.pause or 0.0)
        if trouble.limited and trouble.remedy == "again":
            await self._chain.pauses.pause(place, trouble.pause, first=settings.model_pause_seconds)
            self._why = f"{trouble}; its server asks for a pause"
            return 0.0  # the model's turn comes after the pause
        if turn.trial:
            await self._chain.pauses.over(place)
        return backoff

    async def _wait(self, seconds: float, why: str) -> None:
        """Raises PutDown as soon as the asker is in a hurry."""
        if seconds > _SLICE_SECONDS:
            self._asker.waits(self._name, seconds, why)
        while seconds > 0:
            if self._asker.hurried():
                raise PutDown
            await self._chain.sleep(min(seconds, _SLICE_SECONDS))
            seconds -= _SLICE_SECONDS
