"""How a repair goes, as a procedure: run the tests, read, try candidates, edit, prove, ask for approval.

The procedure is a generator that yields turns and is sent what came of them. The model runs it from the
beginning at each call, over what the messages say was done, and so knows where it is without remembering
anything: a resumed run goes on with the same candidate.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from graph.models.search_repair.candidates import Candidate, Edit, Suspicion
from graph.models.search_repair.editing import changed_lines, unique
from graph.models.search_repair.ranking import best_first, trust
from graph.models.search_repair.reading import (
    TestReport,
    Verdict,
    read_candidates,
    read_tests,
    read_verdicts,
    read_window,
)
from graph.models.search_repair.source import Source
from graph.models.search_repair.space import Space, Spaces
from graph.models.search_repair.templates import Failure

BATCH = 50
"""Candidates a call."""
BATCH_CHARACTERS = 20_000
"""Of edits in a call: what a message carries is kept small."""
LIMIT = 4000
"""Candidates in all, before a person is asked."""
ADVISED = 1500
"""Candidates more, after a person has answered."""
LOOK_PAST = 100
"""Candidates that are still tried after the first that passes: the first is often not the best. One that runs out
of time counts as LATE_COST, since it takes about as long."""
LATE_COST = 4
LOOK_PAST_BATCHES = 5
"""A call works for 5 s at most; where tests are slow, that is the end of looking past."""
LOOK_PAST_DOUBTFUL = 300
"""Where the best so far is one that hardly anybody would write."""
DOUBTFUL = 0.15
"""In the unit of `ranking.trust`."""
PAIRS_FROM = 500
"""Candidates; from then on, one batch of three is made of pairs of edits."""
BASES = 30
"""Helpful single edits that pairs are built on."""
RETRY_EVERY = 300
"""Candidates; then those that only ran out of time get a second chance."""
RETRIED = 6
PATIENCE = 8.0
TRIES = 3
"""How often a call is made whose answer can't be read."""
FILES = 6
PAGE = 400
"""Lines; an answer of more than 32 KB would be shortened."""
APPLIED = "The patch was "
"""How the answer of apply_patch_to_repository begins where it was made."""
REJECTED = "rejected this call"
"""What the answer says where a person did not want it made."""


class Call(NamedTuple):
    """A tool call."""

    name: str
    args: dict[str, Any]


class Turn(NamedTuple):
    """What the model says; without calls it waits for somebody to answer."""

    text: str
    calls: tuple[Call, ...] = ()


class Answer(NamedTuple):
    """What came of one call."""

    args: dict[str, Any]
    text: str
    ok: bool


class Reply(NamedTuple):
    """What followed a turn."""

    answers: tuple[Answer, ...]
    heard: tuple[str, ...] = ()
    """What people said after it."""


Steps = Generator[Turn, Reply, Any]

NOT_RUN = TestReport("not run", "", (), Failure(), ())


@dataclass
class Repair:
    """One pursuit of a patch."""

    spaces: Spaces
    report: TestReport = NOT_RUN
    """The tests as they were before anything was changed."""
    sources: dict[str, Source] = field(default_factory=dict)
    verdicts: dict[tuple[Edit, ...], Verdict] = field(default_factory=dict)
    retried: set[tuple[Edit, ...]] = field(default_factory=set)
    refused: set[tuple[Edit, ...]] = field(default_factory=set)
    """Patches that passed, but not in the cold run, or not with the person."""
    limit: int = LIMIT
    advice: tuple[str, ...] = ()
    batches: int = 0
    batches_then: int = 0
    plausible_at: int | None = None
    """What had been spent when the first candidate passed."""

    def steps(self) -> Steps:
        """The whole procedure; it never ends by itself, since somebody may always answer."""
        while True:
            reply = yield Turn((yield from self._pursue()))
            if self.report.outcome not in {"passed", "failed"}:
                self.report = NOT_RUN
            self.advice = (*self.advice, *reply.heard)
            self.limit = max(self.limit, len(self.verdicts)) + ADVISED

    def _pursue(self) -> Generator[Turn, Reply, str]:
        """Until there is nothing more to do without a person; the result says how it stands."""
        if self.report is NOT_RUN:
            self.report = yield from self._run_tests("I run the tests to see what fails.", locate=True)
        if self.report.outcome == "passed":
            return "The tests already pass."
        if self.report.outcome != "failed":
            why = "did not come to an end" if self.report.outcome == "timeout" else "could not be run"
            return f"I found no patch: the tests {why} ({self.report.outcome}: {self.report.summary})."
        if not self.report.suspicions:
            return "I found no patch: the failing tests run no line of the repository's own Python code."
        yield from self._read_suspicious()
        if not self.sources:
            return "I found no patch: none of the suspicious files could be read as Python."
        return (yield from self._repair())

    def _repair(self) -> Generator[Turn, Reply, str]:
        while True:
            winner = yield from self._search()
            if winner is None:
                return self._nothing_found()
            applied = yield from self._apply(winner)
            if applied:
                done = yield from self._prove_and_ask(winner)
                if done:
                    return done
                yield from self._undo(winner)
            self.refused.add(winner.edits)

    # -- looking ---------------------------------------------------------------------------------------------

    def _run_tests(self, text: str, *, locate: bool = False) -> Generator[Turn, Reply, TestReport]:
        """Asked for again where the answer can't be read: a call may have been interrupted."""
        turn = Turn(text, (Call("run_tests", {"locate": True} if locate else {}),))
        for _ in range(TRIES):
            reply = yield turn
            report = read_tests(reply.answers[0].text)
            if report is not None:
                return report
        return TestReport("unreachable", " ".join(reply.answers[0].text.split())[:300], (), Failure(), ())

    def _read_suspicious(self) -> Steps:
        paths = list(dict.fromkeys(each.path for each in self.report.suspicions))[:FILES]
        missing = [path for path in paths if path not in self.sources]
        if not missing:
            return
        names = ", ".join(missing)
        reply = yield Turn(f"I read {names}.", tuple(_read_call(path, 1) for path in missing))
        for path, answer in zip(missing, reply.answers, strict=False):
            text = yield from self._whole(path, answer)
            if text is not None:
                self._keep(path, text)

    def _whole(self, path: str, answer: Answer) -> Generator[Turn, Reply, str | None]:
        """The file's text, asked for page by page where one answer does not hold it."""
        pages: list[str] = []
        size, offset = PAGE, 1
        while True:
            window = read_window(answer.text) if answer.ok else None
            if window is None or (window.shortened and size <= 20):
                return None
            if window.shortened:
                size //= 4
            else:
                pages.append(window.text)
                offset = window.last + 1
                if offset > window.total:
                    return "".join(pages)
            reply = yield Turn(f"I read on in {path}.", (_read_call(path, offset, size),))
            answer = reply.answers[0]

    def _keep(self, path: str, text: str) -> None:
        try:
            self.sources[path] = Source(path, text)
        except (SyntaxError, ValueError, RecursionError):
            return  # nothing that templates could change

    # -- searching -------------------------------------------------------------------------------------------

    @property
    def space(self) -> Space:
        return self.spaces.of(
            self.sources, _advised(self.report.suspicions, self.sources, self.advice), self.report.failure
        )

    def _search(self) -> Generator[Turn, Reply, Candidate | None]:
        """The best patch that passes and that nobody refused, or None when there is nothing left to try."""
        in_vain = 0
        while (batch := self._next_batch()) and in_vain < TRIES:
            reply = yield self._evaluate(batch)
            answer = reply.answers[0]
            in_vain = 0 if self._take_in(answer) or _was_interrupted(answer) else in_vain + 1
        ranked = best_first(self._plausible(), self.sources)
        return ranked[0] if ranked else None

    def _plausible(self) -> list[Candidate]:
        keys = {key for key, verdict in self.verdicts.items() if verdict.word == "plausible"} - self.refused
        return self.space.find(keys, self._bases()) if keys else []

    def _next_batch(self) -> _Batch | None:
        tried = len(self.verdicts)
        plausible = any(
            verdict.word == "plausible" and key not in self.refused for key, verdict in self.verdicts.items()
        )
        if plausible and (self.plausible_at is None or self.refused or self._looked_enough(self.plausible_at)):
            return None
        if tried >= self.limit:
            return None
        if not plausible and (late := self._second_chances()):
            return late
        pairs = tried >= PAIRS_FROM and self.batches % 3 == 2
        for stream in (self._pairs(), self.space.singles()) if pairs else (self.space.singles(), self._pairs()):
            if chosen := self._unseen(stream):
                return _Batch(chosen, 1.0)
        return self._second_chances(everything=True)

    def _looked_enough(self, since: int) -> bool:
        past = self._spent() - since
        if self.batches - self.batches_then >= LOOK_PAST_BATCHES:
            return True
        if past < LOOK_PAST or past >= LOOK_PAST_DOUBTFUL:
            return past >= LOOK_PAST
        best = best_first(self._plausible(), self.sources)
        return not best or trust(best[0], self.sources[best[0].path]) >= DOUBTFUL

    def _spent(self) -> int:
        late = sum(verdict.word == "timeout" for verdict in self.verdicts.values())
        return len(self.verdicts) + (LATE_COST - 1) * late

    def _unseen(self, stream: Iterator[Candidate]) -> list[tuple[Edit, ...]]:
        chosen: dict[tuple[Edit, ...], None] = {}
        size = 0
        for candidate in stream:
            if candidate.edits not in self.verdicts and candidate.edits not in chosen:
                size += sum(len(each.old) + len(each.new) + 60 for each in candidate.edits)
                if chosen and (len(chosen) == BATCH or size > BATCH_CHARACTERS):
                    break
                chosen[candidate.edits] = None
        return list(chosen)

    def _bases(self) -> dict[tuple[Edit, ...], float]:
        """Single edits that made some failing tests pass, the most helpful first, with how much they helped."""
        failed = {key: each for key, each in self.verdicts.items() if each.word == "fails" and each.passed}
        helpful = {key: each.passed / max(1, each.of) for key, each in failed.items()}
        most = max(helpful.values(), default=1.0)
        ranked = sorted(helpful.items(), key=lambda each: -each[1])
        return {key: (share / most) ** 2 for key, share in ranked[:BASES]}

    def _pairs(self) -> Iterator[Candidate]:
        return self.space.pairs(self._bases())

    def _second_chances(self, *, everything: bool = False) -> _Batch | None:
        """Candidates that only ran out of time, those that passed something before first."""
        due = len(self.verdicts) // RETRY_EVERY * RETRIED
        if not everything and len(self.retried) >= due:
            return None
        late = [
            (key, each) for key, each in self.verdicts.items() if each.word == "timeout" and key not in self.retried
        ]
        late.sort(key=lambda each: -each[1].passed)
        most = 30 if everything else due
        chosen = [key for key, _ in late[:RETRIED]] if len(self.retried) < most else []
        return _Batch(chosen, PATIENCE) if chosen else None

    def _evaluate(self, batch: _Batch) -> Turn:
        found = sum(verdict.word == "plausible" for verdict in self.verdicts.values())
        late = " once more, with more time," if batch.patience > 1 else ""
        text = f"I try {len(batch.candidates)} candidates{late} after {len(self.verdicts)}; {found} pass so far."
        args: dict[str, Any] = {
            "candidates": [{"edits": [each._asdict() for each in edits]} for edits in batch.candidates]
        }
        if batch.patience > 1:
            args["patience"] = batch.patience
        return Turn(text, (Call("evaluate_candidates", args),))

    def _take_in(self, answer: Answer) -> bool:
        """Keep the verdicts; False when there were none."""
        self.batches += 1
        given = read_candidates(answer.args)
        patient = float(answer.args.get("patience") or 1) > 1
        verdicts = (
            {index: each for index, each in read_verdicts(answer.text).items() if index < len(given)}
            if answer.ok
            else {}
        )
        for index, verdict in verdicts.items():
            self.verdicts[given[index]] = verdict
            if verdict.word == "plausible" and self.plausible_at is None:
                self.plausible_at, self.batches_then = self._spent(), self.batches
        if patient:
            self.retried.update(given)
        return bool(verdicts)

    # -- changing --------------------------------------------------------------------------------------------

    def _apply(self, winner: Candidate) -> Generator[Turn, Reply, bool]:
        edits = [unique(self.sources[each.path].text, each) for each in winner.edits]
        several = sum(verdict.word == "plausible" for verdict in self.verdicts.values())
        text = f"{several} of {len(self.verdicts)} candidates pass; I take the most trustworthy ({_in_words(winner)})."
        reply = yield Turn(text, tuple(_edit_call(edit.path, edit.old, edit.new) for edit in edits))
        if all(answer.ok for answer in reply.answers):
            return True
        done = [edit for edit, answer in zip(edits, reply.answers, strict=False) if answer.ok]
        if done:
            yield Turn("An edit was refused; I take the others back.", _reverse(done))
        return False

    def _prove_and_ask(self, winner: Candidate) -> Generator[Turn, Reply, str | None]:
        """None when the patch does not hold: the tests fail in a cold run, or the person refused it.

        That it could not be applied (a full disk, nobody answered) says nothing against it.
        """
        report = yield from self._run_tests("I run the tests again with the edit.")
        if report.outcome != "passed":
            return None
        call = Call("apply_patch_to_repository", {"summary": self._summary(winner)})
        text = "The tests pass with the edit; a person decides."
        for _ in range(TRIES):
            reply = yield Turn(text, (call,))
            answer = reply.answers[0]
            if answer.ok and answer.text.startswith(APPLIED):
                return f"The patch is applied: {self._summary(winner)}"
            if answer.ok or REJECTED in answer.text:
                return None  # rejected, or answered by a person in the tool's place
            text = "The patch is good and could not be applied; I ask once more."
        return None

    def _undo(self, winner: Candidate) -> Steps:
        edits = [unique(self.sources[each.path].text, each) for each in winner.edits]
        yield Turn("I take the edit back.", _reverse(edits))

    def _summary(self, winner: Candidate) -> str:
        places = ", ".join(f"{each.path}:{each.line}" for each in winner.edits)
        first = winner.edits[0]
        old, new = changed_lines(first)
        return f"{places}: `{old}` becomes `{new}` ({_in_words(winner)}; found by search)"

    def _nothing_found(self) -> str:
        words = [verdict.word for verdict in self.verdicts.values()]
        passed = sum(key in self.refused for key, verdict in self.verdicts.items() if verdict.word == "plausible")
        rejected = f" {passed} that passed were refused." if passed else ""
        files = ", ".join(self.sources)
        return (
            f"I found no patch among {len(words)} candidates in {files}:{rejected} {words.count('fails')} failed the"
            f" tests, {words.count('timeout')} ran out of time, {words.count('invalid')} were no valid code."
            " I search by changing the suspicious lines step by step; a defect that needs new code is beyond that."
        )


class _Batch(NamedTuple):
    candidates: list[tuple[Edit, ...]]
    patience: float


def _was_interrupted(answer: Answer) -> bool:
    """The attempt was killed meanwhile; that says nothing about the call."""
    return not answer.ok and "interrupted" in answer.text[:200]


def _read_call(path: str, offset: int, limit: int = PAGE) -> Call:
    return Call("read_file", {"path": path, "offset": offset, "limit": limit})


def _edit_call(path: str, old: str, new: str) -> Call:
    return Call("edit_file", {"path": path, "old": old, "new": new})


def _reverse(edits: Sequence[Edit]) -> tuple[Call, ...]:
    return tuple(_edit_call(each.path, each.new, each.old) for each in reversed(edits))


def _in_words(candidate: Candidate) -> str:
    return candidate.template.replace("_", " ")


def _advised(
    suspicions: Sequence[Suspicion], sources: dict[str, Source], advice: Sequence[str]
) -> tuple[Suspicion, ...]:
    """A line with a name that a person's advice mentions is more suspicious."""
    words = {word for text in advice for word in re.findall(r"\w{3,}", text)}
    found = []
    for each in suspicions:
        source = sources.get(each.path)
        line = source.line_text(each.line) if source is not None else ""
        named = words & set(re.findall(r"\w{3,}", line)) or f"{each.path}:{each.line}" in " ".join(advice)
        found.append(each._replace(score=each.score * 1.5) if named else each)
    return tuple(found)
