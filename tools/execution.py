"""The one place where a call is performed: reads freely, effects once, through the ledger.

*claim* the intent, *perform* it, *settle* the receipt before anything else happens. What was claimed and never
settled died or froze in between; then the other side is asked, and where nobody can know, a person decides.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import random
import socket
import time
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any, Literal, NamedTuple

from langgraph.errors import GraphBubbleUp
from pydantic import JsonValue

from state.approvals import digest_of
from state.errors import DevfixError, EffectRefused, Fenced, NotReached, OutOfService, Unanswered, words_of
from state.failures import FailureKind
from state.holder import Holder, is_frozen, is_gone, kill
from state.ids import short
from state.ledger import Effect, Intent, Ledger, Receipt
from state.runs import Runs
from tools.receipts import receipt_of, repeated, result_of, storable, told
from tools.registry import Found, Tool, ToolContext, ToolResult


class Performed(NamedTuple):
    """What came of a call, and the kind of failure, if it was one."""

    result: ToolResult
    failure: FailureKind | None = None


Fate = Literal["dead", "unknown"]

_LOOK_SECONDS = 0.05
_DEATH_SECONDS = 5.0
"""A large process on a busy machine takes a moment to be gone after it is killed."""
_PAUSE_SECONDS = 0.5
"""Before the first retry; four times as long before each further one."""
_PASSING = (NotReached, Unanswered, ConnectionError, socket.gaierror)
"""Trouble that may have passed a moment later, where the call can be made again without a second thought."""
_log = logging.getLogger(__name__)


def effect_key(run_id: str, call_id: str) -> str:
    """The idempotency key of an effect: the same in whatever process and at each try."""
    return hashlib.sha256(f"{run_id}\0{call_id}".encode()).hexdigest()[:32]


def validated(tool: Tool, args: Mapping[str, Any]) -> Mapping[str, Any]:
    """The arguments as the tool takes them. Raises ValueError, in words for the model, where they do not fit."""
    unknown = sorted(set(args) - set(tool.arguments.names))
    if unknown:
        raise ValueError(
            f"{tool.name} takes no argument {', '.join(unknown)}; it takes {', '.join(tool.arguments.names)}"
        )
    try:
        return tool.arguments.validated(args)
    except ValueError as error:
        raise ValueError(f"the arguments of {tool.name} are not valid: {error}") from None


class Execution:
    """Performs calls; the only user of the ledger."""

    def __init__(self, *, ledger: Ledger, runs: Runs, stop_seconds: float = 0.0, retries: int = 0) -> None:
        """`stop_seconds`: how long an attempt that was overtaken may take to notice it and to stop. `retries`: how
        often a call is made again after trouble that may pass; an effect only where it certainly did not happen."""
        self._ledger = ledger
        self._runs = runs
        self._stop_seconds = stop_seconds
        self._retries = retries

    async def perform(
        self, tool: Tool, args: Mapping[str, JsonValue], context: ToolContext, *, epoch: int
    ) -> Performed:
        """Do the call and say what came of it. Expected trouble comes back as a result; Fenced is raised."""
        try:
            values = validated(tool, args)
        except ValueError as error:
            return Performed(ToolResult(content=str(error), is_error=True), "invalid_arguments")
        if tool.kind != "effect":
            return await self._attempted(tool, values, context)
        return await self._once(tool, args, values, context, epoch)

    async def done_before(self, run_id: str, call_id: str, tool: str, arguments: Mapping[str, Any]) -> str | None:
        """What a person should know before they approve a call (its arguments with `bound`, as in a Question): that an
        equal effect is in the ledger already, of this run or of one that it branched from. None where there is none."""
        effect = await self._ledger.alike(_intent(run_id, call_id, tool, arguments, again=False))
        if effect is None or (effect.run_id, effect.call_id) == (run_id, call_id):
            return None
        if effect.state == "absent" and effect.run_id == run_id:
            return (
                f"It was tried before, as call {effect.call_id} at {effect.at:%Y-%m-%d %H:%M:%S %Z}, and did not "
                "happen. Approving tries it once more."
            )
        return (
            f"{told(effect)} Approving gives the model {'its receipt' if effect.receipt else 'this outcome'} and does "
            "nothing; to do it once more, approve with `again`."
        )

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
        arguments = {**args, "bound": dict(context.bound)}
        intent = _intent(context.run_id, context.call_id, tool.name, arguments, again=context.again)
        try:
            known = await self._ledger.claim(intent, epoch=epoch)
        except EffectRefused as error:
            return Performed(ToolResult(content=str(error), is_error=True), "effect_refused")
        if known is None:
            return await self._perform(tool, values, context, epoch)
        return await self._recover(known, tool, values, context, epoch)

    async def _recover(
        self, effect: Effect, tool: Tool, values: Mapping[str, Any], context: ToolContext, epoch: int
    ) -> Performed:
        """What becomes of an effect that was claimed before."""
        if effect.run_id != context.run_id:
            return await self._of_an_ancestor(effect, tool, values, context)
        if effect.call_id != context.call_id:  # an equal effect: what became of it, under its own key
            context = replace(context, call_id=effect.call_id, key=effect.key)
            performed = await self._recover(effect, tool, values, context, epoch)
            return performed if performed.failure else Performed(repeated(told(effect), performed.result))
        if effect.receipt is not None:
            return Performed(await result_of(effect.receipt, context))
        if effect.state == "unknown":
            return _in_doubt(effect)
        if tool.idempotent:
            return await self._performed_anew(tool, values, context, epoch)
        fate, answer = await self._fate(effect, epoch), await _asked(tool, values, context)
        if answer.found is not None:
            return await self._settle(context, receipt_of(answer.found), epoch)
        if answer.known and (fate == "dead" or effect.state == "absent"):
            return await self._performed_anew(tool, values, context, epoch)
        return _in_doubt(await self._ledger.doubt(effect.run_id, effect.call_id, epoch=epoch))

    async def _of_an_ancestor(
        self, effect: Effect, tool: Tool, values: Mapping[str, Any], context: ToolContext
    ) -> Performed:
        """The equal effect of a run that this one branched from: its row is that run's to write, so it is only read.
        Where the other side has it no more, the facts say so: `gone`, the run that had done it."""
        theirs = replace(context, run_id=effect.run_id, call_id=effect.call_id, key=effect.key)
        answer = await _asked(tool, values, theirs)
        if effect.receipt is not None:
            result = await result_of(effect.receipt, context)
            gone = {"gone": effect.run_id} if answer.known and answer.found is None else {}
            result = result.model_copy(update={"facts": {**result.facts, **gone}})
            return Performed(repeated(told(effect), result))
        if answer.found is None:
            return _in_doubt(effect)
        return Performed(repeated(told(effect), await result_of(receipt_of(answer.found), context)))

    async def _fate(self, effect: Effect, epoch: int) -> Fate:
        """Whether whoever claimed the effect can still be performing it.

        An attempt that was overtaken notices it at its next beat, stops what it performs, and says so. A process of
        this machine that does not, because it is frozen or stuck, is ended.
        """
        if effect.epoch == epoch:
            return "dead"
        waited_until = time.monotonic() + self._stop_seconds
        while True:
            former = await self._runs.attempt(effect.run_id, effect.epoch)
            if former.ended or is_gone(former.holder):
                return "dead"
            if is_frozen(former.holder) or time.monotonic() >= waited_until:
                break
            await asyncio.sleep(_LOOK_SECONDS)
        return "dead" if await _ended(former.holder) else "unknown"

    async def _performed_anew(
        self, tool: Tool, values: Mapping[str, Any], context: ToolContext, epoch: int
    ) -> Performed:
        """This attempt performs it from here on, and the ledger says so first: whoever comes after this one must look
        for this one, not for the attempt that began."""
        await self._ledger.retake(context.run_id, context.call_id, epoch=epoch)
        return await self._perform(tool, values, context, epoch)

    async def _perform(self, tool: Tool, values: Mapping[str, Any], context: ToolContext, epoch: int) -> Performed:
        performed = await self._attempted(tool, values, context)
        result, failure = performed
        if failure is None and not result.is_error:
            return await self._settle(context, {"content": result.content, "facts": result.facts}, epoch)
        if failure in (None, "effect_refused"):
            await self._ledger.release(context.run_id, context.call_id, epoch=epoch)
            return Performed(result, "effect_refused")
        return await self._after_trouble(performed, tool, values, context, epoch)

    async def _attempted(self, tool: Tool, values: Mapping[str, Any], context: ToolContext) -> Performed:
        """Call the tool's function, and again after a growing pause while the trouble is one that may pass."""
        passing: tuple[type[BaseException], ...] = (NotReached,) if tool.kind == "effect" else _PASSING
        for tries in range(self._retries):
            try:
                return await _called(tool, values, context, let_through=passing)
            except passing as error:
                _log.info("%s of run %s: %s; trying again", tool.name, short(context.run_id), words_of(error))
            await asyncio.sleep(_PAUSE_SECONDS * 4**tries * random.uniform(0.8, 1.2))  # noqa: S311 - no secret
        return await _called(tool, values, context)

    async def _after_trouble(
        self, performed: Performed, tool: Tool, values: Mapping[str, Any], context: ToolContext, epoch: int
    ) -> Performed:
        """An effect failed in a way that leaves open whether it happened: the other side is asked. Where that refuses a
        second use of the key itself, the call may simply be made again."""
        answer = await _asked(tool, values, context)
        if not answer.known and not tool.idempotent:
            effect = await self._ledger.doubt(context.run_id, context.call_id, epoch=epoch)
            return _in_doubt(effect, performed.result.content)
        if answer.found is not None:
            return await self._settle(context, receipt_of(answer.found), epoch)
        await self._ledger.missed(context.run_id, context.call_id, epoch=epoch)
        return performed

    async def _settle(self, context: ToolContext, receipt: Receipt, epoch: int) -> Performed:
        stored = await storable(receipt, context)
        effect = await self._ledger.settle(context.run_id, context.call_id, stored, epoch=epoch)
        return Performed(await result_of(effect.receipt or stored, context))


async def _ended(holder: Holder) -> bool:
    """Kill the process; whether it is gone, as far as that can be seen from this machine."""
    until = time.monotonic() + _DEATH_SECONDS * kill(holder)
    while not (gone := is_gone(holder)) and time.monotonic() < until:  # noqa: ASYNC110 - it is no child of ours
        await asyncio.sleep(_LOOK_SECONDS)
    return bool(gone)


def _intent(run_id: str, call_id: str, tool: str, arguments: Mapping[str, Any], *, again: bool) -> Intent:
    digest = digest_of(tool, arguments)
    return Intent(run_id, call_id, tool, digest, arguments, effect_key(run_id, call_id), again)


class _Answer(NamedTuple):
    """What the other side says of an effect."""

    known: bool
    """False: it can't be asked, or did not answer."""
    found: Found = None


async def _asked(tool: Tool, values: Mapping[str, Any], context: ToolContext) -> _Answer:
    """Whatever `verify` raises, or gives that is no receipt, is no answer; LangGraph's own control flow and the fence
    are raised."""
    if tool.verify is None:
        return _Answer(known=False)
    try:
        async with asyncio.timeout(tool.timeout):
            found = await tool.verify(values, context)
        return _Answer(True, None if found is None else ToolResult(content="", facts=dict(found)).facts)
    except (GraphBubbleUp, Fenced):
        raise
    except (Exception, SystemExit) as error:  # noqa: BLE001 - `verify` is any user's code
        _log.warning("%s of run %s could not be verified: %s", tool.name, short(context.run_id), words_of(error))
        return _Answer(known=False)


async def _called(
    tool: Tool, values: Mapping[str, Any], context: ToolContext, *, let_through: tuple[type[BaseException], ...] = ()
) -> Performed:
    """Call the tool's function. What it raises becomes a result, but for LangGraph's own control flow, the fence, that
    something which DevFix itself needs is away, and what the caller wants to see itself."""
    try:
        async with asyncio.timeout(tool.timeout):
            returned: object = await tool.call(**values, context=context)
    except (GraphBubbleUp, Fenced, OutOfService):
        raise
    except let_through:
        raise
    except TimeoutError:
        text = f"{tool.name} did not finish within {tool.timeout:g} s and was stopped"
        return Performed(ToolResult(content=text, is_error=True), "tool_timeout")
    except EffectRefused as error:
        return Performed(ToolResult(content=str(error), is_error=True), "effect_refused")
    except (DevfixError, OSError) as error:
        return Performed(ToolResult(content=str(error), is_error=True), "tool_unavailable")
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a tool is any user's code: its bug is the model's to read
        return _broken(f"{tool.name} failed: {type(error).__name__}: {words_of(error)}")
    if isinstance(returned, ToolResult):
        return Performed(returned)
    if isinstance(returned, str):
        return Performed(ToolResult(content=returned))
    return _broken(f"{tool.name} came to its end and gave a {type(returned).__name__}, not a text or a ToolResult")


def _broken(text: str) -> Performed:
    return Performed(ToolResult(content=text, is_error=True), "tool_failed")


def _in_doubt(effect: Effect, trouble: str = "") -> Performed:
    text = (
        f"the outcome of {effect.tool} is unknown: it was begun at {effect.claimed_at:%Y-%m-%d %H:%M:%S %Z} and never "
        "confirmed. It is not repeated by itself; a person has to look"
    )
    told = f"{text}. What was heard of it: {trouble}" if trouble else text
    return Performed(ToolResult(content=told, is_error=True), "outcome_unknown")
