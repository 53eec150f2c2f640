"""The campaign's errand on LangChain's `create_agent`, with its own middleware as its documentation has it.

Where a middleware can either raise or let the agent end as if all were well, it is told to raise; only tools that may
be done again are tried again.
"""

from __future__ import annotations

from typing import Any

from langchain.agents import create_agent
from langchain.agents.middleware import (
    AgentMiddleware,
    ModelCallLimitMiddleware,
    ModelFallbackMiddleware,
    ModelRefusalMiddleware,
    ModelRetryMiddleware,
    ToolErrorMiddleware,
    ToolRetryMiddleware,
    hook_config,
)
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from world import (
    EFFECTS,
    GOAL,
    NOT_POSTED,
    PAUSE_SECONDS,
    READS,
    REMINDERS,
    SILENCE_SECONDS,
    TRIES,
    is_posted,
    serve,
)

STEP_SECONDS = 12.0
"""LangGraph's limit of a step; a tool has none of its own. It leaves time for a silent model's tries."""


class Outcome(AgentMiddleware):
    """Code of one's own: a last word is taken only where the letter is there, and asked for a few times."""

    def __init__(self) -> None:
        self.reminded = 0

    @hook_config(can_jump_to=["model"])
    async def aafter_model(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        last = state["messages"][-1]
        if not isinstance(last, AIMessage) or last.tool_calls or is_posted():
            return None
        self.reminded += 1
        if self.reminded > REMINDERS:
            raise RuntimeError(NOT_POSTED)
        return {"messages": [HumanMessage(NOT_POSTED)], "jump_to": "model"}


def model(url: str) -> ChatOpenAI:
    return ChatOpenAI(
        model="gpt-4o", base_url=url, api_key="none", max_retries=0, timeout=SILENCE_SECONDS, streaming=True
    )


async def run(given: dict[str, Any]) -> None:
    first, *others = map(model, given["urls"])
    middleware = [
        *([Outcome()] if given["checks"] else []),  # a jump leaves out what comes after it, which is what stands before
        ModelCallLimitMiddleware(run_limit=given["calls"], exit_behavior="error"),
        *([ModelFallbackMiddleware(*others)] if others else []),
        ModelRefusalMiddleware(),
        ModelRetryMiddleware(max_retries=TRIES - 1, initial_delay=PAUSE_SECONDS, on_failure="error"),
        ToolErrorMiddleware(lambda error, request: f"{type(error).__name__}: {error}"),
        ToolRetryMiddleware(
            max_retries=1, initial_delay=PAUSE_SECONDS, tools=[each.__name__ for each in READS], on_failure="error"
        ),
    ]
    agent = create_agent(first, [tool(each) for each in READS + EFFECTS], system_prompt=GOAL, middleware=middleware)
    agent.step_timeout = STEP_SECONDS
    await agent.ainvoke({"messages": [{"role": "user", "content": "post the letter"}]}, {"recursion_limit": 400})


if __name__ == "__main__":
    serve(run)
