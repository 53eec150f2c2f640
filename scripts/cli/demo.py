"""devfix demo: watch a real defect being found and fixed."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys

from scripts.cli.options import Json, Model, Yes


def demo(yes: Yes = False, model: Model = None, as_json: Json = False) -> int:
    """Copy the sample repository, find its defect and fix it, step by step.

    Without a terminal the patch is approved by itself (--yes). Exit codes as of `devfix run`.
    """
    return asyncio.run(_demo(yes or not sys.stdin.isatty() or not sys.stderr.isatty(), model, as_json))


async def _demo(yes: bool, model: str | None, as_json: bool) -> int:
    from uuid import uuid4

    from scripts.cli.output import say
    from scripts.cli.run import start
    from scripts.sample_repository import copy_sample
    from state.agent_state import RunInput
    from state.settings import read_settings

    folder = await asyncio.to_thread(copy_sample, read_settings().home / "demo" / uuid4().hex[:8])
    say(f"A small invoicing package with a defect was copied to {folder}.")
    code = await start(RunInput(repository=str(folder), model=model), yes=yes, as_json=as_json)
    say("\nWhat to try next:")
    for command, what in _NEXT:
        say(f"  {_program()} {command:<22} {what}")
    return code


_NEXT = (
    ("history last", "every step that was saved"),
    ("show last --step 5", "the whole state at one of them"),
    ("branch last --at 5", "a run of its own from there; `resume last` goes on with it"),
    ("demo", "again, and this time press Ctrl-C, or kill -9 it, and `resume last`"),
)


def _program() -> str:
    """As the person can type it: the program may not be on their PATH."""
    return "devfix" if shutil.which("devfix") else os.path.relpath(sys.argv[0])
