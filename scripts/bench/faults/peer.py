"""The same scripts against other frameworks, each told as its documentation says and installed apart."""

from __future__ import annotations

import asyncio
import json
import random
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from pydantic import BaseModel, ConfigDict

from scripts.bench.crash.peers.environment import environment
from scripts.bench.faults.endpoint import Answer, endpoint, saying
from scripts.bench.faults.errand import letters
from scripts.bench.faults.table import DEEPEST, DONE, POST, Row, before
from state.settings import Settings

PROGRAMS: Final = Path(__file__).parent / "programs"
MOST_CALLS: Final = 60
_BYE: Final = 1
"""What a peer asks more than DevFix, for its last word."""
_SECONDS: Final = 60.0
"""Past a program's own limit of a run: it is held up as a whole."""


class System(NamedTuple):
    """One framework: what is installed for it, and the program that does the errand with it."""

    name: str
    requirements: tuple[str, ...]
    program: str
    checks: bool = False
    """Its last word is taken only where the letter is there, by code of one's own."""

    @property
    def label(self) -> str:
        return f"{self.name}, looking itself" if self.checks else self.name


_LANGCHAIN: Final = System("create_agent", ("langchain==1.5.2", "langchain-openai==1.7.4"), "on_langchain.py")
_PYDANTIC_AI: Final = System("pydantic-ai", ("pydantic-ai-slim[openai]==2.68.0",), "on_pydantic_ai.py")
SYSTEMS: Final = tuple(each._replace(checks=checks) for checks in (False, True) for each in (_LANGCHAIN, _PYDANTIC_AI))


class PeerRun(BaseModel):
    """What came of one row."""

    model_config = ConfigDict(frozen=True)

    row: str
    group: str
    expected: str
    end: str
    """It returned, raised, hangs, or ended its process."""
    letters: int
    calls_after_a_limit: int
    ran: list[str]
    """Tools that must not have run."""

    @property
    def quiet(self) -> bool:
        """It returned as an agent does that is done, and the letter is not there."""
        return self.end == "returned" and self.letters == 0

    @property
    def hung(self) -> bool:
        return self.end in {"hangs", "ended its process"}

    @property
    def doubled(self) -> bool:
        return self.letters > 1

    @property
    def right(self) -> bool:
        """It returns with one letter where the table says completed; else it raises, and nothing is posted."""
        if self.expected.startswith("completed"):
            as_expected = self.end == "returned" and self.letters == 1
        else:
            as_expected = self.end.startswith("raised") and self.letters == 0
        return as_expected and not self.calls_after_a_limit and not self.ran


class PeerGroup(BaseModel):
    """One group of rows."""

    model_config = ConfigDict(frozen=True)

    group: str
    rows: int
    right: int
    quiet: int
    hung: int
    calls_after_a_limit: int
    doubled: int
    ran: int
    """Rows in which a tool ran that must not."""


class PeerFigures(BaseModel):
    """One system's side of the table; a peer has no database, so those rows are left out."""

    model_config = ConfigDict(frozen=True)

    system: str
    installed: str = ""
    groups: list[PeerGroup]
    not_right: list[str] = []
    """Each row that did not end as DevFix's table says, and how it ended."""


class _Program:
    """A peer's process: one line a run."""

    def __init__(self, python: Path, program: Path) -> None:
        self._command = (str(python), str(program))
        self._process: asyncio.subprocess.Process | None = None

    async def run(self, given: dict[str, Any]) -> dict[str, Any]:
        """A process that ended by itself, or says nothing, is replaced."""
        process = await self._running()
        assert process.stdin is not None  # noqa: S101 - it is a pipe
        assert process.stdout is not None  # noqa: S101
        process.stdin.write(json.dumps(given).encode() + b"\n")
        silent = "hangs"
        try:
            async with asyncio.timeout(_SECONDS):
                line = await process.stdout.readline()
                silent = "ended its process"
        except TimeoutError:
            line = b""
        if not line:
            await self.close()
            return {"end": silent, "ran": []}
        found: dict[str, Any] = json.loads(line)
        return found

    async def _running(self) -> asyncio.subprocess.Process:
        if self._process is None or self._process.returncode is not None:
            self._process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
            )
        return self._process

    async def close(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()


async def installed(settings: Settings) -> list[Path]:
    """The interpreter of each of `SYSTEMS`, in an environment below DEVFIX_HOME. Raises DevfixError where one can't be
    made."""
    cache = settings.home / "peers"
    return [await asyncio.to_thread(environment, cache, each.requirements) / "python" for each in SYSTEMS]


async def measure_peers(
    interpreters: Sequence[Path], rows: Sequence[Row], *, tell: Callable[[str], None]
) -> list[PeerFigures]:
    """Each row once with each of `SYSTEMS`, but those of the database."""
    theirs = [row for row in rows if row.group != "database"]
    return [await _measured(system, python, theirs, tell) for system, python in zip(SYSTEMS, interpreters, strict=True)]


async def _measured(system: System, python: Path, rows: Sequence[Row], tell: Callable[[str], None]) -> PeerFigures:
    program, runs = _Program(python, PROGRAMS / system.program), list[PeerRun]()
    try:
        with tempfile.TemporaryDirectory(prefix="devfix-bench-") as folder:
            for row in rows:
                runs.append(await _one(program, system, row, Path(folder) / f"{len(runs)}"))
                tell(f"{system.label}: {row.group}: {row.name}: {runs[-1].end}, {runs[-1].letters} letters")
    finally:
        await program.close()
    return peer_figures(system.label, runs, [each.right for each in runs], installed=" ".join(system.requirements))


async def _one(program: _Program, system: System, row: Row, sink: Path) -> PeerRun:
    place = random.Random(f"{row.name} 0").randrange(DEEPEST + 1)  # noqa: S311 - as the campaign's first seed
    most = place + (row.asks or MOST_CALLS) if row.group == "budget" else MOST_CALLS
    says, other = script(row, row.script(before(place))), script(row, row.second)
    async with endpoint(*says) as first, endpoint(*other) as second:
        urls = [first.url, *([second.url] if row.second else [])]
        given = {"urls": urls, "sink": str(sink), "calls": most, "limits": row.given(place), "checks": system.checks}
        found = await program.run(given)
        asked = len(first.requests) - place
    most_asked = row.asks or MOST_CALLS
    after = max(0, asked - most_asked - (most_asked if row.second else _BYE))
    if row.second_asks is not None:
        after += max(0, len(second.requests) - row.second_asks - _BYE)
    counts = {name: found["ran"].count(name) - (place if name == "look" else 0) for name in row.never}
    return PeerRun(
        row=row.name,
        group=row.group,
        expected=row.ends,
        end=found["end"],
        letters=len(letters(sink)),
        calls_after_a_limit=after,
        ran=[name for name, count in counts.items() if count > 0],
    )


def script(row: Row, answers: Sequence[Answer]) -> list[Answer]:
    """A peer asks until its model wants nothing more, where DevFix ends on its evidence. A first model that fails for
    ever does so at that turn too, and is asked as often as before."""
    ends = not answers or answers[-1] == POST or (row.ends == DONE and not row.second)
    return [*answers, saying(content="It is posted.")] if ends else [*answers]


# -- the table --------------------------------------------------------------------------------------------------------

_COLUMNS: Final = ("rows", "right", "quiet", "hung", "calls_after_a_limit", "doubled", "ran")
_SAID: Final = (
    "quiet: it returned, and there is no letter; hung: it never ended, or its process did; calls after a limit: more "
    "than the table allows; doubled: more letters than one; ran: a tool that must not; looking itself: a last word is "
    "taken only where code of one's own finds the letter"
)


def peer_figures(system: str, runs: Sequence[PeerRun], right: Sequence[bool], installed: str = "") -> PeerFigures:
    """Of a system's runs, of which these are right."""
    judged = list(zip(runs, right, strict=True))
    names = dict.fromkeys(each.group for each in runs)
    return PeerFigures(
        system=system,
        installed=installed,
        groups=[_group(name, [each for each in judged if each[0].group == name]) for name in names],
        not_right=[f"{each.group}: {each.row}: {each.end}, {each.letters} letters" for each, ok in judged if not ok],
    )


def peer_table(figures: Sequence[PeerFigures]) -> str:
    """In Markdown, the systems side by side in each group, with what the columns count."""
    names = dict.fromkeys(group.group for each in figures for group in each.groups)
    rows = [["group", "system", *(name.replace("_", " ") for name in _COLUMNS)], ["---"] * (len(_COLUMNS) + 2)]
    rows += [
        [name, each.system, *(str(getattr(group, column)) for column in _COLUMNS)]
        for name in names
        for each in figures
        for group in each.groups
        if group.group == name
    ]
    installed = ", ".join(dict.fromkeys(each.installed for each in figures if each.installed))
    return "\n".join([f"With {installed}:", "", *(f"| {' | '.join(row)} |" for row in rows), "", _SAID])


def _group(name: str, judged: Sequence[tuple[PeerRun, bool]]) -> PeerGroup:
    runs = [run for run, _ in judged]
    return PeerGroup(
        group=name,
        rows=len(runs),
        right=sum(right for _, right in judged),
        quiet=sum(each.quiet for each in runs),
        hung=sum(each.hung for each in runs),
        calls_after_a_limit=sum(each.calls_after_a_limit for each in runs),
        doubled=sum(each.doubled for each in runs),
        ran=sum(bool(each.ran) for each in runs),
    )
