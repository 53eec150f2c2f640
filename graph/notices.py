"""What DevFix tells people by itself, where they have set it up: that a run waits for them, or has ended.

`notices_of` says what is told, when the run is settled; `send_due` sends what is due, in whatever process is there.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, cast

import psycopg
from pydantic import JsonValue

from graph.report import sentence
from state.errors import DevfixError, EffectRefused, Fenced, RunNotFound
from state.ids import short
from state.outbox import Letter, LetterLedger, Notice, Outbox, Taken
from state.outward import Channel
from state.runs import Settled
from tools.execution import Execution, Performed, effect_key
from tools.outward import outward_tools
from tools.registry import Tool, ToolContext, ToolResult
from tools.sandbox.local import Local
from tools.workspace import Workspace

if TYPE_CHECKING:
    from graph.services import Services
    from state.connection import Connection
    from state.runs import Runs
    from state.settings import Settings

TOOLS: Final[Mapping[Channel, str]] = {"email": "send_email", "webhook": "call_webhook", "ticket": "create_ticket"}
_HEADLINES: Final[Mapping[str, str]] = {
    "approval": "waits for an approval",
    "escalation": "needs a decision",
    "upgrade": "is held by an upgrade",
    "done": "is completed",
    "nothing_to_do": "had nothing to do",
    "by_person": "was cancelled",
}
_GOAL_SHOWN = 100
SEND_PAUSE_SECONDS = 2.0
LAST_SECONDS = 5.0


def announcer(settings: Settings, outbox: Outbox) -> Callable[[Connection, Settled], Any] | None:
    """What the registry calls in the transaction that settles a run; None where nobody wants to be told."""
    if not settings.notify:
        return None

    async def announce(connection: Connection, settled: Settled) -> None:
        await outbox.put(connection, notices_of(settled, settings))

    return announce


def notices_of(settled: Settled, settings: Settings) -> list[Notice]:
    """One for each channel that the event is told by. A ticket is for what a person has to see to."""
    status = settled.standing.status
    if status in {"queued", "running"}:
        return []
    channels = [each for each in settings.notify if each != "ticket" or status in {"waiting", "failed"}]
    return [_notice(settled, channel, settings) for channel in channels]


def _notice(settled: Settled, channel: Channel, settings: Settings) -> Notice:
    standing = settled.standing
    call_id = f"notify-{channel}-{standing.status}-{standing.reason}-{settled.step}"
    arguments: Mapping[str, JsonValue]
    match channel:
        case "email":
            arguments = {"to": settings.notify_email, "subject": _subject(settled), "body": _text(settled)}
        case "ticket":
            arguments = {"title": _subject(settled), "body": _text(settled)}
        case "webhook":
            arguments = {"event": f"run.{standing.status}", "data": _facts(settled)}
    key = effect_key(settled.run_id, call_id)
    return Notice(settled.run_id, call_id, str(standing), settled.step, TOOLS[channel], arguments, key)


def _subject(settled: Settled) -> str:
    standing = settled.standing
    headline = _HEADLINES.get(standing.reason or "", f"has failed ({standing.reason})")
    goal = " ".join(settled.goal.split())
    return f"DevFix run {short(settled.run_id)} {headline}" + (f": {goal[:_GOAL_SHOWN]}" if goal else "")


def _text(settled: Settled) -> str:
    report = settled.report
    parts = [str(report.get("summary") or sentence(settled.standing))]
    for name, title in (("done", "Done"), ("left", "Left"), ("next", "How to go on")):
        if lines := _lines(report, name):
            parts.append("\n".join([f"{title}:", *(f"- {line}" for line in lines)]))
    goal = f"Goal: {settled.goal}\n" if settled.goal else ""
    parts.append(f"{goal}Run: {settled.run_id}\nStatus: {settled.standing}, at step {settled.step}")
    return "\n\n".join(parts)


def _facts(settled: Settled) -> dict[str, JsonValue]:
    standing, report = settled.standing, settled.report
    return {
        "run_id": settled.run_id,
        "status": standing.status,
        "reason": standing.reason,
        "step": settled.step,
        "goal": settled.goal,
        "summary": str(report.get("summary") or sentence(standing)),
        "left": list(_lines(report, "left")),
        "next": list(_lines(report, "next")),
    }


def _lines(report: Mapping[str, Any], name: str) -> Sequence[str]:
    return [str(each) for each in report.get(name) or ()]


async def send_due(services: Services, *, seconds: float = 600.0) -> int:
    """Send what is due and begin nothing more after so many seconds; how many letters were sent.

    Safe to call from many processes at once and at any time: each letter has one sender, and one whose sender died is
    looked up on the other side before it is sent again.
    """
    until = time.monotonic() + seconds
    tools = {tool.name: tool for tool in outward_tools(services.settings) if tool.name in TOOLS.values()}
    lease = max((tool.timeout for tool in tools.values()), default=0) * 2 + 60
    sent = 0
    while tools and time.monotonic() < until:
        taken = await services.outbox.take(services.label, tools, lease_seconds=lease)
        if taken is None:
            break
        try:
            sent += await _to_its_end(_send(taken, tools[taken.letter.tool], services))
        except Fenced:
            continue  # another process goes on with it
        finally:
            services.outbox.let_go(taken.letter)
    return sent


async def keep_sending(services: Services, *, complain: Callable[[str], object]) -> None:
    """Send what is to be told, as it comes, until cancelled."""
    while services.settings.notify:
        try:
            await send_due(services)
        except (DevfixError, psycopg.OperationalError) as error:
            complain(f"people could not be told of runs: {error}; it is tried again")
        await asyncio.sleep(SEND_PAUSE_SECONDS)


async def _to_its_end(sending: Coroutine[Any, Any, bool]) -> bool:
    """A process that is asked to stop lets the letter under way out, for a moment: cut off in the middle, its outcome
    might be unknown for ever."""
    task = asyncio.create_task(sending)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task}, timeout=LAST_SECONDS)
        raise
    finally:
        task.cancel()
        await asyncio.wait({task})


async def _send(taken: Taken, tool: Tool, services: Services) -> bool:
    letter = taken.letter
    if taken.former is None and not await _is_so(letter, services):
        await services.outbox.drop(letter)
        return False
    performed = await _performed(taken, tool, services)
    if performed.failure is not None:
        await services.outbox.explain(letter, performed.result.content)
    return performed.failure is None


async def _is_so(letter: Letter, services: Services) -> bool:
    """Whether a run that is told to wait still does: a question that has been answered is nobody's business."""
    if not letter.standing.startswith("waiting"):
        return True
    try:
        run = await services.runs.get(letter.run_id)
    except RunNotFound:
        return False
    return (str(run.standing), run.step) == (letter.standing, letter.step)


async def _performed(taken: Taken, tool: Tool, services: Services) -> Performed:
    letter = taken.letter
    ledger = LetterLedger(services.outbox, taken)
    try:
        bound = await tool.bind(letter.arguments, _context(letter, services, {})) if tool.bind else {}
    except EffectRefused as error:
        await (services.outbox.doubt(letter) if taken.former else services.outbox.give_back(letter))
        return Performed(ToolResult(content=str(error), is_error=True), "effect_refused")
    # Of the register of attempts, execution asks one thing: who began this effect.
    execution = Execution(ledger=ledger, runs=cast("Runs", ledger))
    context = _context(letter, services, bound)
    return await execution.perform(tool, letter.arguments, context, epoch=letter.epoch)


def _context(letter: Letter, services: Services, bound: Mapping[str, JsonValue]) -> ToolContext:
    """What outward tools use; they see no workspace and run nothing."""
    nowhere = services.settings.home / "no-workspace"
    return ToolContext(
        run_id=letter.run_id,
        call_id=letter.call_id,
        key=letter.key,
        bound=bound,
        work={},
        workspace=Workspace(nowhere, nowhere),
        sandbox=Local(),
        artifacts=services.artifacts,
        snapshots=services.snapshots,
        settings=services.settings,
    )
