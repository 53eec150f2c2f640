"""The question at the terminal: what the run wants to do, on what evidence, and the person's answer."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from scripts.cli.output import one_line, put_diff, say
from scripts.signals import interruptible
from state.approvals import Decision
from state.ids import short

_TRIED_SHOWN = 12


class Later(Exception):
    """The person answers later, by `devfix approve`."""

    def __init__(self, *, interrupted: bool) -> None:
        super().__init__()
        self.interrupted = interrupted


def ask(facts: Mapping[str, Any], pending: Mapping[str, Any]) -> Decision:
    """Show one question and wait for its answer. Blocks. Raises Later."""
    show_question(facts, pending)
    while True:
        match (typed := _answer(_prompt(pending))).lower():
            case "y" | "yes" | "approve":
                return Decision(type="approve")
            case "n" | "no" | "reject":
                return Decision(type="reject", message=_answer("Why not? (the model is told) ") or None)
            case "e" | "edit" if "edit" in pending["allowed"]:
                if (edited := _edited(pending["arguments"])) is not None:
                    return Decision(type="edit", arguments=edited)
            case "r" | "respond":
                if text := _answer("Your answer to the model: "):
                    return Decision(type="respond", message=text)
                say("nothing was typed, so nothing was decided")
            case "w" | "why" | "?":
                _why(facts)
            case "l" | "later" | "q":
                raise Later(interrupted=False)
            case _:
                say(_not_understood(typed, pending))


def show_question(facts: Mapping[str, Any], pending: Mapping[str, Any]) -> None:
    """The question with its diff, its evidence and the sandbox that the evidence comes from, on stderr."""
    say("")
    if pending["kind"] == "escalation":
        say(f"The run needs a decision. {facts['report']['summary']}")
        for each in facts["report"].get("tried", ())[-_TRIED_SHOWN:]:
            say(f"  tried: {one_line(each)}")
        return
    say(f"The run wants to call {pending['tool']} ({pending['call_id']}):")
    say(pending["description"] or one_line(pending["arguments"]))
    if where := facts.get("repository"):
        say(f"Repository: {where}; as: {pending.get('mode') or 'asked'}")
    if pending["diff"]:
        say("")
        put_diff(pending["diff"], stream=sys.stderr)


def _prompt(pending: Mapping[str, Any]) -> str:
    if pending["kind"] == "escalation":
        return "[y] try again, [r]espond with advice, [n] cancel the run, [w]hy, [l]ater? "
    edit = ", [e]dit" if "edit" in pending["allowed"] else ""
    return f"[y] approve, [n] reject{edit}, [r]espond, [w]hy, [l]ater? "


def _not_understood(typed: str, pending: Mapping[str, Any]) -> str:
    choices = "y, n, e, r, w or l" if "edit" in pending["allowed"] else "y, n, r, w or l"
    what = f"{one_line(typed)!r} was not understood" if typed else "nothing was typed"
    return f"{what}, so nothing was decided: type {choices}, then Enter"


def _answer(prompt: str) -> str:
    sys.stderr.write(prompt)
    sys.stderr.flush()
    try:
        with interruptible():
            line = sys.stdin.readline()
    except KeyboardInterrupt:
        sys.stderr.write("\n")
        raise Later(interrupted=True) from None
    if not line:
        sys.stderr.write("\n")
        raise Later(interrupted=False)
    return line.strip()


def _why(facts: Mapping[str, Any]) -> None:
    """How the run came to this."""
    for each in facts["attempts"][-_TRIED_SHOWN:]:
        say(f"  step {each.get('step')}: {each.get('what')}: {one_line(each.get('outcome'))}")
    say(f"  `devfix trace {short(facts['run_id'])}` lists every call, `devfix show {short(facts['run_id'])}` the rest.")


def _edited(arguments: Mapping[str, Any]) -> dict[str, Any] | None:
    """The arguments as the person leaves them in an editor; None when they are no JSON object or did not change."""
    text = json.dumps(dict(arguments), indent=2, ensure_ascii=False)
    changed = _in_editor(text)
    try:
        value = json.loads(changed)
    except ValueError as error:
        say(f"that is not JSON ({error}); nothing was decided")
        return None
    if not isinstance(value, dict) or value == dict(arguments):
        say("nothing was changed, so nothing was decided")
        return None
    return value


def _in_editor(text: str) -> str:
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    with tempfile.NamedTemporaryFile("w+", suffix=".json", prefix="devfix-", errors="surrogateescape") as file:
        file.write(text)
        file.flush()
        try:
            with interruptible():
                subprocess.run([*shlex.split(editor), file.name], check=False)
        except (OSError, KeyboardInterrupt) as error:
            say(f"the editor {editor} did not run ({error}); set EDITOR")
        return Path(file.name).read_text(errors="surrogateescape")
