"""The campaign's errand on LangChain's `create_agent`, as its documentation has it, with its own middleware.

A line of JSON on stdin is one run; a line on stdout is what came of it. Where a middleware can either raise or let the
agent end as if all were well, it is told to raise.
"""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from langchain.agents import create_agent
from langchain.agents.middleware import (
    ModelCallLimitMiddleware,
    ModelFallbackMiddleware,
    ModelRetryMiddleware,
    ToolRetryMiddleware,
)
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI

RUN_SECONDS = 15.0


@dataclass
class World:
    """What the tools of the run under way see."""

    sink: Path = Path()
    ran: list[str] = field(default_factory=list)


WORLD = World()


@tool
async def look(what: str, seconds: float = 0.0) -> str:
    """Look at something, which takes a while."""
    WORLD.ran.append("look")
    await asyncio.sleep(seconds)
    return f"saw {what}"


@tool
async def measure(what: str) -> str:
    """Look at something whose result says when it was looked at."""
    return f"{what} is as it was, in {asyncio.get_running_loop().time() % 9:.3f}s"


@tool
async def moody(mood: str, turn: int = 0) -> str:
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
        case "says too much":
            return "0123456789abcdef" * 64 * 1024
    return f"{mood}, {turn}"


@tool
async def note(path: str, text: str) -> str:
    """Write a note into the workspace."""
    WORLD.ran.append("note")
    return f"wrote {path}"


@tool
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


@tool
async def shout(to: str) -> str:
    """Say it aloud."""
    raise ConnectionError("the window shut")


TOOLS = [look, measure, moody, note, post, shout]


def model(url: str) -> ChatOpenAI:
    return ChatOpenAI(model="gpt-4o", base_url=url, api_key="none", max_retries=0, timeout=2.0, streaming=True)


async def run(given: dict[str, Any]) -> dict[str, Any]:
    WORLD.sink, WORLD.ran = Path(given["sink"]), []
    first, *others = map(model, given["urls"])
    middleware = [
        ModelCallLimitMiddleware(run_limit=given["calls"], exit_behavior="error"),
        *([ModelFallbackMiddleware(*others)] if others else []),
        ModelRetryMiddleware(max_retries=4, initial_delay=0.002, on_failure="error"),
        ToolRetryMiddleware(max_retries=1, initial_delay=0.002, on_failure="continue"),
    ]
    agent = create_agent(first, TOOLS, system_prompt="Post the letter.", middleware=middleware)
    try:
        async with asyncio.timeout(RUN_SECONDS):
            await agent.ainvoke(
                {"messages": [{"role": "user", "content": "post the letter"}]}, {"recursion_limit": 400}
            )
    except TimeoutError:
        end = "hangs"
    except (Exception, SystemExit) as error:  # noqa: BLE001 - that it raises is what is measured
        end = f"raised {type(error).__name__}"
    else:
        end = "returned"
    return {"end": end, "ran": WORLD.ran}


def main() -> None:
    for line in sys.stdin:
        answer = json.dumps(asyncio.run(run(json.loads(line))))
        sys.stdout.write(answer + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
