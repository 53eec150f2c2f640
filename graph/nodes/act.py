"""act: ask the model what to do next. It is called only when every call of its last turn has a result."""

from __future__ import annotations

from collections.abc import Sequence

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, ToolMessage

from graph.jobs import Job, dressed
from graph.models.ask import Answer, ModelTrouble, ask
from graph.prompts import INTERRUPTED, open_calls, render
from graph.services import Services
from graph.update import Update, update
from state.agent_state import AgentState, ToolCall
from state.errors import Refused
from state.failures import Failure
from state.trace import Call


async def act(state: AgentState, *, services: Services) -> Update:
    """One turn of the model, or a call that the job opens with; recorded in the trace before anything follows it."""
    job = services.job(state.job)
    if (opening := job.rules.opening(state)) is not None:
        return update(pending_actions=[dressed(opening, job)], decision=None)
    started = services.now()
    messages = render(job.rules.prompt(state), state.messages)
    call_id = f"model-{state.step + 1}"
    attempt = services.attempt(state.run_id)
    try:
        answer = await ask(await _model(state, services), messages, job.toolbox.schemas, call_id=call_id)
    except ModelTrouble as trouble:
        await services.trace.record(
            _call(state, services, started, attempt.epoch, call_id).model_copy(update={"error": str(trouble)})
        )
        failure = Failure(kind=trouble.kind, detail=str(trouble), step=state.step)
        return update(failures=[failure], pending_actions=[], active_seconds=state.active_seconds + attempt.lap())
    record = _call(state, services, started, attempt.epoch, call_id)
    await services.trace.record(
        record.model_copy(
            update={
                "name": answer.model,
                "result": answer.record,
                "input_tokens": answer.input_tokens,
                "output_tokens": answer.output_tokens,
                "cost_usd": answer.cost_usd,
            }
        )
    )
    return _turn(state, answer, job, attempt.lap())


async def _model(state: AgentState, services: Services) -> BaseChatModel:
    try:
        return await services.models.get(state.model)
    except Refused as error:
        raise ModelTrouble("model_key_refused", str(error)) from None


def _turn(state: AgentState, answer: Answer, job: Job, seconds: float) -> Update:
    calls = [
        dressed(ToolCall(id=str(call["id"]), name=call["name"], args=call["args"]), job)
        for call in answer.message.tool_calls
    ]
    calls = [*_evidence_first(state, calls, job), *calls]
    return update(
        messages=[*_closed(state), answer.message],
        failures=list(answer.failures),
        pending_actions=calls,
        idle_turns=0 if calls else state.idle_turns + 1,
        cost_usd=state.cost_usd + (answer.cost_usd or 0.0),
        tokens=state.tokens + (answer.input_tokens or 0) + (answer.output_tokens or 0),
        active_seconds=state.active_seconds + seconds,
        decision=None,
    )


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
    evidence = job.rules.evidence(state)
    return [] if evidence is None else [dressed(evidence, job)]


def _call(state: AgentState, services: Services, started: object, epoch: int, call_id: str) -> Call:
    return Call.model_validate(
        {
            "run_id": state.run_id,
            "epoch": epoch,
            "step": state.step + 1,
            "kind": "model",
            "name": state.model,
            "call_id": call_id,
            "request": {"model": state.model, "messages": len(state.messages)},
            "result": None,
            "started_at": started,
            "ended_at": services.now(),
        }
    )
