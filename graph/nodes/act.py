"""act: ask the model what to do next. It is called only when every call of its last turn has a result."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

from graph.asking import RunAsker
from graph.attempt import Attempt
from graph.jobs import Job, dressed
from graph.limits import limit_of
from graph.models.ask import Answer, Heard, ask
from graph.models.chain import Answered, PutDown
from graph.models.served import Served
from graph.models.trouble import ModelTrouble
from graph.progress import what_was_tried
from graph.prompts import INTERRUPTED, open_calls, render
from graph.services import Services
from graph.spending import Spent, spent, tokens_of
from graph.update import Update, update
from graph.window import condensed
from state.agent_state import AgentState, ToolCall
from state.failures import Failure
from state.trace import Call


async def act(state: AgentState, *, services: Services) -> Update:
    """One turn of the run's models, or a call that the job opens with; in the trace before anything follows it."""
    if limit_of(state) is not None:
        return update(decision=None)  # review says which, and ends the run
    job = services.job(state.job)
    if (opening := job.rules.opening(state)) is not None:
        return update(pending_actions=[dressed(opening, job)], decision=None)
    started = services.now()
    prompt = job.rules.prompt(state)
    messages = render(prompt, state.messages)
    call_id = f"model-{state.step + 1}"
    attempt = services.attempt(state.run_id)
    call = _call(state, started, attempt.epoch, call_id, _request(state, prompt, job))
    asker = RunAsker(state, services, attempt, call, job.toolbox.schemas)
    try:
        with attempt.making(call_id, f"a call of the model {state.model}"):
            answered = await _ask(state, messages, job, asker, call_id, services)
    except PutDown:
        return update(decision=None, **_used(state, asker, attempt))
    except ModelTrouble as trouble:
        failure = Failure(kind=trouble.kind, detail=str(trouble), step=state.step)
        return update(failures=[failure], pending_actions=[], **_used(state, asker, attempt))
    cost = spent(answered.answer.record, asker.asked, job.toolbox.schemas, services.prices.of(answered.model))
    services.trace.record_with_step(_answered(call, answered, cost.usd).model_copy(update={"ended_at": services.now()}))
    return _turn(state, answered, job, cost, _used(state, asker, attempt))


def _used(state: AgentState, asker: RunAsker, attempt: Attempt) -> dict[str, Any]:
    """What the run has used, with tries that came to nothing."""
    seconds = state.active_seconds + attempt.lap()
    return {"cost_usd": asker.cost_usd, "tokens": asker.tokens, "active_seconds": seconds}


async def _ask(
    state: AgentState, messages: Sequence[BaseMessage], job: Job, asker: RunAsker, call_id: str, services: Services
) -> Answered:
    schemas = job.toolbox.schemas

    async def question(model: BaseChatModel, heard: Heard) -> Answer:
        seconds = services.settings.model_call_seconds if isinstance(model, Served) else None

        async def put(fitting: Sequence[BaseMessage]) -> Answer:
            asker.asked = fitting
            return await ask(model, fitting, schemas, call_id=call_id, seconds=seconds, heard=heard)

        if not isinstance(model, Served):
            return await put(messages)
        return await condensed(put, messages, most_tokens=model.window - tokens_of(schemas), digest=_so_far(state))

    try:
        return await services.chain.ask(state.model, question, asker)
    finally:
        asker.end()


def _so_far(state: AgentState) -> str:
    """What stands for turns that are left out."""
    plan = [f"- {item}{' (done)' if item in state.completed else ''}" for item in state.plan]
    return "\n".join(["The plan:", *plan, "What was tried:", *what_was_tried(state.attempts, most=50)])


def _turn(state: AgentState, answered: Answered, job: Job, cost: Spent, used: Mapping[str, Any]) -> Update:
    answer = answered.answer
    calls = [
        dressed(ToolCall(id=str(call["id"]), name=call["name"], args=call["args"]), job)
        for call in answer.message.tool_calls
    ]
    calls = [*_evidence_first(state, calls, job), *calls]
    return update(
        messages=[*_closed(state), answer.message],
        failures=[failure.model_copy(update={"step": state.step}) for failure in answer.failures],
        pending_actions=calls,
        answered_by=answered.model,
        idle_turns=_idle_turns(state, answer),
        cost_usd=used["cost_usd"] + (cost.usd or 0.0),
        tokens=used["tokens"] + cost.tokens,
        active_seconds=used["active_seconds"],
        decision=None,
    )


def _idle_turns(state: AgentState, answer: Answer) -> int:
    """A turn that can't be used is a failure of its own, not one in which the model asked for nothing."""
    if answer.failures:
        return state.idle_turns
    return 0 if answer.message.tool_calls else state.idle_turns + 1


def _closed(state: AgentState) -> Sequence[AIMessage | ToolMessage]:
    """Calls that a killed attempt left without a result are answered, so that no provider refuses the history."""
    return [
        ToolMessage(INTERRUPTED, tool_call_id=identifier, status="error", id=f"result-{identifier}")
        for identifier in open_calls(state.messages)
    ]


def _evidence_first(state: AgentState, calls: Sequence[ToolCall], job: Job) -> list[ToolCall]:
    """A turn that only asks for gated calls is put to a person on fresh evidence; other turns pass review first."""
    if not calls or not all(call.gated for call in calls):
        return []
    evidence = job.rules.evidence(state.model_copy(update={"pending_actions": list(calls)}))
    return [] if evidence is None else [dressed(evidence, job)]


def _request(state: AgentState, prompt: str, job: Job) -> dict[str, Any]:
    """What was asked, without the history again: the checkpoints have it, and these ids say what was new in it."""
    schemas = json.dumps(job.toolbox.schemas, sort_keys=True)
    return {
        "model": state.model,
        "messages": len(state.messages),
        "new": _since_last_turn(state.messages),
        "prompt": _digest(prompt),
        "tools": [tool.name for tool in job.toolbox],
        "schemas": _digest(schemas),
    }


def _since_last_turn(records: Sequence[Mapping[str, Any]]) -> list[str]:
    ids: list[str] = []
    for record in reversed(records):
        if record.get("type") == "ai":
            break
        ids.append(str(record.get("id")))
    return ids[::-1]


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _call(state: AgentState, started: datetime, epoch: int, call_id: str, request: dict[str, Any]) -> Call:
    return Call(
        run_id=state.run_id,
        epoch=epoch,
        step=state.step + 1,
        kind="model",
        name=state.model,
        call_id=call_id,
        request=request,
        result=None,
        started_at=started,
        ended_at=started,
    )


def _answered(call: Call, answered: Answered, cost_usd: float | None) -> Call:
    answer = answered.answer
    errors = "; ".join(f"{failure.kind}: {failure.detail}" for failure in answer.failures)
    return call.model_copy(
        update={
            "name": answer.model or answered.model,
            "request": {**call.request, "asked": answered.model},
            "result": answer.record,
            "error": errors or None,
            "input_tokens": answer.input_tokens,
            "output_tokens": answer.output_tokens,
            "cost_usd": cost_usd,
        }
    )
