"""What the peers' programs share: the campaign's errand in plain functions, and a line of JSON in and out for each run.

Each program says only how its framework is told of models, tools and limits.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

GOAL = "Post the letter."
NOT_POSTED = "There is no receipt of a letter yet: post it."
REMINDERS = 2
"""How often an answer that is not taken is asked for again, and a tool that fails, where a framework counts that."""
TRIES = 5
"""How often a model that fails is asked in a turn, as DevFix does."""
PAUSE_SECONDS = 0.002
SILENCE_SECONDS = 2.0
TOOL_SECONDS = 1.0
"""How long a tool may take that has a limit in DevFix's own errand."""
RUN_SECONDS = 20.0


@dataclass
class World:
    """What the tools of the run under way see."""

    sink: Path = Path()
    ran: list[str] = field(default_factory=list)


WORLD = World()


async def look(what: str, seconds: float = 0.0) -> str:
    """Look at something, which takes a while."""
    WORLD.ran.append("look")
    await asyncio.sleep(seconds)
    return f"saw {what}"


async def measure(what: str) -> str:
    """Look at something whose result says when it was looked at."""
    return f"{what} is as it was, in {asyncio.get_running_loop().time() % 9:.3f}s"


_SAYS: dict[str, Any] = {
    "says too much": "0123456789abcdef" * 64 * 1024,
    "says what no text holds": "\0 \ud800",
    "returns nothing": None,
    "returns what is no number": float("nan"),
}


async def moody(mood: str, turn: int = 0) -> Any:
    """Look at something, in one of many moods."""
    WORLD.ran.append("moody")
    match mood:
        case "raises" | "tells an error":
            raise ValueError(f"nobody can look at that, {turn}")
        case "hangs":
            await asyncio.sleep(3600)
        case "exits":
            sys.exit(3)
        case "refuses it once" if WORLD.ran.count("moody") > 1:
            return "somebody listens"
        case "refuses the connection" | "refuses it once":
            raise ConnectionRefusedError(f"nobody listens, {turn}")
        case "recurses for ever":
            return await moody(mood, turn)
    return _SAYS.get(mood, f"{mood}, {turn}")


async def note(path: str, text: str) -> str:
    """Write a note into the workspace."""
    WORLD.ran.append("note")
    return f"wrote {path}"


async def post(to: str, mood: str = "") -> str:
    """Post the letter."""
    WORLD.ran.append("post")
    if mood in {"fails before", "refuses"}:
        raise ConnectionError("the letter box is shut")
    with WORLD.sink.open("a") as file:
        file.write(json.dumps({"to": to}) + "\n")
    if mood == "fails after":
        raise ConnectionError("the letter box shut")
    if mood == "hangs after":
        await asyncio.sleep(3600)
    return f"posted to {to}"


async def shout(to: str) -> str:
    """Say it aloud."""
    raise ConnectionError("the window shut")


READS = [look, measure, moody, note]
"""What may be done again."""
EFFECTS = [post, shout]


def is_posted() -> bool:
    return WORLD.sink.exists()


async def measured(given: dict[str, Any], run: Callable[[dict[str, Any]], Awaitable[None]]) -> dict[str, Any]:
    """How the run ended, and what ran."""
    WORLD.sink, WORLD.ran = Path(given["sink"]), []
    limit = asyncio.timeout(RUN_SECONDS)
    try:
        async with limit:
            await run(given)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - that it raises is what is measured
        end = "hangs" if limit.expired() else f"raised {type(error).__name__}"
    else:
        end = "returned"
    return {"end": end, "ran": WORLD.ran}


def serve(run: Callable[[dict[str, Any]], Awaitable[None]]) -> None:
    """A run for each line of stdin; a line of stdout for what came of it."""
    for line in sys.stdin:
        answer = json.dumps(asyncio.run(measured(json.loads(line), run)))
        sys.stdout.write(answer + "\n")
        sys.stdout.flush()
