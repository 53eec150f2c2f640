"""The same scripts against LangChain's `create_agent` with its retry, fallback and limit middleware."""

from __future__ import annotations

import asyncio
import json
import random
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, ConfigDict

from scripts.bench.crash.peers.environment import environment
from scripts.bench.faults.endpoint import Answer, endpoint, saying
from scripts.bench.faults.errand import letters
from scripts.bench.faults.table import DEEPEST, DONE, POST, TABLE, Row, before
from state.settings import Settings

REQUIREMENTS: Final = ("langchain==1.5.2", "langchain-openai==1.7.4")
PROGRAM: Final = Path(__file__).parent / "programs" / "on_langchain.py"
MOST_CALLS: Final = 60
_SECONDS: Final = 60.0


class PeerRun(BaseModel):
    """What came of one row."""

    model_config = ConfigDict(frozen=True)

    row: str
    group: str
    expected: str
    end: str
    """It returned, raised, or hung."""
    letters: int
    calls_after_a_limit: int
    ran: list[str]
    """Tools that must not have run."""

    @property
    def quiet(self) -> bool:
        """It returned as an agent does that is done, and the letter is not there."""
        return self.end == "returned" and self.letters == 0

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
    """The peer's side of the table; it has no database, so those rows are left out."""

    model_config = ConfigDict(frozen=True)

    peer: str
    groups: list[PeerGroup]
    not_right: list[str]
    """Each row that did not end as DevFix's table says, and how it ended."""


class _Program:
    """The peer's process: one line a run."""

    def __init__(self, python: Path) -> None:
        self._python = python
        self._process: asyncio.subprocess.Process | None = None

    async def run(self, given: dict[str, Any]) -> dict[str, Any]:
        """A process that ended by itself, or says nothing, is replaced."""
        process = await self._running()
        assert process.stdin is not None  # noqa: S101 - it is a pipe
        assert process.stdout is not None  # noqa: S101
        process.stdin.write(json.dumps(given).encode() + b"\n")
        try:
            async with asyncio.timeout(_SECONDS):
                line = await process.stdout.readline()
        except TimeoutError:
            line = b""
        if not line:
            await self.close()
            return {"end": "hangs", "ran": []}
        found: dict[str, Any] = json.loads(line)
        return found

    async def _running(self) -> asyncio.subprocess.Process:
        if self._process is None or self._process.returncode is not None:
            self._process = await asyncio.create_subprocess_exec(
                str(self._python),
                str(PROGRAM),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
            )
        return self._process

    async def close(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()


async def measure_peer(settings: Settings, rows: Sequence[Row] = TABLE, *, tell: Callable[[str], None]) -> PeerFigures:
    """Each row once. Raises DevfixError where its environment can't be made."""
    python = await asyncio.to_thread(environment, settings.home / "peers", REQUIREMENTS) / "python"
    program, runs = _Program(python), list[PeerRun]()
    try:
        with tempfile.TemporaryDirectory(prefix="devfix-bench-") as folder:
            for row in rows:
                if row.group != "database":
                    runs.append(await _one(program, row, Path(folder) / f"{len(runs)}"))
                    tell(f"create_agent: {row.group}: {row.name}: {runs[-1].end}, {runs[-1].letters} letters")
    finally:
        await program.close()
    groups = list(dict.fromkeys(each.group for each in runs))
    return PeerFigures(
        peer=" ".join(REQUIREMENTS),
        not_right=[f"{each.group}: {each.row}: {each.end}, {each.letters} letters" for each in runs if not each.right],
        groups=[_group(name, [each for each in runs if each.group == name]) for name in groups],
    )


async def _one(program: _Program, row: Row, sink: Path) -> PeerRun:
    place = random.Random(f"{row.name} 0").randrange(DEEPEST + 1)  # noqa: S311 - as the campaign's first seed
    most = place + (row.asks or MOST_CALLS) if row.group == "budget" else MOST_CALLS
    says, other = script(row, [*row.script(before(place))]), script(row, row.second)
    async with endpoint(*says) as first, endpoint(*other) as second:
        urls = [first.url, *([second.url] if row.second else [])]
        found = await program.run({"urls": urls, "sink": str(sink), "calls": most})
        asked = len(first.requests) - place
    bye = 1
    after = max(0, asked - (row.asks or MOST_CALLS) - bye)
    if row.second_asks is not None:
        after += max(0, len(second.requests) - row.second_asks - bye)
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
    """`create_agent` asks until its model wants nothing more, where DevFix ends on its evidence."""
    ends = not answers or row.ends == DONE or answers[-1] == POST
    return [*answers, saying(content="It is posted.")] if ends else [*answers]


_COLUMNS: Final = ("group", "rows", "right", "quiet", "hung", "calls_after_a_limit", "doubled", "ran")


def peer_table(figures: PeerFigures) -> str:
    """In Markdown, with what its columns count."""
    rows = [[name.replace("_", " ") for name in _COLUMNS], ["---"] * len(_COLUMNS)]
    rows += [[str(getattr(each, name)) for name in _COLUMNS] for each in figures.groups]
    lines = [f"| {' | '.join(row)} |" for row in rows]
    said = "quiet: it returned, and there is no letter; doubled: more letters than one; ran: a tool that must not"
    return "\n".join(
        [f"create_agent ({figures.peer}), with retry, fallback and limit middleware:", "", *lines, "", said]
    )


def _group(name: str, runs: Sequence[PeerRun]) -> PeerGroup:
    return PeerGroup(
        group=name,
        rows=len(runs),
        right=sum(each.right for each in runs),
        quiet=sum(each.quiet for each in runs),
        hung=sum(each.end == "hangs" for each in runs),
        calls_after_a_limit=sum(each.calls_after_a_limit for each in runs),
        doubled=sum(each.doubled for each in runs),
        ran=sum(bool(each.ran) for each in runs),
    )
