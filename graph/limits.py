"""The limits of a run: no call of a model or a tool begins once one is reached. A person can raise them.

What a person approved is done all the same: the answer came, and the effect costs nothing more.
"""

from __future__ import annotations

from state.agent_state import AgentState, Budgets
from state.status import Standing


def reached(budgets: Budgets, *, cost_usd: float, tokens: int, step: int, active_seconds: float) -> Standing | None:
    """How the run ends by its own limits, if it does."""
    if budgets.usd is not None and cost_usd >= budgets.usd:
        return Standing("failed", "budget")
    if budgets.tokens is not None and tokens >= budgets.tokens:
        return Standing("failed", "budget")
    if step >= budgets.steps:
        return Standing("failed", "step_limit")
    return Standing("failed", "deadline") if active_seconds >= budgets.seconds else None


def limit_of(state: AgentState) -> Standing | None:
    """The same for a state as nodes read it."""
    return reached(
        state.budgets,
        cost_usd=state.cost_usd,
        tokens=state.tokens,
        step=state.step,
        active_seconds=state.active_seconds,
    )


def used_up(state: AgentState, limit: Standing) -> str:
    """One sentence on what was used up, as of the step in which the run ends."""
    budgets = state.budgets
    match limit.reason:
        case "budget":
            return f"The budget is used up: {state.cost_usd:.4f} USD and {state.tokens} tokens so far."
        case "step_limit":
            return f"The run ends with its step {state.step + 1}; no call begins after step {budgets.steps}, its limit."
    return f"The run has worked for {_told(state.active_seconds)} s; its limit is {_told(budgets.seconds)} s."


def _told(seconds: float) -> str:
    return f"{seconds:.0f}" if seconds >= 10 else f"{seconds:.3g}"


def lifted(state: AgentState) -> str:
    """The options of `devfix resume` that lift what is reached, each to twice as much."""
    budgets = state.budgets
    options = []
    if budgets.usd is not None and state.cost_usd >= budgets.usd:
        options.append(f"--budget-usd {2 * max(budgets.usd, state.cost_usd) or 1.0:.6g}")
    if budgets.tokens is not None and state.tokens >= budgets.tokens:
        options.append(f"--budget-tokens {2 * max(budgets.tokens, state.tokens) or 100_000}")
    if state.step + 1 >= budgets.steps:
        options.append(f"--step-limit {2 * max(budgets.steps, state.step)}")
    if state.active_seconds >= budgets.seconds:
        options.append(f"--deadline-seconds {2 * max(budgets.seconds, state.active_seconds) + 1:.6g}")
    return " ".join(options)
