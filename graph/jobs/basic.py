"""The usual answers to what a job decides: a job of one's own overrides those that it has an answer to.

Such a job is a model of its work, its tools, a prompt and `judge`, the evidence for `completed`; see
`tests/jobs/refund.py`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, JsonValue, ValidationError

from graph.jobs import Begun, Observed, Verdict, described
from state.agent_state import AgentState, RunInput, ToolCall, Tried
from state.errors import Refused

if TYPE_CHECKING:
    from state.settings import Settings
    from state.snapshots import Snapshots


class BasicRules(ABC):
    """A job without files of its own, whose work is what its tools report.

    A tool's facts that have the name of a field of `work` are kept there; so `judge` sees what has happened by the
    tools' receipts, not by what a model says.
    """

    work: type[BaseModel]
    """What the job keeps. Its fields take the run's options, and the facts of its tools."""
    goal: str = ""
    """The goal of a run that names none."""
    steps: tuple[str, ...] = ()
    """The plan."""

    def goal_of(self, given: RunInput) -> str:
        return given.goal or self.goal

    async def check(self, given: RunInput, *, settings: Settings) -> None:
        self._work(given.options)

    async def begin(self, given: RunInput, *, snapshots: Snapshots, settings: Settings) -> Begun:
        return Begun(work=self._work(given.options).model_dump(mode="json"))

    def plan(self, state: AgentState) -> list[str]:
        return list(self.steps)

    @abstractmethod
    def prompt(self, state: AgentState) -> str: ...

    def opening(self, state: AgentState) -> ToolCall | None:
        return None

    def evidence(self, state: AgentState) -> ToolCall | None:
        return None

    def objection(self, state: AgentState) -> str | None:
        return None

    def observe(self, state: AgentState, name: str, facts: Mapping[str, JsonValue]) -> Observed:
        told = {field: value for field, value in facts.items() if field in self.work.model_fields}
        return Observed(work={**state.work, **told}, tried=[Tried(what=name, outcome="done")])

    @abstractmethod
    def judge(self, state: AgentState) -> Verdict: ...

    def describe(self, state: AgentState, call: ToolCall) -> str:
        return described(call)

    def again(self, work: Mapping[str, Any]) -> dict[str, Any]:
        return dict(work)

    def _work(self, options: Mapping[str, JsonValue]) -> BaseModel:
        unknown = sorted(set(options) - set(self.work.model_fields))
        if unknown:
            raise Refused(f"this job has no option {', '.join(unknown)}; it has {', '.join(self.work.model_fields)}")
        try:
            return self.work.model_validate(dict(options))
        except ValidationError as error:
            told = "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors())
            raise Refused(f"the job's options are not valid: {told}") from None
