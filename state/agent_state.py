"""The state of a run: what LangGraph saves after every step, and what a run is started with.

LangGraph itself sees JSON-plain channels only (`Channels`). A Pydantic graph state would let one bad value make
history, state and repair unreadable for ever; so `AgentState` stands at the border of each node instead: channels
are validated when a node reads them, and what a node writes is validated before it is saved.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from langgraph.channels import DeltaChannel
from pydantic import BaseModel, ConfigDict, Field, JsonValue
from typing_extensions import TypedDict  # Pydantic makes the API's schemas of it, and takes typing's from 3.12 only

from state.failures import Failure
from state.messages import append_records
from state.status import Reason, Status

DELTA_SNAPSHOT_EVERY = 5000
"""Updates between two whole copies of a list in the checkpoints. Copies make storage grow with the square of the steps,
a long way between them makes loading read more rows. `devfix bench storage`, 2 KB a step, stored bytes by raw ones:

    every      400 steps    2,000 steps    4,000 steps
    100           3.6            8.1           14.2     (LangGraph's default; its own saver: 5.6, 13.6 at 2,000 steps)
    2,000         2.0            2.3            2.5
    2,500         2.0            1.7            2.0
    5,000         2.0            1.7            1.6     (LangGraph makes a copy at the latest after 5,000 supersteps)

Loading takes about 20 µs a row of one processor, wherever the rows are.
"""


Decision = Literal["continue", "retry", "tools", "ask", "escalate", "re-plan", "stop", "done"]
"""What review says next. `tools` and `ask` finish the turn that is open."""


class ToolCall(BaseModel):
    """What the model asked for, and what a fanned-out task needs to do it: references, never the state."""

    model_config = ConfigDict(frozen=True)

    id: str
    name: str
    args: dict[str, JsonValue]
    kind: Literal["read", "workspace", "effect"] = "read"
    gated: bool = False
    """A person has to answer first; an approved call is gated no more."""
    bound: dict[str, JsonValue] = {}
    """What DevFix fixed when the person was asked."""
    again: bool = False
    """A person said that an effect which has happened shall happen once more."""
    origin: Literal["model", "devfix"] = "model"
    """devfix: a call that the job's rules make (evidence), with no message to answer."""


class Task(BaseModel):
    """What a fanned-out task is handed: the call, and references to what it works on."""

    model_config = ConfigDict(frozen=True)

    call: ToolCall
    run_id: str
    step: int
    job: str
    snapshot: str | None
    work: dict[str, Any]
    """The job's settings: what of its part of the state is not a record of its own."""
    seconds_left: float | None = None
    """How long the run may still work."""

    @classmethod
    def of(cls, call: ToolCall | Mapping[str, Any], channels: Mapping[str, Any]) -> Task:
        """The call with what it needs of the state's channels."""
        work = {name: value for name, value in (channels.get("work") or {}).items() if not isinstance(value, dict)}
        chosen = {name: channels.get(name) for name in ("run_id", "step", "job", "snapshot")}
        seconds = (channels.get("budgets") or {}).get("seconds")
        left = None if seconds is None else seconds - (channels.get("active_seconds") or 0.0)
        return cls.model_validate({**chosen, "call": call, "work": work, "seconds_left": left})


class Tried(BaseModel):
    """One thing that was tried, and what came of it."""

    model_config = ConfigDict(frozen=True)

    what: str
    outcome: str
    step: int = 0


class Budgets(BaseModel):
    """Where a run stops by itself. It is saved, reported, and goes on after a raise."""

    usd: float | None = None
    tokens: int | None = None
    steps: int = 500
    seconds: float = 3600.0
    """Active wall time: waiting for a person does not count."""


class Report(BaseModel):
    """What a person needs when a run waits or has ended."""

    summary: str
    """One sentence: how the run stands, and why."""
    done: list[str] = []
    left: list[str] = []
    tried: list[str] = []
    next: list[str] = []
    """The commands that go on from here."""
    details: str | None = None


class AgentState(BaseModel):
    """The run's part of the state, and the job's part in `work`."""

    model_config = ConfigDict(extra="ignore")

    run_id: str = ""
    goal: str = ""
    job: str = "repair"
    model: str = ""
    answered_by: str = ""
    """Which of the run's models gave the last answer."""
    status: Status = "running"
    reason: Reason | None = None
    step: int = 0
    """The number of the step that was saved last."""
    plan: list[str] = []
    completed: list[str] = []
    decision: Decision | None = None
    """What review said next."""
    pending_actions: list[ToolCall] = []
    """Calls of the present turn that have no result yet."""
    messages: list[Any] = Field(default=[], repr=False)
    """Flat message dictionaries; validated once, when they enter."""
    attempts: list[Any] = Field(default=[], repr=False)
    """`Tried` records: what was tried and what came of it."""
    reviewed: int = 0
    """How many messages review has seen."""
    handled: int = 0
    """How many failures review has answered."""
    idle_turns: int = 0
    """Turns in a row in which the model asked for nothing."""
    failures: list[Failure] = []
    streaks: dict[str, int] = {}
    """How many turns in a row have failed in each way, see `graph/streaks.py`."""
    turn_failures: list[str] = []
    """In which ways the present turn has failed so far."""
    cost_usd: float = 0.0
    tokens: int = 0
    active_seconds: float = 0.0
    budgets: Budgets = Budgets()
    snapshot: str | None = None
    """The workspace's content as of this step."""
    report: Report | None = None
    work: dict[str, Any] = {}
    """The job's own model, JSON-plain."""
    input: dict[str, Any] = {}
    """What the run was started with, for whoever looks at it later."""


class RunInput(BaseModel):
    """What a run is started with, from the command line, the API and Studio alike."""

    model_config = ConfigDict(extra="forbid")

    repository: str = Field(default="", description="The folder whose tests fail; it is not touched before approval.")
    goal: str = Field(default="", description="What shall be achieved; without it, the job's own goal.")
    job: str | None = Field(default=None, description="What kind of work; without it, repair.")
    test_command: str | None = Field(default=None, description="The command that runs the tests.")
    model: str | None = Field(default=None, description="search-repair, openai:NAME, scripted:FILE or recorded:RUN.")
    python: str | None = Field(default=None, description="The interpreter that the tests run under.")
    commit: bool = Field(default=False, description="Commit the patch on a branch of its own.")
    patch_out: str | None = Field(default=None, description="Write the patch to this file instead.")
    allow_test_edits: bool = False
    env: list[str] = Field(default=[], description="Names of environment variables that the tests may see.")
    allow_network: bool = False
    unsafe_local: bool = False
    budget_usd: float | None = Field(default=None, ge=0)
    budget_tokens: int | None = Field(default=None, ge=0)
    step_limit: int | None = Field(default=None, gt=0)
    deadline_seconds: float | None = Field(default=None, gt=0)
    options: dict[str, JsonValue] = Field(default={}, description="What a job of the user's own takes.")


def latest(old: int, new: int) -> int:
    """Steps only grow, also where several fanned-out tasks write the same one."""
    return max(old, new)


def merged(old: Sequence[Any], new: Sequence[Any]) -> list[Any]:
    return [*old, *new]


class Channels(TypedDict, total=False):
    """What LangGraph saves: JSON-plain values, one reducer for each channel that fanned-out tasks may write."""

    run_id: str
    goal: str
    job: str | None
    model: str | None
    answered_by: str
    status: str
    reason: str | None
    step: Annotated[int, latest]
    plan: list[str]
    completed: list[str]
    decision: str | None
    pending_actions: list[dict[str, Any]]
    messages: Annotated[list[Any], DeltaChannel(append_records, list, snapshot_frequency=DELTA_SNAPSHOT_EVERY)]
    attempts: Annotated[list[Any], DeltaChannel(append_records, list, snapshot_frequency=DELTA_SNAPSHOT_EVERY)]
    reviewed: int
    handled: int
    idle_turns: int
    failures: Annotated[list[dict[str, Any]], operator.add]
    streaks: dict[str, int]
    turn_failures: list[str]
    cost_usd: float
    tokens: int
    active_seconds: float
    budgets: dict[str, Any]
    snapshot: str | None
    report: dict[str, Any] | None
    work: dict[str, Any]


class RunInputChannels(TypedDict, total=False):
    """`RunInput` as LangGraph takes it; the `plan` node checks it as a whole."""

    repository: str
    goal: str
    job: str | None
    test_command: str | None
    model: str | None
    python: str | None
    commit: bool
    patch_out: str | None
    allow_test_edits: bool
    env: list[str]
    allow_network: bool
    unsafe_local: bool
    budget_usd: float | None
    budget_tokens: int | None
    step_limit: int | None
    deadline_seconds: float | None
    options: dict[str, Any]


class StartChannels(RunInputChannels, Channels, total=False):
    """What the `plan` node reads."""
