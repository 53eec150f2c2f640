"""`make handlings`: take each handling out of a copy of the sources, and see its rows of the fault campaign turn red.

First all rows run on a copy that is whole, where each must be right. Exit code 1 where one is not, or where one stays
green without its handling: then either the handling is superfluous, or the row is blind.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from subprocess import PIPE
from typing import NamedTuple

from scripts.bench.faults.table import TABLE
from tests.handlings import rows
from tests.handlings.handling import Handling
from tests.handlings.table import HANDLINGS, NOTHING_TO_TAKE_OUT
from tests.helpers.removal import Edit, cell, copy_without, say

SECONDS = 300.0
_KINDS = 3
"""How many ways of going wrong are told of one handling."""


class Broken(Exception):
    """The rows say nothing: they did not run."""


class Proof(NamedTuple):
    """What came of taking one handling out."""

    handling: Handling
    wrong: Mapping[str, str]
    """What was wrong with each of its rows that turned red."""
    trouble: str = ""
    """Why it proves nothing."""

    @property
    def green(self) -> list[str]:
        return [row.name for row in self.handling.covered if row.name not in self.wrong]

    @property
    def holds(self) -> bool:
        return not self.trouble and not self.green

    def __str__(self) -> str:
        seen = Counter(self.wrong.values()).most_common()
        told = [f"{what} ({number} rows)" if number > 1 else what for what, number in seen[:_KINDS]]
        more = [f"{len(seen) - _KINDS} more"] if len(seen) > _KINDS else []
        green = [f"GREEN: {name}" for name in self.green] if not self.trouble else []
        return "; ".join([*filter(None, [self.trouble]), *green, *told, *more])


def wrong_without(edits: Sequence[Edit], names: Sequence[str]) -> dict[str, str]:
    """What is wrong with each of these rows on sources with these edits; nothing of those that are right.

    Raises Broken where the campaign itself, or a run in which nothing goes wrong, is not right any more.
    """
    with copy_without(edits) as copy:
        command = [sys.executable, "-W", "ignore", "-m", rows.__name__, *names]
        environment = {**os.environ, "PYTHONPATH": str(copy)}
        with subprocess.Popen(command, cwd=copy, env=environment, stdout=PIPE, stderr=PIPE, text=True) as process:
            try:
                out, trouble = process.communicate(timeout=SECONDS)
            except BaseException as error:
                process.terminate()  # it stops its server first
                out, trouble = process.communicate()
                if not isinstance(error, subprocess.TimeoutExpired):
                    raise
    seen = {each["row"]: each["wrong"] for each in map(json.loads, out.splitlines())}
    if process.returncode == 1 or seen.pop(rows.CONTROL.name, "it did not run"):
        raise Broken(f"the rows could not run: {(trouble or out).strip()[-500:]}")
    ended = {name: f"its process ended with {process.returncode}" for name in names if name not in seen}
    return {name: wrong for name, wrong in {**seen, **ended}.items() if wrong}


def proof(handling: Handling) -> Proof:
    """Take it out; where it is one of several locks, also all but one, with which nothing may be seen."""
    names = [row.name for row in handling.covered]
    try:
        for kept in handling.removal if handling.many_locks else ():
            if wrong := wrong_without([edit for edit in handling.removal if edit is not kept], names):
                return Proof(handling, wrong, f"with one lock left ({kept.old.strip()[:40]})")
        return Proof(handling, wrong_without(handling.removal, names))
    except (Broken, ValueError) as trouble:
        return Proof(handling, {}, str(trouble))


def main() -> int:
    parser = argparse.ArgumentParser(prog="make handlings", description=__doc__)
    parser.add_argument("names", nargs="*", help="only those handlings whose name holds one of these")
    parser.add_argument("--at-once", type=int, default=2, help="how many are taken out at the same time")
    parser.add_argument("--only-without", action="store_true", help="do not run the rows on whole sources")
    given = parser.parse_args()
    chosen = [each for each in HANDLINGS if not given.names or any(name in each.name for name in given.names)]
    began = time.monotonic()
    covered = {row.name for each in chosen for row in each.covered} if given.names else {row.name for row in TABLE}
    wrong = {} if given.only_without else wrong_without([], sorted(covered))
    for name, what in wrong.items():
        say(f"on whole sources, {name}: {what}")
    proofs = []
    with ThreadPoolExecutor(given.at_once) as several:
        for each in several.map(proof, chosen):
            say(f"without {each.handling.name}: {each}")
            proofs.append(each)
    print("| handling | what it is for | rows | what the campaign saw without it |", "|---|---|---|---|", sep="\n")
    for each in proofs:
        shown = f"{len(each.handling.covered)}: {'; '.join(each.handling.rows)}"
        print(f"| {each.handling.name} | {each.handling.purpose} | {cell(shown)} | {cell(str(each))} |")
    for name, why in {} if given.names else NOTHING_TO_TAKE_OUT.items():
        print(f"| nothing to take out | {why} | 1: {name} | it was not run |")
    failed = len(wrong) + sum(not each.holds for each in proofs)
    minutes = (time.monotonic() - began) / 60
    say(f"{len(chosen)} handlings, {len(covered)} rows, {minutes:.0f} minutes; {failed} not as they should be")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
