"""review: judge. The only join: results are taken in, failures answered by the table, limits held, the end decided."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from langchain_core.messages import HumanMessage

from graph.jobs import Job, dressed, plan_done
from graph.limits import lifted, limit_of, used_up
from graph.policy import IN_VAIN_LIMIT, rule
from graph.progress import STUCK, standstill, what_was_tried
from graph.prompts import DEVFIX, from_devfix
from graph.report import MOST_TRIED, commands, sentence
from graph.services import Services
from graph.streaks import IN_VAIN, UNUSABLE, counted, family, kept, ways
from graph.update import Update, new_messages, update
from state.agent_state import AgentState, Decision, Report, Tried
from state.failures import Failure
from state.status import Standing

IDLE_LIMIT = 3
"""Turns in a row without a call, while the evidence denies success, before a person is asked."""
_SAID: Final = 300
"""Characters of what a model said that a report shows."""
_NUDGE: Final = "You asked for nothing, and the goal is not reached yet. Use a tool, or say what you would need."


class Result(NamedTuple):
    """What came of one call, as the job sees it."""

    call_id: str
    name: str
    facts: Mapping[str, Any]
    is_error: bool


async def review(state: AgentState, *, services: Services) -> Update:
    """Take in what is new, and say what is next."""
    job = services.job(state.job)
    succeeded = any(each.facts and not (each.is_error or each.facts.get("fresh")) for each in _results(state))
    state, tried, found = _take_in(state, job)
    seconds = state.active_seconds + services.attempt(state.run_id).lap()
    state = state.model_copy(update={"active_seconds": seconds})
    if stuck := _standstill(state):
        found = [*found, stuck]
    fresh = [*state.failures[state.handled :], *found]
    kinds = [failure.kind for failure in fresh]
    streaks = counted(state.streaks, _counted_already(state, fresh), kinds, succeeded=succeeded)
    turn = sorted({*state.turn_failures, *ways(kinds)})
    ruling = _judge(
        state, job, [(failure, streaks[family(failure.kind)]) for failure in fresh], streaks.get(IN_VAIN, 0)
    )
    open_turn = bool(ruling["pending_actions"])
    return update(
        **ruling,
        streaks=streaks if open_turn else _streaks_after(ruling, streaks, turn),
        turn_failures=turn if open_turn else [],
        attempts=tried,
        failures=found,
        work=state.work,
        completed=state.completed,
        active_seconds=seconds,
        reviewed=len(state.messages) + len(ruling.get("messages", ())),
        handled=len(state.failures) + len(found),
    )


def _counted_already(state: AgentState, fresh: Sequence[Failure]) -> set[str]:
    """What this turn's failures count as already. A call that was made again in it, as evidence is, counts again: its
    turn ends only when it succeeds."""
    before = {failure.call_id for failure in state.failures[: state.handled]} - {None}
    return set(state.turn_failures) - ways(failure.kind for failure in fresh if failure.call_id in before)


def _take_in(state: AgentState, job: Job) -> tuple[AgentState, list[Tried], list[Failure]]:
    """The state with the job's view of the new results, and the calls that now have one taken off."""
    tried: list[Tried] = []
    failures: list[Failure] = []
    answered = set()
    for result in _results(state):
        answered.add(result.call_id)
        if result.is_error or not result.facts:
            continue  # without facts it is a person's answer in the call's place: the call was not made
        seen = job.rules.observe(state, result.name, result.facts)
        tried += [each.model_copy(update={"step": state.step}) for each in seen.tried]
        failures += [seen.failure.model_copy(update={"step": state.step})] if seen.failure else []
        state = state.model_copy(update={"work": seen.work, "completed": plan_done(state, seen.completed)})
    pending = [call for call in state.pending_actions if call.id not in answered]
    return state.model_copy(update={"pending_actions": pending}), tried, failures


def _standstill(state: AgentState) -> Failure | None:
    """The run gets nowhere; told when the last call of a turn has its result."""
    if state.pending_actions or (why := standstill(state.messages, snapshot=state.snapshot)) is None:
        return None
    return Failure(kind="no_progress", detail=why, step=state.step)


def _results(state: AgentState) -> Iterator[Result]:
    for record in new_messages(state):
        if record.get("type") == "tool":
            facts = record.get("artifact") or {}
            yield Result(record["tool_call_id"], record.get("name") or "", facts, record.get("status") == "error")
        elif "name" in (ours := (record.get("additional_kwargs") or {}).get(DEVFIX) or {}):
            yield Result(ours["facts"]["call"], ours["name"], ours["facts"], bool(ours.get("is_error")))


def _streaks_after(ruling: Mapping[str, Any], streaks: Mapping[str, int], turn: Sequence[str]) -> dict[str, int]:
    """A person's answer, or a resume after an end, begins every count anew."""
    return {} if ruling["decision"] in {"escalate", "stop", "done"} else kept(streaks, turn)


def _judge(state: AgentState, job: Job, failures: Sequence[tuple[Failure, int]], in_vain: int) -> dict[str, Any]:
    """The first of these that has something to say: evidence, failures, limits, open calls, idleness."""
    verdict = job.rules.judge(state)
    match verdict.judgement:
        case "done" | "nothing_to_do" as reason:
            return _end(state, Standing("completed", reason), verdict.summary)
        case "tests_unreachable":
            return _end(state, Standing("failed", "tests_unreachable"), verdict.summary, details=verdict.details)
    cut = [failure.detail for failure, _ in failures if _is_cut_off(failure)]
    ruling = _answer(state, [each for each in failures if not _is_cut_off(each[0])], in_vain)
    if ruling is not None and ruling["decision"] in {"stop", "escalate"}:
        return ruling
    limit = limit_of(state)
    if limit is None:
        ruling = ruling or _onwards(state, job, verdict.summary)
        limit = limit_of(state.model_copy(update={"step": state.step + 1}))  # where this one is the last step
        if limit is None or ruling["decision"] in {"ask", "escalate"}:
            return ruling
    # What is open is kept: whoever raises the limit goes on with it.
    ended = _end(state, limit, " ".join([used_up(state, limit), *(f"{why}." for why in cut)]))
    ways = commands(state.run_id, limit, lifted=lifted(state))
    report = ended["report"].model_copy(update={"left": [*cut, *ended["report"].left], "next": ways})
    return {**ended, "report": report, "pending_actions": state.pending_actions}


def _is_cut_off(failure: Failure) -> bool:
    """A call that the deadline cut off: it stays open, so the limit has the word."""
    return failure.kind == "deadline" and failure.call_id is not None


def _onwards(state: AgentState, job: Job, nudge: str) -> dict[str, Any]:
    if state.pending_actions:
        return _open(state, job)
    if state.idle_turns:
        return _idle(state, nudge)
    return {"decision": "continue", "pending_actions": []}


def _open(state: AgentState, job: Job) -> dict[str, Any]:
    """The turn is not over: ungated calls first, then evidence, then the question."""
    if any(not call.gated for call in state.pending_actions):
        return {"decision": "tools", "pending_actions": state.pending_actions}
    evidence = job.rules.evidence(state)
    if evidence is not None:
        return {"decision": "tools", "pending_actions": [dressed(evidence, job), *state.pending_actions]}
    return {"decision": "ask", "pending_actions": state.pending_actions}


def _answer(state: AgentState, failures: Sequence[tuple[Failure, int]], in_vain: int) -> dict[str, Any] | None:
    """What the table says to the gravest of the new failures; None where the model simply reads of it and goes on."""
    rulings = [(failure, rule(failure, in_a_row, in_vain)) for failure, in_a_row in failures]
    order: list[Decision] = ["stop", "escalate", "re-plan", "retry"]
    for decision in order:
        for failure, ruling in rulings:
            if ruling.decision != decision:
                continue
            if ruling.standing is not None:
                return _end(state, ruling.standing, f"{sentence(ruling.standing)} {failure.detail}")
            if decision == "escalate":
                many = f"{in_vain} turns in a row have failed. The last time: " if in_vain > IN_VAIN_LIMIT else ""
                return _escalate(state, many + failure.detail)
            return {"decision": decision, "messages": _told(state, failure), "pending_actions": []}
    stuck = next((failure for failure, _ in failures if failure.kind == "no_progress"), None)
    return _nudged(state, stuck) if stuck is not None else None


def _nudged(state: AgentState, stuck: Failure) -> dict[str, Any]:
    """The first time that a run gets nowhere, its model is told so."""
    lines = [stuck.detail, "What was tried so far:", *what_was_tried(state.attempts)]
    text = "\n".join([*lines, "Do something else now, or say what you would need."])
    return {
        "decision": "continue",
        "messages": [from_devfix(text, identifier=f"{STUCK}{state.step}")],
        "pending_actions": [],
    }


def _told(state: AgentState, failure: Failure) -> list[HumanMessage]:
    if failure.kind not in UNUSABLE:
        return []
    return [from_devfix(failure.detail, identifier=f"failure-{state.step}")]


def _idle(state: AgentState, nudge: str) -> dict[str, Any]:
    """The model asked for nothing and the evidence says that it is not done: tell it, then ask a person."""
    said, *before = [str(each.get("content") or "") for each in reversed(state.messages) if _asks_nothing(each)] or [""]
    if state.idle_turns >= IDLE_LIMIT or said in before:
        return _escalate(state, _never_called(state, said) or said[:2000] or "The model asks for nothing more.")
    return {
        "decision": "continue",
        "messages": [from_devfix(nudge or _NUDGE, identifier=f"nudge-{state.step}")],
        "pending_actions": [],
    }


def _never_called(state: AgentState, said: str) -> str | None:
    """What is likely wrong where a model has not called a single tool in the whole run."""
    turns = [each for each in state.messages if each.get("type") == "ai"]
    if not all(map(_asks_nothing, turns)):
        return None
    told = said if len(said) <= _SAID else f"{said[:_SAID]}…"
    return f"The model asked for no tool in {len(turns)} turns; does its endpoint support tool calls? It said: {told}"


def _asks_nothing(record: Mapping[str, Any]) -> bool:
    return record.get("type") == "ai" and not record.get("tool_calls")


def _escalate(state: AgentState, why: str) -> dict[str, Any]:
    report = _report(state, Standing("waiting", "escalation"), f"The run can't go on by itself. {why}")
    return {"decision": "escalate", "report": report, "pending_actions": []}


def _end(state: AgentState, standing: Standing, summary: str, *, details: str | None = None) -> dict[str, Any]:
    report = _report(state, standing, summary, details)
    return {
        "decision": "done" if standing.status == "completed" else "stop",
        "status": standing.status,
        "reason": standing.reason,
        "report": report,
        "pending_actions": [],
    }


def _report(state: AgentState, standing: Standing, summary: str, details: str | None = None) -> Report:
    return Report(
        summary=summary,
        done=state.completed,
        left=[item for item in state.plan if item not in state.completed] if standing.status != "completed" else [],
        tried=[f"{each['what']}: {each['outcome']}" for each in state.attempts[-MOST_TRIED:]],
        next=commands(state.run_id, standing),
        details=details,
    )
