"""What a template is: from one place in the code to the texts that could stand there instead."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from graph.models.search_repair.scopes import Scope, scope_of
from graph.models.search_repair.source import Change, Function, Source, first_line, last_line


class Variant(NamedTuple):
    """One thing to try, before it has a priority."""

    changes: tuple[Change, ...]
    weight: float
    """0 to 1, within its template: how well it fits this place."""


@dataclass(frozen=True, kw_only=True)
class Failure:
    """How the tests fail, as far as templates look at it."""

    errors: frozenset[str] = frozenset()
    """Class names of the exceptions; Timeout for a test that did not end."""
    messages: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Site:
    """A place in the code, and what is known there."""

    source: Source
    node: ast.AST
    failure: Failure
    functions: Mapping[str, Function] = field(default_factory=dict)
    """The functions of all files that were read, by name."""

    @cached_property
    def scope(self) -> Scope:
        return scope_of(self.source, self.node)

    @cached_property
    def statement(self) -> ast.stmt | None:
        return self.source.statement(self.node)

    @cached_property
    def parent(self) -> ast.AST | None:
        return self.source.parent(self.node)

    def text(self, node: ast.AST) -> str:
        return self.source.segment(node)

    def operand(self, node: ast.AST) -> str:
        """The text, in brackets where it would fall apart inside a larger expression."""
        text = self.text(node)
        loose = (
            ast.BoolOp,
            ast.Compare,
            ast.IfExp,
            ast.Lambda,
            ast.BinOp,
            ast.NamedExpr,
            ast.Await,
            ast.Yield,
            ast.UnaryOp,
        )
        return f"({text})" if isinstance(node, loose) else text

    def replace(self, node: ast.AST, text: str, weight: float = 1.0) -> Variant:
        start, end = self.source.span(node)
        if isinstance(node, ast.GeneratorExp) and isinstance(self.source.parent(node), ast.Call):
            text = f"({text})"  # as the only argument, it has the call's own brackets
        return Variant((Change(start, end, text),), weight)

    def swap(self, first: ast.AST, second: ast.AST, weight: float = 1.0) -> Variant:
        changes = (
            Change(*self.source.span(first), self.text(second)),
            Change(*self.source.span(second), self.text(first)),
        )
        return Variant(changes, weight)

    def insert_before(self, statement: ast.stmt, line: str, weight: float = 1.0) -> Variant:
        """A new line (or several, already indented against each other) before the statement's."""
        indent = self.source.indent(statement)
        at = self.source.line_start(first_line(statement))
        return Variant((Change(at, at, _indented(line, indent, self.source.newline)),), weight)

    def insert_after(self, statement: ast.stmt, line: str, weight: float = 1.0) -> Variant:
        at = self.source.line_start(last_line(statement) + 1)
        text = _indented(line, self.source.indent(statement), self.source.newline)
        if at == len(self.source.text) and not self.source.text.endswith(("\n", "\r")):
            text = self.source.newline + text.rstrip("\r\n")
        return Variant((Change(at, at, text),), weight)

    def delete_lines(self, statement: ast.stmt) -> Change:
        start = self.source.line_start(first_line(statement))
        return Change(start, self.source.line_start(last_line(statement) + 1), "")

    def starts_its_line(self, statement: ast.stmt) -> bool:
        """Whether the statement has its lines for itself: not after a colon or a semicolon."""
        start, end = self.source.span(statement)
        before = self.source.text[self.source.line_start(self.source.line_of(start)) : start]
        after = self.source.text[end : self.source.line_start((statement.end_lineno or 0) + 1)].strip()
        return not before.strip() and (not after or after.startswith("#"))


Apply = Callable[[Site, Any], Iterator[Variant]]
"""The node is handed over as well, so that a template can name its type: it is one of the template's own."""


@dataclass(frozen=True, kw_only=True)
class Template:
    """One way in which code is wrong."""

    name: str
    family: str
    """What kind of change it is; the error's type makes whole families more or less likely."""
    prior: float
    nodes: tuple[type[ast.AST], ...]
    apply: Apply


def template(*nodes: type[ast.AST], family: str, prior: float) -> Callable[[Apply], Template]:
    def decorate(apply: Apply) -> Template:
        return Template(name=apply.__name__, family=family, prior=prior, nodes=nodes, apply=apply)

    return decorate


def _indented(text: str, indent: str, newline: str) -> str:
    return "".join(indent + line + newline for line in text.split("\n"))


def expected_errors(site: Site) -> list[str]:
    """What the tests wait for: `DID NOT RAISE <class 'ValueError'>`, and what the file itself raises."""
    found = [
        name.split(".")[-1]
        for message in site.failure.messages
        for name in re.findall(r"DID NOT RAISE <class '([\w.]+)'>", message)
    ]
    found += [
        each for each in site.failure.errors if each.endswith("Error") and each not in {"AssertionError", "Timeout"}
    ]
    return list(dict.fromkeys(found))


SIMPLE = (ast.Expr, ast.Assign, ast.AugAssign, ast.Return, ast.Delete, ast.Raise, ast.Continue, ast.Break)
"""Statements that templates move, repeat or delete."""
