"""Jobs for the trials: what the refund job and the notes job have no place for."""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time
import urllib.request
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from graph.jobs import Job, Verdict
from state.agent_state import AgentState
from tests.helpers.notes import NOTES, letters
from tests.jobs.refund import REFUND, RefundRules, RefundWork, look_up_order, refund, write_to_customer
from tools.registry import Found, Toolbox, ToolContext, ToolResult, tool

BLIND = replace(
    REFUND,
    name="blind",
    toolbox=Toolbox.of(
        [look_up_order, tool(kind="effect", uncheckable=True)(refund.call), replace(write_to_customer, verify=None)]
    ),
)
"""A shop that nobody can ask what it has done."""


def _leave_a_file(workspace: Path, shop: str) -> None:
    with urllib.request.urlopen(f"{shop}/orders/7", timeout=60) as answer:  # noqa: S310 - the shop's address
        answer.read()
    for _ in range(100):  # not one sleep: it would be over while the process is frozen
        time.sleep(0.02)
    workspace.mkdir(parents=True, exist_ok=True)
    (workspace / f"by-{os.getpid()}").write_text("I was here.")


@tool(kind="workspace")
async def leave_a_file(*, context: ToolContext) -> str:
    """Write a file named after the process, after a while, whatever becomes of the call meanwhile."""
    await asyncio.to_thread(_leave_a_file, context.workspace.root, str(context.work["shop"]))
    return "left"


@tool(kind="effect", uncheckable=True)
async def write_what_is_there(*, context: ToolContext) -> ToolResult:
    """Write to the customer which files there are."""
    names = sorted(path.name for path in context.workspace.root.iterdir())
    return cast("ToolResult", await write_to_customer.call(to="ada", text=" ".join(names), context=context))


class FilesRules(RefundRules):
    """Done when the customer knows."""

    def judge(self, state: AgentState) -> Verdict:
        return Verdict(judgement="done" if state.work["written_to"] else "go_on", summary="Leave a file, and tell.")


FILES = Job(
    name="files",
    rules=FilesRules(),
    toolbox=Toolbox.of([leave_a_file, write_what_is_there]),
    work=RefundWork,
    default_model="scripted:",
)

LATE_SECONDS = 1.0


def _deliver(sink: Path, letter: Mapping[str, Any]) -> None:
    with sink.open("a") as file:
        file.write(json.dumps(letter) + "\n")


async def _find_letter(args: Mapping[str, Any], context: ToolContext) -> Found:
    found = [each for each in letters(Path(str(context.work["letters"]))) if each["key"] == context.key]
    return found[0] if found else None


@tool(kind="effect", verify=_find_letter)
async def post_slowly(to: str, *, context: ToolContext) -> ToolResult:
    """Post a letter by a post office that gives no answer, and delivers it later."""
    letter = {"to": to, "key": context.key}
    threading.Timer(LATE_SECONDS, _deliver, (Path(str(context.work["letters"])), letter)).start()
    raise TimeoutError


SLOW_POST = replace(NOTES, toolbox=Toolbox.of([*NOTES.toolbox, post_slowly]))
