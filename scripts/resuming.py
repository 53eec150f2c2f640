"""How an ended run goes on, and how a run's limits are raised: the state is written from outside any attempt."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.types import StateSnapshot
from pydantic import BaseModel, ConfigDict

from graph.report import RAISED_BY
from graph.spending import unpriced
from scripts.bootstrap import Application
from scripts.facts import items, newest
from scripts.starting import RELEASED, put_down
from state.agent_state import Budgets
from state.errors import Refused, RunBusy
from state.ids import short
from state.runs import Run
from state.status import TERMINAL

INPUT = "__input__"


class Raise(BaseModel):
    """What a person changes when they resume a run; None leaves it as it is."""

    model_config = ConfigDict(frozen=True)

    budget_usd: float | None = None
    budget_tokens: int | None = None
    step_limit: int | None = None
    deadline_seconds: float | None = None
    model: str | None = None

    @property
    def given(self) -> dict[str, Any]:
        return self.model_dump(exclude_none=True)


class LimitReached(Refused):
    """The run ended at a limit, and would end at once at this one."""


async def make_ready(application: Application, run: Run, changes: Raise) -> bool:
    """Make the saved state one that an attempt can go on from. Whether the run had ended, which the attempt is told.

    Raises Refused where nothing was saved to go on from, LimitReached, RunBusy.
    """
    snapshot = await _as_saved(application, run)
    if not snapshot.next and not snapshot.values:
        raise Refused(f"run {short(run.run_id)} has nothing saved to go on from; start another with `devfix run`")
    ended = run.status in TERMINAL
    limits = _limits(run, snapshot.values, changes)
    model = changes.model or str(snapshot.values.get("model") or "")
    models = application.services.chain.names(model) if model else []
    if why := unpriced(models, limits["budgets"]["usd"], application.services.prices):
        raise Refused(f"{why}; nothing was changed")
    if ended and not snapshot.next:
        await _reopen(application, snapshot, {**limits, **_model(changes)})
    elif changes.given and snapshot.next == ("__start__",):
        await _amend_input(application, snapshot, changes)
    elif changes.given:
        await _amend(application, snapshot, changes, {**limits, **_model(changes)})
    if changes.model is not None:
        await application.services.runs.describe(run.run_id, goal=run.goal, job=run.job, model=changes.model)
    return ended


async def leave_to_a_worker(application: Application, run_id: str) -> None:
    """Queue a run that was made ready. Raises RunBusy while somebody holds it."""
    run = await application.services.runs.get(run_id)
    if run.status == "running":
        raise RunBusy(f"run {short(run_id)} is held by {run.holder} (attempt {run.epoch}), which goes on with it")
    if run.holder is not None:  # it died with the run, and the next attempt is to learn that
        await application.queue.put(run_id)
    else:
        await put_down(application, run_id, RELEASED, due_seconds=0)


def _limits(run: Run, values: Mapping[str, Any], changes: Raise) -> dict[str, Any]:
    """The budgets as they will be. Raises LimitReached for a run that ended at a limit and would do so again."""
    budgets = Budgets.model_validate(values.get("budgets") or {})
    wanted = {
        "usd": changes.budget_usd,
        "tokens": changes.budget_tokens,
        "steps": changes.step_limit,
        "seconds": changes.deadline_seconds,
    }
    budgets = budgets.model_copy(update={name: value for name, value in wanted.items() if value is not None})
    if run.status == "failed" and run.reason in RAISED_BY:
        _refuse_at_limit(run, values, budgets)
    return {"budgets": budgets.model_dump()}


def _refuse_at_limit(run: Run, values: Mapping[str, Any], budgets: Budgets) -> None:
    for used, limit, option, unit in (
        (values.get("cost_usd") or 0.0, budgets.usd, "--budget-usd", "USD"),
        (values.get("tokens") or 0, budgets.tokens, "--budget-tokens", "tokens"),
        (values.get("step") or 0, budgets.steps, "--step-limit", "steps"),
        (values.get("active_seconds") or 0.0, budgets.seconds, "--deadline-seconds", "seconds"),
    ):
        if limit is not None and used >= limit:
            raise LimitReached(
                f"run {short(run.run_id)} has used {used:.6g} {unit}, and its limit is {limit:.6g}, so it would end "
                f"there at once; nothing was changed: `devfix resume {short(run.run_id)} {option} N` goes on with more"
            )


def _model(changes: Raise) -> dict[str, Any]:
    return {} if changes.model is None else {"model": changes.model}


async def _as_saved(application: Application, run: Run) -> StateSnapshot:
    """The newest checkpoint by itself. What a half-done step has written beside it would hide where the run stands."""
    snapshot = await newest(application, run)
    return await application.agent().aget_state(snapshot.config) if snapshot.values or snapshot.next else snapshot


async def _reopen(application: Application, snapshot: StateSnapshot, changes: Mapping[str, Any]) -> None:
    """As if review had said: continue; where a limit came in the middle of a turn, review goes on with that turn."""
    values = snapshot.values
    rules = application.services.job(values["job"]).rules
    open_turn = bool(items(values, "pending_actions"))
    again: dict[str, Any] = {
        "status": "running",
        "reason": None,
        "report": None,
        "decision": None if open_turn else "continue",
        "idle_turns": 0,
        "work": rules.again(values["work"]),
    }
    as_node = "tool_execute" if open_turn else "review"
    await application.agent().aupdate_state(snapshot.config, {**again, **changes}, as_node=as_node)


async def _amend(application: Application, snapshot: StateSnapshot, changes: Raise, fields: Mapping[str, Any]) -> None:
    """Change fields in place. What a half-done step has written is done again; effects happen once all the same."""
    as_node = written_by(snapshot.next, snapshot.values)
    values = changes.given if as_node == "__start__" else dict(fields)
    await application.agent().aupdate_state(snapshot.config, values, as_node=as_node)


def written_by(following: tuple[str, ...], values: Mapping[str, Any]) -> str:
    """A node after which the graph goes where it would have gone, by its own edges."""
    match following[:1]:
        case ("plan",):
            return "review" if values.get("work") else "__start__"
        case ("act",):
            return "plan"
        case ("review",):
            return "tool_execute"
        case ("tool_execute" | "approval",) if values.get("decision") != "escalate":
            return "act"
        case () if values.get("status") == "cancelled":
            return "approval"
    return "review"


async def _amend_input(application: Application, snapshot: StateSnapshot, changes: Raise) -> None:
    given = await saved_input(application, snapshot.config)
    await application.agent().aupdate_state(snapshot.config, {**given, **changes.given}, as_node=INPUT)


async def saved_input(application: Application, config: RunnableConfig) -> dict[str, Any]:
    """The input of a run that has not taken its first step. Raises Refused where there is none."""
    saved = await application.saver().aget_tuple(config)
    given = saved.checkpoint["channel_values"].get("__start__") if saved else None
    if not isinstance(given, Mapping):
        raise Refused("the run's input is not saved; start another run")
    return dict(given)
