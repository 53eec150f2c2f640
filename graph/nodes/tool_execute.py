"""tool_execute: do one call. Several reads of a turn run side by side; each result is saved by itself."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from datetime import datetime

from langchain_core.messages import BaseMessage, ToolMessage
from pydantic import JsonValue

from graph.context import context_of
from graph.prompts import from_devfix
from graph.services import Services
from graph.update import Update, update
from state.agent_state import Task
from state.failures import Failure
from state.trace import Call
from tools.execution import Performed
from tools.registry import Tool, ToolResult
from tools.workspace import Workspace

INLINE_BYTES = 32 * 1024
"""What a message carries itself; anything larger is an artifact, and the message names it."""
FACT_BYTES = 8_000_000
"""How large a fact that is no text may be, for the job to read it as it is."""


async def tool_execute(task: Task, *, services: Services) -> Update:
    """Perform the call and write its result, and the new snapshot where the call changed the workspace."""
    job = services.job(task.job)
    tool = job.toolbox.get(task.call.name)
    if tool is None:
        known = ", ".join(each.name for each in job.toolbox)
        text = f"There is no tool {task.call.name}; there are: {known}."
        return _written(task, Performed(ToolResult(content=text, is_error=True), "unknown_tool"), {})
    if _is_approved(task, tool) and not await _is_granted(task, services):
        text = f"This call of {tool.name} is not one that a person has approved as it stands; it was not made."
        return _written(task, Performed(ToolResult(content=text, is_error=True), "effect_refused"), {})
    started = services.now()
    attempt = services.attempt(task.run_id)
    epoch = attempt.epoch
    async with _workspace(task, services, epoch) as workspace:
        context = await context_of(task, workspace, services)
        seconds = None if _is_approved(task, tool) else task.seconds_left
        try:
            with attempt.making(task.call.id, tool.name):
                performing = services.execution.perform(tool, task.call.args, context, epoch=epoch)
                performed = _counted(await _in_time(performing, seconds))
        except _CutOff:
            return await _left_open(task, tool, services, epoch, started)
        changed = await _snapshot(task, tool, services, workspace)
    performed = await _slim(performed, services)
    services.trace.record_with_step(_call(task, performed, epoch, started, services.now()))
    return _written(task, performed, {"snapshot": changed} if changed else {})


class _CutOff(Exception):
    """The run's time was over before the call was."""


async def _in_time(performing: Awaitable[Performed], seconds: float | None) -> Performed:
    """Raises _CutOff where the run's time is over first: the call is cancelled."""
    try:
        async with asyncio.timeout(seconds) as own:
            return await performing
    except TimeoutError:
        if not own.expired():
            raise
    raise _CutOff


async def _left_open(task: Task, tool: Tool, services: Services, epoch: int, started: datetime) -> Update:
    """The call has no result: whoever gives the run more time makes it again, an effect by the rules of the ledger."""
    why = f"{tool.name} ({task.call.id}) was stopped before it ended"
    if tool.kind == "effect":
        why += "; whether it happened is found out when the run goes on"
    cut = _call(task, Performed(ToolResult(content=why, is_error=True), "deadline"), epoch, started, services.now())
    await services.trace.record(cut.model_copy(update={"result": None}))
    return update(failures=[Failure(kind="deadline", detail=why, step=task.step, call_id=task.call.id)])


def _is_approved(task: Task, tool: Tool) -> bool:
    """Whether a person is asked before the call. What they approved is done, also where the time is over meanwhile."""
    return tool.gated and task.call.origin == "model"


async def _is_granted(task: Task, services: Services) -> bool:
    """By the approval's own row: the state may have been edited since the person answered."""
    call = task.call
    rows = await services.approvals.of(task.run_id)
    row = next((row for row in rows if row.question.call_id == call.id and row.question.tool == call.name), None)
    return row is not None and row.covers(call.args, call.bound, again=call.again)


def _counted(performed: Performed) -> Performed:
    """An error that the tool itself tells is a failure like one that it raises: the model reads it, and it counts."""
    return (
        performed._replace(failure="tool_failed") if performed.result.is_error and not performed.failure else performed
    )


@asynccontextmanager
async def _workspace(task: Task, services: Services, epoch: int) -> AsyncIterator[Workspace]:
    """The attempt's workspace; for evidence that DevFix gathers itself, a fresh copy."""
    repository = str(task.work.get("repository") or "")
    if task.call.origin == "devfix" and task.snapshot is not None:
        async with services.workspaces.fresh(
            task.run_id, epoch, repository=repository, snapshot=task.snapshot
        ) as workspace:
            yield workspace
        return
    yield await services.workspaces.at(task.run_id, epoch, repository=repository, snapshot=task.snapshot)


async def _snapshot(task: Task, tool: Tool, services: Services, workspace: Workspace) -> str | None:
    """The workspace's new content, stored before the checkpoint that names it."""
    return await services.workspaces.take(workspace) if tool.kind == "workspace" else None


async def _slim(performed: Performed, services: Services) -> Performed:
    """The result with everything large moved to the artifact store, once."""
    result = performed.result
    content, facts = result.content, result.facts
    if len(content.encode("utf-8", "surrogatepass")) > INLINE_BYTES:
        data = content.encode("utf-8", "surrogatepass")
        digest = await services.artifacts.put(data)
        half = INLINE_BYTES // 4
        content = f"{content[:half]}\n[... {len(data)} bytes in all; artifact {digest} ...]\n{content[-half:]}"
        facts = {**facts, "content_artifact": digest}
    slim: dict[str, JsonValue] = {}
    for name, value in facts.items():
        text = value if isinstance(value, str) else json.dumps(value)
        if len(text) > (INLINE_BYTES if isinstance(value, str) else FACT_BYTES):
            digest = await services.artifacts.put(text.encode("utf-8", "surrogatepass"))
            slim[name] = f"artifact {digest}"
        else:
            slim[name] = value
    return performed._replace(result=result.model_copy(update={"content": content, "facts": slim}))


def _written(task: Task, performed: Performed, more: dict[str, str]) -> Update:
    result, kind = performed
    failures = [Failure(kind=kind, detail=result.content[:2000], step=task.step, call_id=task.call.id)] if kind else []
    return update(messages=[_message(task, result)], failures=failures, **more)


def _message(task: Task, result: ToolResult) -> BaseMessage:
    call = task.call
    facts = {**result.facts, "snapshot": task.snapshot, "call": call.id, "fresh": call.origin == "devfix"}
    if call.origin == "devfix":
        # DevFix may make the same call again at a later step (the same files proved anew): that is another result.
        identifier = f"result-{call.id}-{task.step}"
        text = f"DevFix ran {call.name} itself, in a fresh copy:\n{result.content}"
        return from_devfix(text, identifier=identifier, name=call.name, facts=facts, is_error=result.is_error)
    return ToolMessage(
        result.content,
        tool_call_id=call.id,
        name=call.name,
        status="error" if result.is_error else "success",
        artifact=facts,
        id=f"result-{call.id}",
    )


def _call(task: Task, performed: Performed, epoch: int, started: datetime, ended: datetime) -> Call:
    result = performed.result
    return Call(
        run_id=task.run_id,
        epoch=epoch,
        step=task.step + 1,
        kind="tool",
        name=task.call.name,
        call_id=task.call.id,
        request={"args": task.call.args, "bound": task.call.bound, "snapshot": task.snapshot},
        result=result.model_dump(),
        error=f"{performed.failure}: {result.content[:500]}" if performed.failure else None,
        started_at=started,
        ended_at=ended,
    )
