"""A job is a kind of work: its tools, prompts, default model, and its evidence for `completed`.

A job of your own is one module with one `Job` object, named by `DEVFIX_JOB=module:job`; `graph/jobs/basic.py` has the
usual answers for it, and `graph/jobs/repair.py` is the one that ships.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

from pydantic import BaseModel, ConfigDict, JsonValue

from state.agent_state import AgentState, RunInput, ToolCall, Tried
from state.failures import Failure
from tools.registry import Toolbox

if TYPE_CHECKING:
    from state.settings import Settings
    from state.snapshots import Snapshots

Judgement = Literal["go_on", "done", "nothing_to_do", "tests_unreachable"]


class Begun(BaseModel):
    """What a job makes of a run's input, before the first step is saved."""

    model_config = ConfigDict(frozen=True)

    work: dict[str, Any]
    snapshot: str | None = None


class Observed(BaseModel):
    """What a result means to the job."""

    model_config = ConfigDict(frozen=True)

    work: dict[str, Any]
    tried: list[Tried] = []
    completed: list[str] = []
    failure: Failure | None = None


class Verdict(BaseModel):
    """How far the job is, by its own evidence."""

    model_config = ConfigDict(frozen=True)

    judgement: Judgement
    summary: str = ""
    """For `go_on`, what the model is told when it claims more than the evidence shows."""
    details: str | None = None


class Rules(Protocol):
    """The decisions that a job takes; each is a plain function of the state, but for `begin`, which may read files."""

    def goal_of(self, given: RunInput) -> str:
        """As given, or what the job makes of an input that names none."""

    async def check(self, given: RunInput, *, settings: Settings) -> None:
        """Raises Refused, in one sentence, for an input that can't be worked on; there is no run yet."""

    async def begin(self, given: RunInput, *, snapshots: Snapshots, settings: Settings) -> Begun:
        """The run's first step. Raises Refused as `check` does."""

    def plan(self, state: AgentState) -> list[str]: ...

    def prompt(self, state: AgentState) -> str:
        """The system prompt."""

    def opening(self, state: AgentState) -> ToolCall | None:
        """A call that DevFix makes itself before the model is asked; None when there is nothing left to open."""

    def evidence(self, state: AgentState) -> ToolCall | None:
        """A call that DevFix makes before the gated calls in `pending_actions` are put to a person, so that they are
        decided on evidence."""

    def objection(self, state: AgentState) -> str | None:
        """Why the evidence speaks against putting gated calls to a person now; None where it does not."""

    def observe(self, state: AgentState, name: str, facts: Mapping[str, JsonValue]) -> Observed: ...

    def judge(self, state: AgentState) -> Verdict: ...

    def describe(self, state: AgentState, call: ToolCall) -> str:
        """What a person is shown of a gated call."""

    def again(self, work: Mapping[str, Any]) -> dict[str, Any]:
        """The work as it is when a run that has ended is resumed: evidence that may be stale is dropped."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """A kind of work."""

    name: str
    rules: Rules
    toolbox: Toolbox
    work: type[BaseModel]
    default_model: str


def plan_done(state: AgentState, done: Sequence[str]) -> list[str]:
    """The completed items of the plan, in the plan's order."""
    return [item for item in state.plan if item in {*state.completed, *done}]


def dressed(call: ToolCall, job: Job) -> ToolCall:
    """The call with what its tool says about it; an unknown tool reads nothing and answers with an error."""
    tool = job.toolbox.get(call.name)
    gated = tool is not None and tool.gated and call.origin == "model"
    return call.model_copy(update={"kind": tool.kind if tool else "read", "gated": gated})


def described(call: ToolCall) -> str:
    """A call as a person is shown it, where its job has no words of its own: what the model asked for, then what
    DevFix fixed."""
    return "\n".join([call.name, *(f"{name}: {value}" for name, value in {**call.args, **call.bound}.items())])
