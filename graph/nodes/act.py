"""act: ask the model what to do next. It is called only when every call of its last turn has a result."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, ToolMessage

from graph.attempt import Attempt
from graph.jobs import Job, dressed
from graph.limits import limit_of
from graph.models.ask import Answer, ModelTrouble, ask, read_again
from graph.prompts import INTERRUPTED, open_calls, render
from graph.services import Services
from graph.spending import Spent, spent
from graph.update import Update, update
from state.agent_state import AgentState, ToolCall
from state.errors import Refused
from state.failures import Failure
from state.trace import Call


async def act(state: AgentState, *, services: Services) -> Update:
    """One turn of the model, or a call that the job opens with; recorded in the trace before anything follows it."""
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
    count = partial(spent, asked=messages, tools=job.toolbox.schemas, price=services.prices.of(state.model))
    call = _call(state, started, attempt.epoch, call_id, _request(state, prompt, job))
    if (record := await _already_given(call, attempt, services)) is not None:
        answer = read_again(record, messages, call_id=call_id)
        return _turn(state, answer, job, count(answer.record), attempt.lap())
    try:
        with attempt.making(call_id, f"a call of the model {state.model}"):
            answer = await ask(await _model(state, services), messages, job.toolbox.schemas, call_id=call_id)
    except ModelTrouble as trouble:
        await services.trace.record(call.model_copy(update={"error": str(trouble), "ended_at": services.now()}))
        failure = Failure(kind=trouble.kind, detail=str(trouble), step=state.step)
        return update(failures=[failure], pending_actions=[], active_seconds=state.active_seconds + attempt.lap())
    cost = count(answer.record)
    await services.trace.record(_answered(call, answer, cost.usd).model_copy(update={"ended_at": services.now()}))
    return _turn(state, answer, job, cost, attempt.lap())


async def _already_given(call: Call, attempt: Attempt, services: Services) -> Mapping[str, Any] | None:
    """The answer to just this question that a dead attempt recorded and did not live to save: it is not paid twice."""
    if attempt.claim.former is None or attempt.step > attempt.claim.step:
        return None
    known = await services.trace.find(call.run_id, call.call_id)
    return known.result if known is not None and known.request == call.request else None


async def _model(state: AgentState, services: Services) -> BaseChatModel:
    try:
        return await services.models.get(state.model)
    except Refused as error:
        raise ModelTrouble("model_key_refused", str(error)) from None


def _turn(state: AgentState, answer: Answer, job: Job, cost: Spent, seconds: float) -> Update:
    calls = [
        dressed(ToolCall(id=str(call["id"]), name=call["name"], args=call["args"]), job)
        for call in answer.message.tool_calls
    ]
    calls = [*_evidence_first(state, calls, job), *calls]
    return update(
        messages=[*_closed(state), answer.message],
        failures=[failure.model_copy(update={"step": state.step}) for failure in answer.failures],
        pending_actions=calls,
        idle_turns=_idle_turns(state, answer),
        cost_usd=state.cost_usd + (cost.usd or 0.0),
        tokens=state.tokens + cost.tokens,
        active_seconds=state.active_seconds + seconds,
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


def _answered(call: Call, answer: Answer, cost_usd: float | None) -> Call:
    errors = "; ".join(f"{failure.kind}: {failure.detail}" for failure in answer.failures)
    return call.model_copy(
        update={
            "name": answer.model or call.name,
            "result": answer.record,
            "error": errors or None,
            "input_tokens": answer.input_tokens,
            "output_tokens": answer.output_tokens,
            "cost_usd": cost_usd,
        }
    )
