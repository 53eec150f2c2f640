"""Who asks the models for a run: keeps the calls that came to nothing in the trace, and lets people watch."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final

from langchain_core.messages import BaseMessage
from langgraph.config import get_stream_writer

from graph.attempt import Attempt
from graph.limits import reached
from graph.models.trouble import ModelTrouble
from graph.services import Services
from graph.spending import lost
from state.agent_state import AgentState
from state.trace import Call

_EVERY_SECONDS: Final = 0.1
"""How often a growing answer is shown; its first piece at once."""


class RunAsker:
    """A `graph.models.chain.Asker` for one turn of a run.

    It writes to LangGraph's `custom` stream: `{"asking": NAME, "of": NAME}` when a model is asked, `of` being the first
    one of the run; with `text` for what the answer grew by; with `waits` (seconds) and `why` while nobody is asked.
    """

    def __init__(
        self, state: AgentState, services: Services, attempt: Attempt, call: Call, tools: Sequence[Mapping[str, Any]]
    ) -> None:
        self.asked: Sequence[BaseMessage] = ()
        """What the present try was asked."""
        self.cost_usd, self.tokens = state.cost_usd, state.tokens
        """What the run has used, tries that came to nothing included."""
        self._tools = tools
        self._state = state
        self._services = services
        self._attempt = attempt
        self._call = call
        self._began = self._started = services.now()
        self._write = get_stream_writer()
        self._model = ""
        self._text: list[str] = []
        self._next: asyncio.TimerHandle | None = None

    def begins(self, model: str) -> None:
        self.end()
        self._started, self._model = self._services.now(), model
        self._write({"asking": model, "of": self._state.model})

    def hears(self, text: str) -> None:
        self._text.append(text)
        if self._next is None:
            self._show()

    def _show(self) -> None:
        """What has come; and what comes in the next moment at its end."""
        self._next = None
        if self._text:
            self._write({"asking": self._model, "text": "".join(self._text)})
            self._text = []
            self._next = asyncio.get_running_loop().call_later(_EVERY_SECONDS, self._show)

    def end(self) -> None:
        """Show nothing more of what was heard."""
        if self._next is not None:
            self._next.cancel()
        self._next, self._text = None, []

    def waits(self, model: str, seconds: float, why: str) -> None:
        self._write({"asking": model, "waits": seconds, "why": why})

    async def missed(self, model: str, trouble: ModelTrouble) -> None:
        told: dict[str, Any] = {"started_at": self._started, "ended_at": self._services.now()}
        if trouble.may_cost:
            used = lost(self.asked, self._tools, trouble.received, self._services.prices.of(model))
            self.cost_usd, self.tokens = self.cost_usd + (used.usd or 0.0), self.tokens + used.tokens
            told["cost_usd"] = used.usd
        await self._services.trace.record(self._call.model_copy(update={"name": model, "error": str(trouble), **told}))

    def hurried(self) -> bool:
        """Who puts the run down, or its own limits, does not wait for a model."""
        budgets = self._state.budgets
        spent = reached(budgets, cost_usd=self.cost_usd, tokens=self.tokens, step=self._state.step, active_seconds=0.0)
        return self.seconds_left() <= 0 or spent is not None or self._attempt.control.drain_requested

    def seconds_left(self) -> float:
        seconds = (self._services.now() - self._began).total_seconds()
        return self._state.budgets.seconds - self._state.active_seconds - seconds
