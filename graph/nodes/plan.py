"""plan: think about the way. A new run is begun by its job; a re-plan tells the model to leave the old way."""

from __future__ import annotations

from graph.progress import RE_PLAN, what_was_tried
from graph.prompts import from_devfix
from graph.services import Services
from graph.spending import unpriced
from graph.update import Update, read_as, update
from state.agent_state import AgentState, Budgets, RunInput
from state.errors import InvalidState, Refused


async def plan(state: AgentState, *, services: Services) -> Update:
    """Lay out the way to the goal; the work itself is begun once."""
    return await _begin(state, services) if not state.work else _replan(state, services)


async def _begin(state: AgentState, services: Services) -> Update:
    given = read_as(RunInput, state.input)
    job = services.job(given.job or services.settings.job)
    try:
        begun = await job.rules.begin(given, snapshots=services.snapshots, settings=services.settings)
    except Refused as error:
        raise InvalidState(f"{error}; nothing was begun: start a run with another input") from None
    goal = job.rules.goal_of(given)
    begun_state = state.model_copy(update={"work": begun.work, "goal": goal, "snapshot": begun.snapshot})
    model = given.model or services.settings.model or job.default_model
    budgets = _budgets(given, services)
    if why := unpriced(services.chain.names(model), budgets.usd, services.prices):
        raise InvalidState(f"{why}; nothing was begun: start a run with another input")
    await services.runs.describe(state.run_id, goal=goal, job=job.name, model=model)
    return update(
        goal=goal,
        job=job.name,
        model=model,
        status="running",
        budgets=budgets,
        work=begun.work,
        snapshot=begun.snapshot,
        plan=job.rules.plan(begun_state),
        messages=[from_devfix(goal, identifier="goal")],
        decision=None,
    )


def _budgets(given: RunInput, services: Services) -> Budgets:
    settings = services.settings
    return Budgets(
        usd=given.budget_usd if given.budget_usd is not None else settings.budget_usd,
        tokens=given.budget_tokens,
        steps=given.step_limit or settings.step_limit,
        seconds=given.deadline_seconds or settings.deadline_seconds,
    )


def _replan(state: AgentState, services: Services) -> Update:
    tried = "\n".join(what_was_tried(state.attempts))
    text = f"This way has led nowhere. What was tried:\n{tried}\nTake another way: name it first, then follow it."
    return update(
        plan=services.job(state.job).rules.plan(state),
        messages=[from_devfix(text, identifier=f"{RE_PLAN}{state.step}")],
        idle_turns=0,
        decision=None,
    )
