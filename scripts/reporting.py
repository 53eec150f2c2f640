"""What a command that drives a run prints at its end, and how it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from graph.notices import send_due
from scripts.bootstrap import Application
from scripts.cli.output import moment, one_line, put, put_diff, put_facts, put_json, say
from scripts.driving import Drive
from scripts.facts import facts_of, records
from state.errors import DevfixError
from state.runs import Run

TELL_SECONDS = 30.0
_LETTERS = {
    "due": "not sent, and tried again later",
    "sending": "being sent",
    "unknown": "it may have been sent, and is not sent again",
    "given_up": "not sent, and not tried again",
    "stale": "not sent",
}
_SHOWN_APART = {"attempts", "pending", "patch", "state", "plan"}


async def report(drive: Drive, run: Run, *, as_json: bool) -> int:
    """Print the run's facts and the way on; the exit code of its status."""
    put_run(await facts_of(drive.application, run), as_json=as_json)
    drive.say_goodbye(run)
    if run.status != "queued":
        await tell_people(drive.application, run)
    return drive.exit_code(run)


async def tell_people(application: Application, run: Run) -> None:
    """Send what is to be told of runs, for as long as a person at the command line may be made to wait; whoever comes
    next goes on with it."""
    services = application.services
    if not services.settings.notify:
        return
    try:
        async with asyncio.timeout(TELL_SECONDS):
            await send_due(services, seconds=TELL_SECONDS / 2)
    except (TimeoutError, DevfixError) as error:
        say(f"devfix: people could not be told yet: {error or f'it took longer than {TELL_SECONDS:.0f} s'}")
    for letter in await services.outbox.of(run.run_id):
        if letter.trouble and letter.state != "settled":
            say(f"devfix: {letter.call_id} ({_LETTERS[letter.state]}): {letter.trouble}")


def put_run(facts: Mapping[str, Any], *, as_json: bool) -> None:
    """A run's facts on stdout."""
    if as_json:
        put_json(facts)
        return
    lines = {name: value for name, value in facts.items() if name not in _SHOWN_APART}
    done = facts["completed"]
    plan = [f"{'done' if item in done else 'open'}: {item}" for item in facts["plan"]]
    tried = [
        f"step {each.get('step')}: {each.get('what')}: {each.get('outcome')}" for each in records(facts, "attempts")
    ]
    lines.pop("completed")
    put_facts({**lines, "plan": plan, "attempts": tried})
    for each in facts.get("pending") or ():
        until = f"until {moment(each['expires_at'])}" if each["expires_at"] else "for as long as it takes"
        put(f"\nwaits for an answer to {each['call_id']} ({each['tool']}), {until}")
        put(each["description"] or one_line(each["arguments"]))
        if each["diff"]:
            put_diff(each["diff"])
    if facts.get("patch") and not facts["pending"]:
        put("\npatch:")
        put_diff(facts["patch"])


def _tried(record: Mapping[str, Any]) -> str:
    return f"step {record.get('step')}: {record.get('what')}: {record.get('outcome')}"
