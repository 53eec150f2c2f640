"""A small job for tests of the core: it looks, writes notes into its workspace, and posts letters to a real file."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, JsonValue

from graph.jobs import Begun, Job, Observed, Verdict
from state.agent_state import AgentState, RunInput, ToolCall, Tried
from state.settings import Settings
from state.snapshots import Snapshots
from tools.registry import Found, Toolbox, ToolContext, ToolResult, tool


class NotesWork(BaseModel):
    letters: str
    wanted: int = 1
    posted: int = 0


def letters(path: Path) -> list[dict[str, Any]]:
    """What has arrived at the sink, in order."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def _append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


@tool(kind="read")
async def look(what: str, seconds: float = 0.0, *, context: ToolContext) -> str:
    """Look at something, which takes a while."""
    await asyncio.sleep(seconds)
    if what == "trouble":
        raise ValueError("nobody can look at trouble")
    return f"saw {what}"


@tool(kind="read")
async def count(name: str, *, context: ToolContext) -> str:
    """Count this call in a file, so that a test sees how often it really ran."""
    folder = Path(str(context.work["letters"])).parent
    _append(folder / f"count-{name}", "x")
    return f"counted {name}"


@tool(kind="read")
async def fetch(kilobytes: int, turn: int = 0, *, context: ToolContext) -> ToolResult:
    """Fetch something large, always the same."""
    return ToolResult(content="0123456789abcdef" * 64 * kilobytes, facts={"raw": "fedcba9876543210" * 64 * kilobytes})


@tool(kind="workspace")
async def note(path: str, text: str, *, context: ToolContext) -> str:
    """Write a note into the workspace."""
    context.workspace.write(path, text.encode())
    return f"wrote {path}"


async def _find_letter(args: Mapping[str, Any], context: ToolContext) -> Found:
    for letter in letters(Path(str(context.work["letters"]))):
        if letter["key"] == context.key:
            return letter
    return None


@tool(kind="effect", verify=_find_letter)
async def post(to: str, text: str, fail: str = "", *, context: ToolContext) -> ToolResult:
    """Post a letter."""
    if fail == "before":
        raise ConnectionError("the letter box is shut")
    letter: dict[str, JsonValue] = {"to": to, "text": text, "key": context.key}
    _append(Path(str(context.work["letters"])), json.dumps(letter) + "\n")
    return ToolResult(content=f"posted to {to}", facts=letter)


class NotesRules:
    """Done when as many letters as wanted are posted."""

    def goal_of(self, given: RunInput) -> str:
        return given.goal or "post the letters"

    async def check(self, given: RunInput, *, settings: Settings) -> None:
        return None

    async def begin(self, given: RunInput, *, snapshots: Snapshots, settings: Settings) -> Begun:
        work = NotesWork.model_validate(given.options)
        folder = Path(work.letters).parent / "empty"
        folder.mkdir(exist_ok=True)
        base = await snapshots.take(folder)
        return Begun(work=work.model_dump(), snapshot=base)

    def plan(self, state: AgentState) -> list[str]:
        return ["post the letters"]

    def prompt(self, state: AgentState) -> str:
        return "Post letters."

    def opening(self, state: AgentState) -> ToolCall | None:
        return None

    def evidence(self, state: AgentState) -> ToolCall | None:
        return None

    def objection(self, state: AgentState) -> str | None:
        return None

    def observe(self, state: AgentState, name: str, facts: Mapping[str, JsonValue]) -> Observed:
        work = NotesWork.model_validate(state.work)
        done = []
        if name == "post":
            work.posted += 1
            done = ["post the letters"] if work.posted >= work.wanted else []
        return Observed(work=work.model_dump(), tried=[Tried(what=name, outcome="done")], completed=done)

    def judge(self, state: AgentState) -> Verdict:
        work = NotesWork.model_validate(state.work)
        if work.posted >= work.wanted:
            return Verdict(judgement="done", summary=f"{work.posted} letters are posted.")
        return Verdict(judgement="go_on", summary="Post the letters that are wanted.")

    def describe(self, state: AgentState, call: ToolCall) -> str:
        return f"{call.name}: {call.args}"

    def again(self, work: Mapping[str, Any]) -> dict[str, Any]:
        return dict(work)


NOTES = Job(
    name="notes",
    rules=NotesRules(),
    toolbox=Toolbox.of([look, count, fetch, note, post]),
    work=NotesWork,
    default_model="search-repair",
)
