"""All candidates for the suspicious lines, the most promising first, made one by one as they are asked for."""

from __future__ import annotations

import ast
import difflib
import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from graph.models.search_repair.source import Change, Function, Source, first_line, names_in
from graph.models.search_repair.templates import TEMPLATES, Failure, Site, Template, Variant


class Edit(NamedTuple):
    """Exchange whole lines of a file; what the tools take."""

    path: str
    line: int
    old: str
    new: str


class Suspicion(NamedTuple):
    """A line, and how much the failing tests point at it, 0 to 1."""

    path: str
    line: int
    score: float


@dataclass(frozen=True)
class Candidate:
    """One patch to try."""

    edits: tuple[Edit, ...]
    template: str
    likely: float
    """The template's prior and how well it fits, without the place."""
    priority: float
    path: str
    text: str
    """The whole file, changed."""


_ERRORS: dict[str, dict[str, float]] = {
    "Timeout": {"loop": 2.0, "insert": 1.6, "comparison": 1.2, "operator": 1.2, "condition": 1.1, "guard": 1.3},
    "RecursionError": {"guard": 1.8, "insert": 1.5, "argument": 1.5, "slice": 1.4, "offbyone": 1.4, "comparison": 1.2},
    "IndexError": {"offbyone": 1.5, "slice": 1.4, "range": 1.5, "index": 1.4, "comparison": 1.4, "guard": 1.6},
    "KeyError": {"lookup": 2.0, "guard": 1.4, "index": 1.4, "name": 1.2},
    "AttributeError": {"guard": 1.8, "attribute": 1.6, "call": 1.3, "name": 1.3, "return": 1.3},
    "TypeError": {"wrap": 1.4, "argument": 1.5, "name": 1.4, "call": 1.3, "return": 1.4, "guard": 1.2},
    "NameError": {"name": 2.0},
    "UnboundLocalError": {"name": 2.0, "insert": 1.4, "move": 1.4},
    "ZeroDivisionError": {"guard": 1.8, "comparison": 1.2},
    "ValueError": {"guard": 1.3, "argument": 1.2, "wrap": 1.2},
}
"""By the type of the error: whole families are more likely. (IndexError: a bound. Timeout: a loop's condition or
its progress. None has no attribute: a guard. An unknown name: a name.)"""

_MODULE_LEVEL = 0.4
_SIGNATURE = 0.6


def candidates(sources: Mapping[str, Source], suspicions: Sequence[Suspicion], failure: Failure) -> Iterator[Candidate]:
    """Each candidate once; two that mean the same to Python count as one."""
    functions = {name: each for source in sources.values() for name, each in source.module_functions.items()}
    raw: list[tuple[float, int, Source, Template, ast.AST, Variant]] = []
    for source in sources.values():
        scores = _Scores(source, [each for each in suspicions if each.path == source.path])
        for node in ast.walk(source.tree):
            score = scores.of(node)
            for template in TEMPLATES if score else ():
                if isinstance(node, template.nodes):
                    factor = score * score * template.prior * _factor(template.family, failure)
                    for variant in template.apply(
                        Site(source=source, node=node, failure=failure, functions=functions), node
                    ):
                        raw.append((-factor * variant.weight, len(raw), source, template, node, variant))
    heapq.heapify(raw)
    seen: set[tuple[str, int, int]] = set()
    while raw:
        priority, _, source, template, node, variant = heapq.heappop(raw)
        if _is_new(source, node, variant, seen):
            likely = template.prior * variant.weight * _factor(template.family, failure)
            yield Candidate(
                edits_of(source, variant.changes),
                template.name,
                likely,
                -priority,
                source.path,
                source.apply(variant.changes),
            )


def _factor(family: str, failure: Failure) -> float:
    return max([_ERRORS.get(error, {}).get(family, 1.0) for error in failure.errors] or [1.0])


class _Scores:
    """How suspicious each node of a file is."""

    def __init__(self, source: Source, suspicions: list[Suspicion]) -> None:
        self._source = source
        self._lines: dict[int, float] = {each.line: each.score for each in suspicions}
        self._functions: dict[ast.AST, float] = {}
        self._names: dict[str, float] = {}
        for node in ast.walk(source.tree):
            score = self._lines.get(getattr(node, "lineno", 0), 0.0)
            if score and isinstance(node, ast.stmt):
                for name in names_in(node):
                    self._names[name] = max(score, self._names.get(name, 0.0))
                for function in source.functions(node):
                    self._functions[function] = max(score, self._functions.get(function, 0.0))

    def of(self, node: ast.AST) -> float:
        if isinstance(node, ast.Module):
            return max(self._lines.values(), default=0.0)
        if isinstance(node, Function):
            return max(self._functions.get(node, 0.0), self._lines.get(node.lineno, 0.0))
        if isinstance(node, ast.arguments):
            owner = self._source.parent(node)
            return _SIGNATURE * self._functions.get(owner, 0.0) if owner is not None else 0.0
        statement = self._source.statement(node)
        if statement is None:
            return 0.0
        own = self._lines.get(getattr(node, "lineno", 0)) or self._lines.get(statement.lineno, 0.0)
        if not own and isinstance(node, ast.stmt | ast.ExceptHandler):
            own = self._before(node)
        if not own and isinstance(statement, Function) and isinstance(self._source.parent(node), ast.arguments):
            own = _SIGNATURE * self._functions.get(statement, 0.0)  # a default
        return own or self._definition(statement)

    def _before(self, node: ast.AST) -> float:
        """A statement that no test reached, right after one that they reached: why did they not?"""
        if not isinstance(node, ast.stmt):
            return 0.0
        place = self._source.places.get(node)
        if place is None or not place.position:
            return 0.0
        return 0.5 * self._lines.get(place.block[place.position - 1].lineno, 0.0)

    def _definition(self, statement: ast.stmt) -> float:
        """A module's constant is as suspicious as the lines that use it, but less."""
        if self._source.function(statement) is not None or not isinstance(statement, ast.Assign | ast.AnnAssign):
            return 0.0
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        used = [self._names.get(name, 0.0) for target in targets for name in names_in(target)]
        used += [self._names.get("self", 0.0)] if self._source.enclosing_class(statement) is not None else []
        return _MODULE_LEVEL * max(used, default=0.0)


def _is_new(source: Source, node: ast.AST, variant: Variant, seen: set[tuple[str, int, int]]) -> bool:
    unit = source.unit(node)
    start, end = _unit_span(source, unit, variant.changes)
    if not any(where == start for _, where, _ in seen):
        seen.add((source.path, start, _meaning(source.text[start:end]) or 0))
    shifted = sorted(
        (Change(each.start - start, each.end - start, each.text) for each in variant.changes), reverse=True
    )
    text = source.text[start:end]
    for change in shifted:
        text = text[: change.start] + change.text + text[change.end :]
    meaning = _meaning(text)
    if meaning is None or (source.path, start, meaning) in seen:
        return False
    seen.add((source.path, start, meaning))
    return True


def _unit_span(source: Source, unit: ast.stmt | None, changes: tuple[Change, ...]) -> tuple[int, int]:
    if unit is not None:
        start = source.line_start(first_line(unit))
        end = source.line_start((unit.end_lineno or unit.lineno) + 1)
        if all(start <= each.start and each.end <= end for each in changes):
            return start, end
    return 0, len(source.text)


def _meaning(text: str) -> int | None:
    """The same number for the same syntax tree; None for text that is no Python."""
    try:
        tree = ast.parse("if 1:\n" + text if text[:1] in " \t" else text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return hash(ast.dump(tree))


def edits_of(source: Source, changes: tuple[Change, ...]) -> tuple[Edit, ...]:
    """The changes as whole lines, those that touch the same lines together."""
    groups: list[tuple[int, int, list[Change]]] = []
    for change in sorted(changes):
        first, last = _lines_around(source, change)
        if groups and first <= groups[-1][1]:
            groups[-1] = (groups[-1][0], max(last, groups[-1][1]), [*groups[-1][2], change])
        else:
            groups.append((first, last, [change]))
    return tuple(_edit(source, *group) for group in groups)


def _lines_around(source: Source, change: Change) -> tuple[int, int]:
    """The lines that a change touches, and where it takes or adds whole lines, the line that follows."""
    first, last = source.line_of(change.start), source.line_of(change.end)
    if source.line_start(last) == len(source.text) and last > 1:
        first, last = min(first, last - 1), last - 1
        if change.start <= source.line_start(first) and first > 1 and change.end > change.start:
            first -= 1
    return first, last


def _edit(source: Source, first: int, last: int, changes: list[Change]) -> Edit:
    start, end = source.line_start(first), source.line_start(last + 1)
    old = new = source.text[start:end]
    for change in sorted(changes, reverse=True):
        new = new[: change.start - start] + change.text + new[change.end - start :]
    for ending in ("\r\n", "\n"):
        if old.endswith(ending) and new.endswith(ending):
            old, new = old.removesuffix(ending), new.removesuffix(ending)
            break
    return Edit(source.path, first, old, new)


def edits_between(path: str, old: str, new: str) -> tuple[Edit, ...]:
    """What leads from one text to another, as whole lines; each edit keeps a line to hold on to."""
    before, after = old.splitlines(keepends=True), new.splitlines(keepends=True)
    found: list[Edit] = []
    for a, b, c, d in _differences(before, after):
        if a == b or c == d:
            if b < len(before):
                b, d = b + 1, d + 1
            else:
                a, c = a - 1, c - 1
        gone, come = "".join(before[a:b]), "".join(after[c:d])
        if gone.endswith("\n") and come.endswith("\n"):
            cut = 2 if gone.endswith("\r\n") and come.endswith("\r\n") else 1
            gone, come = gone[:-cut], come[:-cut]
        found.append(Edit(path, a + 1, gone, come))
    return tuple(found)


def _differences(before: list[str], after: list[str]) -> list[tuple[int, int, int, int]]:
    """Ranges of lines that differ; neighbours are joined, so that each can hold on to a line of its own."""
    joined: list[tuple[int, int, int, int]] = []
    for kind, a, b, c, d in difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if kind == "equal":
            continue
        if joined and a - joined[-1][1] <= 2:
            start, _, other, _ = joined.pop()
            joined.append((start, b, other, d))
        else:
            joined.append((a, b, c, d))
    return joined


def pairs(
    base: Candidate, sources: Mapping[str, Source], suspicions: Sequence[Suspicion], failure: Failure
) -> Iterator[Candidate]:
    """A second change on top of one that helped. Raises nothing: a base that can't be parsed has no pairs."""
    original = sources[base.path]
    changed = Source(base.path, base.text)
    shifted = [_shift(each, base) for each in suspicions]
    for second in candidates({**sources, base.path: changed}, shifted, failure):
        if second.path == base.path:
            edits = edits_between(base.path, original.text, second.text)
        else:
            edits = (*base.edits, *second.edits)
        if second.text != original.text and edits:
            yield Candidate(
                edits,
                f"{base.template} and {second.template}",
                base.likely * second.likely,
                second.priority,
                second.path,
                second.text,
            )


def _shift(suspicion: Suspicion, base: Candidate) -> Suspicion:
    moved = sum(
        edit.new.count("\n") - edit.old.count("\n")
        for edit in base.edits
        if edit.path == suspicion.path and edit.line < suspicion.line
    )
    return suspicion._replace(line=suspicion.line + moved)
