"""The campaign's errand on pydantic-ai, with its own retries, limits and fallback as its documentation has it.

A request that fails is tried again by a capability's hook (which is not asked once a stream has begun, as the display
has seen it); what a tool raises goes to the model as a retry, and pydantic-ai bounds those.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from decimal import Decimal
from typing import Any

from pydantic_ai import Agent, ModelRetry, RunContext, Tool, UsageLimits
from pydantic_ai.capabilities import AbstractCapability, ModelFallback
from pydantic_ai.exceptions import (
    ContentFilterError,
    ModelAPIError,
    ModelAuthenticationError,
    ModelQuotaExceededError,
    ModelRequestRejectedError,
    OutputTokenLimitExceeded,
    RetryModelRequest,
    UnexpectedModelBehavior,
)
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from world import (
    EFFECTS,
    GOAL,
    NOT_POSTED,
    PAUSE_SECONDS,
    READS,
    REMINDERS,
    SILENCE_SECONDS,
    TOOL_SECONDS,
    TRIES,
    is_posted,
    moody,
    post,
    serve,
)

LONGEST_PAUSE_SECONDS = 5.0


class Retries(AbstractCapability[None]):
    """Passing trouble of a model is waited for, as long as its server says, and the request sent again."""

    def __init__(self) -> None:
        self.tries = Counter[tuple[int, int]]()

    async def on_model_request_error(self, ctx: RunContext[None], *, request_context: Any, error: Exception) -> Any:
        turn = (ctx.run_step, id(request_context.model))
        self.tries[turn] += 1
        lasting = isinstance(error, (ModelRequestRejectedError, ModelQuotaExceededError, ContentFilterError))
        passing = isinstance(error, (ModelAPIError, UnexpectedModelBehavior)) and not lasting
        if not passing or self.tries[turn] >= TRIES:
            raise error
        pause = getattr(error, "retry_after", None) or PAUSE_SECONDS
        if pause > LONGEST_PAUSE_SECONDS:
            raise error
        await asyncio.sleep(pause)
        raise RetryModelRequest


class ToldErrors(AbstractCapability[None]):
    """What a tool raises is told to the model."""

    async def on_tool_execute_error(
        self, ctx: RunContext[None], *, call: Any, tool_def: Any, args: Any, error: Exception
    ) -> Any:
        raise ModelRetry(f"{type(error).__name__}: {error}")


def may_be_better_elsewhere(error: Exception) -> bool:
    """As by pydantic-ai's default, but for a key that is refused."""
    lasting = isinstance(error, ModelAuthenticationError)
    return isinstance(error, (ModelAPIError, ContentFilterError, OutputTokenLimitExceeded)) and not lasting


def model(url: str) -> OpenAIChatModel:
    return OpenAIChatModel("gpt-4o", provider=OpenAIProvider(base_url=url, api_key="none"))


async def checked(answer: str) -> str:
    """Code of one's own: a last word is taken only where the letter is there."""
    if not is_posted():
        raise ModelRetry(NOT_POSTED)
    return answer


async def streamed(ctx: RunContext[None], events: Any) -> None:
    """The display."""
    async for _ in events:
        pass


async def run(given: dict[str, Any]) -> None:
    first, *others = map(model, given["urls"])
    limited = {moody, post}
    agent = Agent(
        first,
        instructions=GOAL,
        tools=[
            Tool(each, takes_ctx=False, timeout=TOOL_SECONDS if each in limited else None) for each in READS + EFFECTS
        ],
        retries=REMINDERS,
        model_settings={"timeout": SILENCE_SECONDS, "request_timeout": 2 * SILENCE_SECONDS, "max_retries": 0},
        capabilities=[
            *([ModelFallback(*others, fallback_on=may_be_better_elsewhere)] if others else []),
            Retries(),
            ToldErrors(),
        ],
    )
    if given["checks"]:
        agent.output_validator(checked)
    limits = given["limits"]
    await agent.run(
        "post the letter",
        usage_limits=UsageLimits(
            request_limit=given["calls"],
            cost_limit=Decimal(str(limits["budget_usd"])) if "budget_usd" in limits else None,
            total_tokens_limit=limits.get("budget_tokens"),
        ),
        timeout=limits.get("deadline_seconds"),
        event_stream_handler=streamed,
    )


if __name__ == "__main__":
    serve(run)
