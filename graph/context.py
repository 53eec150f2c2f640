"""What a tool is handed, the same when a person is asked about its call and when the call is made."""

from __future__ import annotations

from graph.services import Services
from state.agent_state import Task
from tools.execution import effect_key
from tools.registry import ToolContext
from tools.sandbox import choose_sandbox
from tools.workspace import Workspace


async def context_of(task: Task, workspace: Workspace, services: Services) -> ToolContext:
    """Raises SandboxUnavailable where the machine can't give what the run asks for."""
    sandbox = await choose_sandbox(
        unsafe_local=bool(task.work.get("unsafe_local")), allow_network=bool(task.work.get("allow_network"))
    )
    return ToolContext(
        run_id=task.run_id,
        call_id=task.call.id,
        key=effect_key(task.run_id, task.call.id),
        bound=task.call.bound,
        again=task.call.again,
        work=task.work,
        snapshot=task.snapshot,
        workspace=workspace,
        sandbox=sandbox,
        artifacts=services.artifacts,
        snapshots=services.snapshots,
        settings=services.settings,
        warm=services.attempt(task.run_id).warm,
    )
