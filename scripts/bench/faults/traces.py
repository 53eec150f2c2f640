"""Stories of runs, generated: some that go in circles, and long honest searches; and how many of them are told so."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

from pydantic import BaseModel, ConfigDict

from graph.progress import REPEATS, standstill

Records = list[dict[str, Any]]
NOISES = 5


class Story:
    """The records of a run, turn by turn."""

    def __init__(self) -> None:
        self.records: Records = []
        self.files = "s0"
        self._number = 0

    def turn(self, asked: str, came: str, *, tool: str = "look", files: str | None = None) -> None:
        """One call with its result; `files` is what the files are from then on."""
        self._number += 1
        call = {"id": f"c{self._number}", "name": tool, "args": {"what": asked}}
        self.records.append({"type": "ai", "id": f"m{self._number}", "tool_calls": [call]})
        result = {"type": "tool", "id": f"r{self._number}", "tool_call_id": call["id"], "content": came}
        self.records.append({**result, "artifact": {"snapshot": self.files}})
        self.files = files or self.files

    def word(self, identifier: str) -> None:
        self.records.append({"type": "human", "id": identifier, "content": "a word"})

    def chat(self, text: str) -> None:
        self.records.append({"type": "ai", "id": f"t{len(self.records)}", "content": text, "tool_calls": []})
        self.word(f"nudge-{len(self.records)}")

    @property
    def stuck(self) -> str | None:
        return standstill(self.records, snapshot=self.files)

    def stuck_on_the_way(self) -> Iterator[str | None]:
        """The same after each of its turns."""
        for place in range(1, len(self.records) + 1):
            if self.records[place - 1]["type"] == "tool":
                later = (each for each in self.records[place:] if each["type"] == "tool")
                after = next(later, None)
                files = after["artifact"]["snapshot"] if after else self.files
                yield standstill(self.records[:place], snapshot=files)


def noise(chance: random.Random, kind: int) -> str:
    """What differs each time in the results of one kind of tool."""
    return [
        "",
        f" in {chance.uniform(0.01, 9):.2f}s",
        f" at 2026-11-30 {chance.randrange(24):02}:{chance.randrange(60):02}:{chance.randrange(60):02}",
        f" <object at 0x{chance.getrandbits(40):x}>",
        f" (/tmp/run-{chance.getrandbits(24):x}/file.py)",
    ][kind]


def looping(chance: random.Random) -> tuple[Story, Callable[[], None]]:
    """A run that did something honest first, and one round of the circle that it then goes."""
    story = Story()
    for number in range(chance.randrange(12)):
        story.turn(f"part {number}", f"content {number}")
    kind = chance.choice(["reads", "edits", "tests", "chatter"])
    period, differs = chance.randrange(1, 5), chance.randrange(NOISES)
    begun = story.files

    def round_() -> None:
        for place in range(period):
            if kind == "chatter" and place == 0:
                story.chat(f"Now I am sure that it is done. {chance.random()}")
            if kind == "edits" and period > 1 and place < 2:
                story.turn(f"edit {place}", "done", tool="edit_file", files="other" if place == 0 else begun)
            elif kind == "tests" and place == 0:
                story.turn("", f"3 failed, 5 passed{noise(chance, differs)}", tool="run_tests")
            else:
                story.turn(f"place {place}", f"the same text{noise(chance, differs)}")

    return story, round_


def honest(chance: random.Random) -> Story:
    """A long search: reads, edits with tests after each, reverts, polls, second looks at what was seen before."""
    story = Story()
    seen: list[tuple[str, str]] = []
    edits = 0
    for number in range(chance.randrange(20, 90)):
        match chance.choices(["read", "page", "edit", "again", "poll", "revert"], [6, 2, 5, 2, 1, 1])[0]:
            case "read":
                seen.append((f"file {number}", f"content {number}"))
                story.turn(*seen[-1])
            case "page":
                story.turn(f"log from line {number * 100}", chance.choice(["nothing here", f"line {number}"]))
            case "edit":
                edits += 1
                story.turn(f"edit {edits}", "done", tool="edit_file", files=f"e{edits}")
                story.turn("", f"{chance.randrange(1, 4)} failed{noise(chance, 1)}", tool="run_tests")
            case "again" if seen:
                story.turn(*seen.pop(chance.randrange(len(seen))))
            case "poll":
                for done in range(0, 100, 25):
                    story.turn(f"job {number}", f"{done} % done", tool="poll")
            case "revert":
                story.turn(f"back from {edits}", "done", tool="edit_file", files="s0")
    return story


class TraceFigures(BaseModel):
    """Targets: of 100 circles at least 95 are seen within three rounds, of 100 honest searches at most 1 is told."""

    model_config = ConfigDict(frozen=True)

    loops: int
    loops_seen: int
    """Within so many rounds as count as a circle."""
    honest: int
    told_off: int

    @property
    def whole(self) -> bool:
        return self.loops_seen >= 0.95 * self.loops and self.told_off <= 0.01 * self.honest

    def __str__(self) -> str:
        return (
            f"no progress: {self.loops_seen} of {self.loops} generated circles seen within {REPEATS} rounds; "
            f"{self.told_off} of {self.honest} honest searches told off"
        )


def seen_in_time(chance: random.Random) -> bool:
    """Whether a generated circle is seen within three rounds, whatever came before and differs between them."""
    story, round_ = looping(chance)
    for _ in range(REPEATS):
        round_()
        if story.stuck is not None:
            return True
    return False


def trace_figures(*, loops: int = 200, honest_ones: int = 500) -> TraceFigures:
    """The same stories each time."""
    chances = (random.Random(seed) for seed in range(loops))  # noqa: S311 - repeatable on purpose
    searches = (honest(random.Random(10_000 + seed)) for seed in range(honest_ones))  # noqa: S311
    return TraceFigures(
        loops=loops,
        loops_seen=sum(map(seen_in_time, chances)),
        honest=honest_ones,
        told_off=sum(any(story.stuck_on_the_way()) for story in searches),
    )
