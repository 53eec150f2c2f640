"""What a command that drives a run prints at its end, and how it ends."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scripts.cli.output import moment, one_line, put, put_diff, put_facts, put_json
from scripts.driving import Drive
from scripts.facts import facts_of, records
from state.runs import Run

_SHOWN_APART = {"attempts", "pending", "patch", "state", "plan"}


async def report(drive: Drive, run: Run, *, as_json: bool) -> int:
    """Print the run's facts and the way on; the exit code of its status."""
    put_run(await facts_of(drive.application, run), as_json=as_json)
    drive.say_goodbye(run)
    return drive.exit_code(run)


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
