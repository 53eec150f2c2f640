"""approval: wait for a person. It has no effects; the rows of `approvals` are the truth, not what resumed the graph.

All gated calls of a turn are shown together, answered ones too, and the run goes on when each has an answer or has
expired. An answer given through the API or Studio is written into the rows, where the first answer wins.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from langchain_core.messages import ToolMessage
from langgraph.types import interrupt
from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

from graph.context import context_of
from graph.prompts import from_devfix
from graph.report import commands
from graph.services import Services
from graph.update import Update, update
from state.agent_state import AgentState, Report, Task, ToolCall
from state.approvals import Approval, Decision, Question
from state.errors import AlreadyDecided, DevfixError, Fenced, OutOfService, Refused
from state.failures import Failure, FailureKind
from state.status import Standing


class _Action(BaseModel):
    model_config = ConfigDict(extra="ignore")

    name: str = ""
    args: dict[str, JsonValue]


class _Answer(BaseModel):
    """One decision in the shape of LangChain's human-in-the-loop middleware."""

    model_config = ConfigDict(extra="ignore")

    type: str
    message: str | None = None
    edited_action: _Action | None = None
    again: bool = False
    """A word of DevFix's own: with approve or edit, do once more what is in the ledger already."""


class _Answers(BaseModel):
    decisions: list[_Answer] = Field(min_length=1)


async def approval(state: AgentState, *, services: Services) -> Update:
    """Put what is open to a person, and turn the answers into calls that may run and results for those that may not."""
    if state.decision == "escalate":
        return await _escalate(state, services)
    calls = [call for call in state.pending_actions if call.gated]
    rules = services.job(state.job).rules
    if (objection := rules.objection(state)) is not None:
        return _unaskable(state, calls, "tool_failed", objection)
    try:
        questions = [await _question(state, call, services) for call in calls]
    except (Fenced, OutOfService):
        raise
    except DevfixError as error:
        return _unaskable(state, calls, "effect_refused", str(error))
    descriptions = [
        await _description(state, call, question, services) for call, question in zip(calls, questions, strict=True)
    ]
    ttl_seconds = services.settings.approval_ttl_seconds
    try:
        rows = await _answered(state, questions, services, descriptions, ttl_seconds=ttl_seconds)
    except Refused as error:  # raised on, it would come again at each further try, and nobody would be told
        return _unaskable(state, calls, "effect_refused", str(error))
    return _after(state, calls, rows)


async def _description(state: AgentState, call: ToolCall, question: Question, services: Services) -> str:
    """What a person is shown: the job's words, and whether the same thing was done before."""
    described = services.job(state.job).rules.describe(state, call.model_copy(update={"bound": question.bound}))
    arguments = {**question.arguments, "bound": question.bound}
    before = await services.execution.done_before(state.run_id, call.id, call.name, arguments)
    return f"{described}\n\n{before}" if before else described


def _unaskable(state: AgentState, calls: Sequence[ToolCall], kind: FailureKind, why: str) -> Update:
    """The evidence speaks against the calls, or what they would do can't be fixed: nobody is asked, the model reads
    why, and review decides."""
    return update(
        pending_actions=[call for call in state.pending_actions if not call.gated],
        messages=[
            ToolMessage(why, tool_call_id=call.id, name=call.name, status="error", id=f"result-{call.id}")
            for call in calls
        ],
        failures=[Failure(kind=kind, detail=why, step=state.step, call_id=calls[0].id)],
        decision=None,
    )


async def _answered(
    state: AgentState,
    questions: Sequence[Question],
    services: Services,
    descriptions: Sequence[str],
    *,
    ttl_seconds: float | None,
) -> list[Approval]:
    """The rows, once each has an answer or has expired. Until then the graph is interrupted here.

    An answer in the wrong shape is told so by asking again: LangGraph has stored it before this node sees it, so
    after a crash it is met once more, and must again count as no answer.
    """
    complaint = ""
    while True:
        rows = await services.approvals.ask(state.run_id, questions, ttl_seconds=ttl_seconds)
        if all(row.decision or row.expired(services.now()) for row in rows):
            return rows
        answer = interrupt(_payload(rows, descriptions, complaint), response_schema=_schema(len(rows)))
        try:
            await _record(state.run_id, rows, answer, services)
            complaint = ""
        except (Refused, ValueError) as error:
            complaint = str(error)


async def _record(run_id: str, rows: Sequence[Approval], answer: Any, services: Services) -> None:
    """Write an answer into the rows, by position. Raises ValueError or Refused for one that does not fit."""
    try:
        answers = _Answers.model_validate(answer).decisions
    except ValidationError as error:
        raise ValueError(f"the answer is not of the form {{'decisions': [...]}}: {error.errors()[0]['msg']}") from None
    if len(answers) != len(rows):
        raise ValueError(f"{len(rows)} decisions are needed, one for each call in order; {len(answers)} were given")
    decisions = [_decision(each) for each in answers]
    for row, decision in zip(rows, decisions, strict=True):
        if row.decision is None:
            try:
                await services.approvals.decide(run_id, row.question.call_id, decision, by="api")
            except AlreadyDecided:
                continue


def _decision(answer: _Answer) -> Decision:
    try:
        return Decision.model_validate(
            {
                "type": answer.type,
                "message": answer.message,
                "arguments": answer.edited_action.args if answer.edited_action else None,
                "again": answer.again,
            }
        )
    except ValidationError:
        raise ValueError(f"{answer.type!r} is not a decision; there are approve, edit, reject, respond") from None


def _payload(rows: Sequence[Approval], descriptions: Sequence[str], complaint: str) -> dict[str, Any]:
    """LangChain's human-in-the-loop shape, which Studio and the usual inboxes show."""
    payload: dict[str, Any] = {
        "action_requests": [
            {
                "name": row.question.tool,
                "args": {**row.question.arguments, **row.question.bound},
                "description": description,
                "call_id": row.question.call_id,
                "decided": row.decision.type if row.decision else None,
                "decided_by": row.decided_by,
            }
            for row, description in zip(rows, descriptions, strict=True)
        ],
        "review_configs": [
            {"action_name": row.question.tool, "allowed_decisions": list(row.question.allowed)} for row in rows
        ],
    }
    return {**payload, "complaint": complaint} if complaint else payload


def _schema(number: int) -> dict[str, Any]:
    """Exactly one decision a call. Plain JSON schema: LangGraph shows it, and this node checks it."""
    decision = {
        "type": "object",
        "properties": {
            "type": {"enum": ["approve", "edit", "reject", "respond"]},
            "message": {"type": "string"},
            "edited_action": {"type": "object"},
            "again": {"type": "boolean"},
        },
        "required": ["type"],
    }
    decisions = {"type": "array", "items": decision, "minItems": number, "maxItems": number}
    return {"type": "object", "properties": {"decisions": decisions}, "required": ["decisions"]}


async def _question(state: AgentState, call: ToolCall, services: Services) -> Question:
    tool = services.job(state.job).toolbox.get(call.name)
    bound: Mapping[str, JsonValue] = {}
    if tool is not None and tool.bind is not None:
        task = Task.of(call, state.model_dump(include=set(Task.model_fields)))
        epoch, repository = services.attempt(state.run_id).epoch, str(state.work.get("repository") or "")
        workspace = await services.workspaces.at(state.run_id, epoch, repository=repository, snapshot=state.snapshot)
        bound = await tool.bind(call.args, await context_of(task, workspace, services))
    return Question(call_id=call.id, tool=call.name, arguments=call.args, bound=dict(bound))


def _after(state: AgentState, calls: Sequence[ToolCall], rows: Sequence[Approval]) -> Update:
    granted = {call.id: _granted(call, row) for call, row in zip(calls, rows, strict=True)}
    refusals = [_refusal(row) for row in rows if granted[row.question.call_id] is None]
    pending = [granted.get(call.id, call) if call.gated else call for call in state.pending_actions]
    expired = [row for row in rows if row.decision is None]
    return update(
        pending_actions=[call for call in pending if call is not None],
        messages=[message for row in rows for message in _notes(row)] + refusals,
        failures=[
            Failure(
                kind="approval_expired",
                detail=f"nobody answered {row.question.tool} before {row.expires_at:%Y-%m-%d %H:%M %Z}",
                step=state.step,
                call_id=row.question.call_id,
            )
            for row in expired
        ],
        status="running",
        decision=None,
    )


def _granted(call: ToolCall, row: Approval) -> ToolCall | None:
    """The call as it may run, with the arguments that the person saw or wrote; None where it may not."""
    if row.decision is None or row.granted is None:
        return None
    granted = {"args": row.granted, "bound": row.question.bound, "again": row.decision.again, "gated": False}
    return call.model_copy(update=granted)


def _refusal(row: Approval) -> ToolMessage:
    identifier = row.question.call_id
    if row.decision is None:
        text = "Nobody answered in time; the call was not made."
    elif row.decision.type == "respond":
        text = row.decision.message or ""
    else:
        text = f"{row.decided_by} rejected this call; it was not made. Reason: {row.decision.message or 'none given'}"
    status = "success" if row.decision and row.decision.type == "respond" else "error"
    return ToolMessage(text, tool_call_id=identifier, name=row.question.tool, status=status, id=f"result-{identifier}")


def _notes(row: Approval) -> list[Any]:
    """An edit is told in the history, so that the model does not ask for the old arguments again."""
    if row.decision is None or row.decision.type != "edit":
        return []
    text = (
        f"{row.decided_by} changed the arguments of your call {row.question.tool} to {row.decision.arguments}; "
        "it is made with these, and you need not ask again."
    )
    return [from_devfix(text, identifier=f"edited-{row.question.call_id}")]


async def _escalate(state: AgentState, services: Services) -> Update:
    report = state.report or Report(summary="The run can't go on by itself.")
    question = Question(
        call_id=f"escalation-{state.step}",
        kind="escalation",
        tool="escalation",
        arguments=report.model_dump(),
        allowed=("approve", "reject", "respond"),
    )
    # It does not expire: only a person ends a run that asks one for help.
    rows = await _answered(state, [question], services, [_choices(report)], ttl_seconds=None)
    return _after_escalation(state, rows[0])


def _choices(report: Report) -> str:
    return f"{report.summary}\n\napprove: try again. respond: go on with your advice. reject: cancel the run."


def _after_escalation(state: AgentState, row: Approval) -> Update:
    decision = row.decision or Decision(type="approve")
    if decision.type == "reject":
        report = state.report or Report(summary="")
        why = f"{row.decided_by} cancelled the run: {decision.message or 'no reason given'}"
        ways = commands(state.run_id, Standing("cancelled", "by_person"))
        told = report.model_copy(update={"summary": why, "next": ways})
        return update(status="cancelled", reason="by_person", report=told)
    advice = decision.message if decision.type == "respond" else "Try again."
    return update(
        messages=[from_devfix(f"{row.decided_by}: {advice}", identifier=f"answer-{row.question.call_id}")],
        pending_actions=[],
        idle_turns=0,
        status="running",
        report=None,
        decision="continue",
    )
