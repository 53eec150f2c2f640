"""The campaign's own job: it looks at things, writes notes, posts one letter to a file; each tool has its moods."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, JsonValue

from graph.jobs import Begun, Job, Verdict
from graph.jobs.basic import BasicRules
from state.agent_state import AgentState, RunInput
from state.errors import EffectRefused, HomeUnwritable
from state.settings import Settings
from state.snapshots import Snapshots
from tools.registry import Found, Toolbox, ToolContext, ToolResult, tool

TOOL_SECONDS = 1.0


class ErrandWork(BaseModel):
    """Where the letter goes, and whether it is there."""

    sink: str
    posted: bool = False


def letters(sink: Path) -> list[dict[str, Any]]:
    """What has arrived, in order."""
    return [json.loads(line) for line in sink.read_text().splitlines()] if sink.exists() else []


@tool(kind="read")
async def look(what: str, seconds: float = 0.0, *, context: ToolContext) -> str:
    """Look at something, which takes a while."""
    await asyncio.sleep(seconds)
    return f"saw {what}"


@tool(kind="read")
async def measure(what: str, *, context: ToolContext) -> str:
    """Look at something whose result says when it was looked at."""
    loop = asyncio.get_running_loop()
    return f"{what} is as it was, in {loop.time() % 9:.3f}s <object at {hex(id(loop))}>"


async def _hang(turn: int) -> Any:
    await asyncio.sleep(3600)


async def _exit(turn: int) -> Any:
    sys.exit(3)


async def _fail(turn: int) -> Any:
    raise ValueError(f"nobody can look at that, {turn}")


async def _refuse_the_connection(turn: int) -> Any:
    raise ConnectionRefusedError(f"nobody listens, {turn}")


async def _recurse(turn: int) -> Any:
    return await _recurse(turn)


def _returning(value: Any) -> Callable[[int], Awaitable[Any]]:
    async def give(turn: int) -> Any:
        return value.model_copy(update={"content": f"{value.content} {turn}"}) if value is not None else None

    return give


_MOODS: Mapping[str, Callable[[int], Awaitable[Any]]] = {
    "sees": _returning(ToolResult(content="it is there")),
    "raises": _fail,
    "tells an error": _returning(ToolResult(content="it is broken", facts={"posted": True}, is_error=True)),
    "hangs": _hang,
    "refuses the connection": _refuse_the_connection,
    "exits": _exit,
    "recurses for ever": _recurse,
    "says too much": _returning(
        ToolResult(content="0123456789abcdef" * 64 * 1024, facts={"raw": "fedcba98" * 128 * 1024})
    ),
    "says what no text holds": _returning(ToolResult(content="\0 \ud800", facts={"odd": "\0"})),
    "returns nothing": _returning(None),
    "returns what is no number": _returning(ToolResult(content="so it is", facts={"share": float("nan")})),
}


@tool(kind="read", timeout=TOOL_SECONDS)
async def moody(mood: str, turn: int = 0, *, context: ToolContext) -> ToolResult:
    """Look at something, in one of many moods."""
    if mood == "refuses it once":
        if _is_first(context):
            raise ConnectionRefusedError("nobody listens yet")
        return ToolResult(content="somebody listens")
    if mood == "finds no room, once":
        if _is_first(context):
            raise HomeUnwritable("there is no room for what it found")
        return ToolResult(content="there is room")
    found: ToolResult = await _MOODS[mood](turn)
    return found


@tool(kind="workspace")
async def note(path: str, text: str, *, context: ToolContext) -> str:
    """Write a note into the workspace."""
    context.workspace.write(path, text.encode())
    return f"wrote {path}"


async def _find_letter(args: Mapping[str, Any], context: ToolContext) -> Found:
    return next((each for each in letters(_sink(context)) if each["key"] == context.key), None)


@tool(kind="effect", verify=_find_letter, timeout=TOOL_SECONDS)
async def post(to: str, mood: str = "", *, context: ToolContext) -> ToolResult:
    """Post the letter."""
    if mood == "fails before":
        raise ConnectionError("the letter box is shut")
    if mood == "refuses":
        raise EffectRefused("nobody of this name lives here")
    letter = _post(to, context)
    if mood == "fails after":
        raise ConnectionError("the letter box shut")
    if mood == "hangs after":
        await asyncio.sleep(3600)
    return ToolResult(content=f"posted to {to}", facts={**letter, "posted": True})


@tool(kind="effect", uncheckable=True)
async def shout(to: str, *, context: ToolContext) -> ToolResult:
    """Say it aloud, of which nobody can tell afterwards whether it was heard."""
    raise ConnectionError("the window shut")


def _post(to: str, context: ToolContext) -> dict[str, JsonValue]:
    letter: dict[str, JsonValue] = {"to": to, "key": context.key, "posted": True}
    with _sink(context).open("a") as file:
        file.write(json.dumps(letter) + "\n")
        file.flush()
        os.fsync(file.fileno())
    return letter


def _sink(context: ToolContext) -> Path:
    return Path(str(context.work["sink"]))


def _is_first(context: ToolContext) -> bool:
    mark = _sink(context).with_suffix(".tried")
    if mark.exists():
        return False
    mark.touch()
    return True


class ErrandRules(BasicRules):
    """Done when the letter's receipt is there; what the model says of it is no evidence."""

    work = ErrandWork
    goal = "post the letter"
    steps = ("post the letter",)

    async def begin(self, given: RunInput, *, snapshots: Snapshots, settings: Settings) -> Begun:
        begun = await super().begin(given, snapshots=snapshots, settings=settings)
        folder = Path(str(begun.work["sink"])).parent / "empty"
        folder.mkdir(exist_ok=True)
        return begun.model_copy(update={"snapshot": await snapshots.take(folder)})

    def prompt(self, state: AgentState) -> str:
        return "Post the letter."

    def judge(self, state: AgentState) -> Verdict:
        if ErrandWork.model_validate(state.work).posted:
            return Verdict(judgement="done", summary="The letter is posted.")
        return Verdict(judgement="go_on", summary="There is no receipt of a letter yet: post it.")


ERRAND = Job(
    name="errand",
    rules=ErrandRules(),
    toolbox=Toolbox.of([look, measure, moody, note, post, shout]),
    work=ErrandWork,
    default_model="openai:gpt-4o",
)
