"""`make safeguards`: take each safeguard out of a copy of the sources, and see that a trial turns red.

First each trial runs on a copy that is whole, where it must see nothing. Exit code 1 where a trial is not as it should
be, or sees nothing without its safeguard: then either the safeguard is superfluous, or the trial is blind.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from subprocess import PIPE
from typing import NamedTuple

from tests.helpers.removal import Edit, cell, copy_without, say
from tests.safeguards import trials
from tests.safeguards.table import SAFEGUARDS, Safeguard

TRIAL_SECONDS = 400.0


class Seen(NamedTuple):
    """What a trial saw."""

    wrong: Sequence[str]
    broken: str = ""
    """Why it says nothing."""


def trial(name: str, edits: Sequence[Edit] = ()) -> Seen:
    """What the trial sees on sources with these edits."""
    with copy_without(edits) as copy:
        command = [sys.executable, "-W", "ignore", "-m", trials.__name__, name]
        environment = {**os.environ, "PYTHONPATH": str(copy)}
        with subprocess.Popen(command, cwd=copy, env=environment, stdout=PIPE, stderr=PIPE, text=True) as process:
            try:
                out, trouble = process.communicate(timeout=TRIAL_SECONDS)
            except BaseException as error:
                process.terminate()  # it stops its servers first
                process.communicate()
                if not isinstance(error, subprocess.TimeoutExpired):
                    raise
                return Seen([], f"it did not end within {TRIAL_SECONDS:.0f} s")
    if process.returncode != 0:
        return Seen([], (trouble.strip().splitlines() or ["it ended without a word"])[-1])
    found = json.loads(out.splitlines()[-1])
    missed = f"these blows did not fall: {', '.join(found['missed'])}" if found["missed"] and not edits else ""
    return Seen(found["wrong"], missed)


def on_whole_sources(name: str) -> str:
    """What is not as it should be with a trial; nothing, as a rule."""
    seen = trial(name)
    return seen.broken or "; ".join(seen.wrong)


def without(safeguard: Safeguard) -> tuple[str, bool]:
    """What its trial saw without it, and whether that is red, as it should be."""
    if safeguard.many_locks:
        for kept in safeguard.removal:
            seen = trial(safeguard.trial, [edit for edit in safeguard.removal if edit is not kept])
            if seen.broken or seen.wrong:
                return f"with one lock left: {seen.broken or '; '.join(seen.wrong)}", False
    seen = trial(safeguard.trial, safeguard.removal)
    if seen.broken or not seen.wrong:
        return seen.broken or "GREEN", False
    told = "; ".join(seen.wrong)
    return (f"{told} (with any one of its locks left: nothing)" if safeguard.many_locks else told), True


def main() -> int:
    parser = argparse.ArgumentParser(prog="make safeguards", description=__doc__)
    parser.add_argument("names", nargs="*", help="only those safeguards whose name holds one of these")
    names = parser.parse_args().names
    chosen = [each for each in SAFEGUARDS if not names or any(name in each.name for name in names)]
    began, failed, rows = time.monotonic(), 0, []
    for name in dict.fromkeys(each.trial for each in chosen):
        trouble = on_whole_sources(name)
        failed += bool(trouble)
        say(f"{name}: on whole sources {trouble or 'it sees nothing'}")
    for each in chosen:
        told, red = without(each)
        failed += not red
        say(f"without {each.name}: {told}")
        rows.append(f"| {each.name} | {each.prevents} | {cell(told)} |")
    print("| safeguard | what it prevents | what the trial saw without it |", "|---|---|---|", *rows, sep="\n")
    say(f"{len(chosen)} safeguards, {(time.monotonic() - began) / 60:.0f} minutes; {failed} not as they should be")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
