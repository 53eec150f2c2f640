"""The space that is searched, made piece by piece and kept as long as the process lives: a pure cache."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterator, Mapping, Sequence

from graph.models.search_repair.candidates import Candidate, Edit, Suspicion, candidates, pairs
from graph.models.search_repair.source import Source
from graph.models.search_repair.templates import Failure

_PAIRS_PER_BASE = 500


class Lazy:
    """A sequence that is made as far as it is read, and read as often as one likes."""

    def __init__(self, source: Iterator[Candidate]) -> None:
        self._source = source
        self._made: list[Candidate] = []

    def __iter__(self) -> Iterator[Candidate]:
        index = 0
        while True:
            if index == len(self._made):
                following = next(self._source, None)
                if following is None:
                    return
                self._made.append(following)
            yield self._made[index]
            index += 1


class Space:
    """All candidates for one state of the files and one way of failing."""

    def __init__(self, sources: Mapping[str, Source], suspicions: Sequence[Suspicion], failure: Failure) -> None:
        self._sources = dict(sources)
        self._suspicions = tuple(suspicions)
        self._failure = failure
        self._singles = Lazy(candidates(self._sources, self._suspicions, failure))
        self._pairs: dict[tuple[Edit, ...], Lazy] = {}

    def singles(self) -> Iterator[Candidate]:
        return iter(self._singles)

    def pairs(self, bases: Mapping[tuple[Edit, ...], float]) -> Iterator[Candidate]:
        """Second changes on top of each base; `bases` says how much each one has helped."""
        found = self.find(set(bases), {})
        ranked = [_damped(self._on_top_of(base), bases[base.edits] * 0.97**place) for place, base in enumerate(found)]
        return (candidate for _, candidate in heapq.merge(*ranked, key=lambda each: -each[0]))

    def find(self, keys: Collection[tuple[Edit, ...]], bases: Mapping[tuple[Edit, ...], float]) -> list[Candidate]:
        """The candidates with these edits, in the order of the search; what this space does not hold is left out."""
        wanted = set(keys)
        found: list[Candidate] = []
        for stream in (self._singles, *(self._pairs[base] for base in bases if base in self._pairs)):
            for candidate in stream:
                if not wanted:
                    return found
                if candidate.edits in wanted:
                    wanted.discard(candidate.edits)
                    found.append(candidate)
        if wanted and bases and not set(bases) <= set(self._pairs):
            found += [each for each in self.pairs(bases) if each.edits in wanted]
        return found

    def _on_top_of(self, base: Candidate) -> Iterator[Candidate]:
        if base.edits not in self._pairs:
            made = pairs(base, self._sources, self._suspicions, self._failure)
            self._pairs[base.edits] = Lazy(each for each, _ in zip(made, range(_PAIRS_PER_BASE), strict=False))
        return iter(self._pairs[base.edits])


def _damped(stream: Iterator[Candidate], factor: float) -> Iterator[tuple[float, Candidate]]:
    return ((candidate.priority * factor, candidate) for candidate in stream)


class Spaces:
    """The spaces of this process, the last few; the same question always has the same answer."""

    def __init__(self, *, most: int = 4) -> None:
        self._most = most
        self._spaces: dict[tuple[object, ...], Space] = {}

    def of(self, sources: Mapping[str, Source], suspicions: Sequence[Suspicion], failure: Failure) -> Space:
        key = (tuple((path, source.text) for path, source in sources.items()), tuple(suspicions), failure)
        if key not in self._spaces:
            while len(self._spaces) >= self._most:
                del self._spaces[next(iter(self._spaces))]
            self._spaces[key] = Space(sources, suspicions, failure)
        return self._spaces[key]
