"""The one place where a call is performed: reads freely, effects once, through the ledger.

*claim* the intent, *perform* it, *settle* the receipt before anything else happens. What was claimed and never
settled died or froze in between; then the other side is asked, and where nobody can know, a person decides.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Collection, Mapping
from typing import Any, Literal, NamedTuple

from langgraph.errors import GraphBubbleUp
from pydantic import JsonValue, ValidationError

from state.approvals import digest_of
from state.errors import DevfixError, EffectRefused, Fenced, OutOfService
from state.failures import FailureKind
from state.holder import is_gone, kill
from state.ledger import Effect, Intent, Ledger, Receipt
from state.runs import Runs
from tools.registry import Found, Tool, ToolContext, ToolResult


class Performed(NamedTuple):
    """What came of a call, and the kind of failure, if it was one."""

    result: ToolResult
    failure: FailureKind | None = None


Fate = Literal["dead", "unknown"]


def effect_key(run_id: str, call_id: str) -> str:
    """The idempotency key of an effect: the same in whatever process and at each try."""
    return hashlib.sha256(f"{run_id}\0{call_id}".encode()).hexdigest()[:32]


def validated(tool: Tool, args: Mapping[str, Any]) -> Mapping[str, Any]:
    """The arguments as the tool takes them. Raises ValueError, in words for the model, where they do not fit."""
    unknown = sorted(set(args) - set(tool.arguments.model_fields))
    if unknown:
        raise ValueError(
            f"{tool.name} takes no argument {', '.join(unknown)}; it takes {', '.join(tool.arguments.model_fields)}"
        )
    try:
        model = tool.arguments.model_validate(dict(args))
    except ValidationError as error:
        told = "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors())
        raise ValueError(f"the arguments of {tool.name} are not valid: {told}") from None
    return {name: getattr(model, name) for name in model.model_fields_set}


class Execution:
    """Performs calls; the only user of the ledger."""

    def __init__(self, *, ledger: Ledger, runs: Runs) -> None:
        self._ledger = ledger
        self._runs = runs

    async def perform(
        self, tool: Tool, args: Mapping[str, JsonValue], context: ToolContext, *, epoch: int
    ) -> Performed:
        """Do the call and say what came of it. Expected trouble comes back as a result; Fenced is raised."""
        try:
            values = validated(tool, args)
        except ValueError as error:
            return Performed(ToolResult(content=str(error), is_error=True), "invalid_arguments")
        if tool.kind != "effect":
            return await _attempted(tool, values, context)
        return await self._once(tool, args, values, context, epoch)

    async def settle_orphans(self, run_id: str, open_calls: Collection[str], *, epoch: int) -> list[Effect]:
        """Effects that a dead attempt began for calls that the state does not have open any more: nobody will finish
        them, so their outcome is unknown from here on. The run's report names them."""
        begun = [effect for effect in await self._ledger.of(run_id) if effect.state == "claimed"]
        orphans = [effect for effect in begun if effect.call_id not in open_calls]
        return [await self._ledger.doubt(run_id, effect.call_id, epoch=epoch) for effect in orphans]

    async def _once(
        self,
        tool: Tool,
        args: Mapping[str, JsonValue],
        values: Mapping[str, Any],
        context: ToolContext,
        epoch: int,
    ) -> Performed:
        intent = Intent(
            run_id=context.run_id,
            call_id=context.call_id,
            tool=tool.name,
            digest=digest_of(tool.name, {**args, "bound": dict(context.bound)}),
            arguments={**args, "bound": dict(context.bound)},
            key=context.key,
        )
        try:
            claimed = await self._ledger.claim(intent, epoch=epoch)
        except EffectRefused as error:
            return Performed(ToolResult(content=str(error), is_error=True), "effect_refused")
        if claimed.fresh:
            return await self._perform(tool, values, context, epoch)
        return await self._recover(claimed.effect, tool, values, context, epoch)

    async def _recover(
        self, effect: Effect, tool: Tool, values: Mapping[str, Any], context: ToolContext, epoch: int
    ) -> Performed:
        """What becomes of an effect that was claimed before."""
        if effect.receipt is not None:
            return Performed(_result_of(effect.receipt))
        if effect.state == "unknown" or effect.call_id != context.call_id:
            return _in_doubt(tool, effect)
        if tool.idempotent:
            return await self._perform(tool, values, context, epoch)
        if await self._fate(effect, epoch) == "unknown" or tool.verify is None:
            return await self._verified_or_in_doubt(effect, tool, values, context, epoch)
        try:
            found = await tool.verify(values, context)
        except DevfixError:
            return await self._doubted(effect, tool, epoch)
        if found is not None:
            return await self._settle(context, _receipt_of(found), epoch)
        return await self._perform(tool, values, context, epoch)

    async def _doubted(self, effect: Effect, tool: Tool, epoch: int) -> Performed:
        """The other side can't be asked: a person decides."""
        return _in_doubt(tool, await self._ledger.doubt(effect.run_id, effect.call_id, epoch=epoch))

    async def _fate(self, effect: Effect, epoch: int) -> Fate:
        """Whether whoever claimed the effect can still be performing it; a frozen process of this machine is ended."""
        if effect.epoch == epoch:
            return "dead"
        former = await self._runs.attempt(effect.run_id, effect.epoch)
        if former.ended:
            return "dead"
        if is_gone(former.holder) is False:
            kill(former.holder)
            await asyncio.sleep(0.05)
        return "dead" if is_gone(former.holder) else "unknown"

    async def _verified_or_in_doubt(
        self, effect: Effect, tool: Tool, values: Mapping[str, Any], context: ToolContext, epoch: int
    ) -> Performed:
        try:
            found = await tool.verify(values, context) if tool.verify is not None else None
        except DevfixError:
            found = None
        if found is not None:
            return await self._settle(context, _receipt_of(found), epoch)
        return await self._doubted(effect, tool, epoch)

    async def _perform(self, tool: Tool, values: Mapping[str, Any], context: ToolContext, epoch: int) -> Performed:
        performed = await _attempted(tool, values, context)
        result, failure = performed
        if failure is None and not result.is_error:
            return await self._settle(context, {"content": result.content, "facts": result.facts}, epoch)
        if failure in (None, "effect_refused"):
            await self._ledger.release(context.run_id, context.call_id, epoch=epoch)
            return Performed(result, "effect_refused")
        return await self._after_trouble(performed, tool, values, context, epoch)

    async def _after_trouble(
        self, performed: Performed, tool: Tool, values: Mapping[str, Any], context: ToolContext, epoch: int
    ) -> Performed:
        """An effect failed in a way that leaves open whether it happened: the other side is asked."""
        try:
            found = await tool.verify(values, context) if tool.verify is not None else None
            known = tool.verify is not None
        except DevfixError:
            found, known = None, False
        if not known:
            return _in_doubt(tool, await self._ledger.doubt(context.run_id, context.call_id, epoch=epoch))
        if found is not None:
            return await self._settle(context, _receipt_of(found), epoch)
        await self._ledger.release(context.run_id, context.call_id, epoch=epoch)
        return performed

    async def _settle(self, context: ToolContext, receipt: Receipt, epoch: int) -> Performed:
        effect = await self._ledger.settle(context.run_id, context.call_id, receipt, epoch=epoch)
        return Performed(_result_of(effect.receipt or receipt))


async def _attempted(tool: Tool, values: Mapping[str, Any], context: ToolContext) -> Performed:
    """Call the tool's function. What it raises becomes a result, but for LangGraph's own control flow, the fence, and
    that something which DevFix itself needs is away."""
    try:
        async with asyncio.timeout(tool.timeout):
            returned = await tool.call(**values, context=context)
    except (GraphBubbleUp, Fenced, OutOfService):
        raise
    except TimeoutError:
        text = f"{tool.name} did not finish within {tool.timeout:g} s and was stopped"
        return Performed(ToolResult(content=text, is_error=True), "tool_timeout")
    except EffectRefused as error:
        return Performed(ToolResult(content=str(error), is_error=True), "effect_refused")
    except (DevfixError, OSError) as error:
        return Performed(ToolResult(content=str(error), is_error=True), "tool_unavailable")
    except Exception as error:  # noqa: BLE001 - a tool is any user's code: its bug is the model's to read, not the run's end
        text = f"{tool.name} failed: {type(error).__name__}: {error}"
        return Performed(ToolResult(content=text, is_error=True), "tool_failed")
    return Performed(returned if isinstance(returned, ToolResult) else ToolResult(content=returned))


def _receipt_of(found: Found) -> Receipt:
    return {"content": "It had been done already; this is its receipt.", "facts": dict(found or {})}


def _result_of(receipt: Receipt) -> ToolResult:
    return ToolResult.model_validate(receipt)


def _in_doubt(tool: Tool, effect: Effect) -> Performed:
    text = (
        f"the outcome of {tool.name} is unknown: it was begun at {effect.claimed_at:%Y-%m-%d %H:%M:%S %Z} and never "
        "confirmed. It is not repeated by itself; a person has to look"
    )
    return Performed(ToolResult(content=text, is_error=True), "outcome_unknown")
