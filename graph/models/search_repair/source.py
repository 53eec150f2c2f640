"""One Python file as the templates see it: text with offsets, syntax tree with parents, scopes."""

from __future__ import annotations

import ast
import re
from bisect import bisect_right
from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple, cast

Function = ast.FunctionDef | ast.AsyncFunctionDef
Block = list[ast.stmt]

_COMPOUND = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith, ast.Try, ast.FunctionDef)


class Change(NamedTuple):
    """Replace the characters from `start` to `end`."""

    start: int
    end: int
    text: str


class Place(NamedTuple):
    """Where a statement stands: its block and its position there."""

    block: Block
    position: int
    owner: ast.AST


class Source:
    """A parsed file. Raises SyntaxError or ValueError where Python can't parse the text."""

    def __init__(self, path: str, text: str) -> None:
        self.path = path
        self.text = text
        self.tree = ast.parse(text)
        self._starts = _line_starts(text)
        self._parents: dict[ast.AST, ast.AST] = {}
        for parent in ast.walk(self.tree):
            for child in ast.iter_child_nodes(parent):
                self._parents[child] = parent

    # -- text ------------------------------------------------------------------------------------------------

    def offset(self, line: int, column: int) -> int:
        """Characters from the start; `ast` counts columns in bytes of UTF-8."""
        start = self._starts[line - 1]
        end = self._starts[line] if line < len(self._starts) else len(self.text)
        text = self.text[start:end]
        return start + (column if text.isascii() else len(text.encode()[:column].decode(errors="ignore")))

    def span(self, node: ast.AST) -> tuple[int, int]:
        """Where the node begins and ends, as offsets; for nodes that have a place."""
        where = cast("ast.expr", node)
        end, column = cast("int", where.end_lineno), cast("int", where.end_col_offset)
        return self.offset(where.lineno, where.col_offset), self.offset(end, column)

    def segment(self, node: ast.AST) -> str:
        start, end = self.span(node)
        return self.text[start:end]

    def line_of(self, offset: int) -> int:
        return bisect_right(self._starts, offset)

    def line_start(self, line: int) -> int:
        return self._starts[line - 1] if line <= len(self._starts) else len(self.text)

    def line_text(self, line: int) -> str:
        return self.text[self.line_start(line) : self.line_start(line + 1)].rstrip("\r\n")

    def indent(self, statement: ast.stmt) -> str:
        line = self.line_text(statement.lineno)
        return line[: len(line) - len(line.lstrip())]

    @cached_property
    def newline(self) -> str:
        return "\r\n" if "\r\n" in self.text else "\n"

    def apply(self, changes: tuple[Change, ...]) -> str:
        text = self.text
        for change in sorted(changes, reverse=True):
            text = text[: change.start] + change.text + text[change.end :]
        return text

    # -- tree ------------------------------------------------------------------------------------------------

    def parent(self, node: ast.AST) -> ast.AST | None:
        return self._parents.get(node)

    def ancestors(self, node: ast.AST) -> Iterator[ast.AST]:
        while (parent := self._parents.get(node)) is not None:
            yield parent
            node = parent

    def statement(self, node: ast.AST) -> ast.stmt | None:
        """The innermost statement around the node, or the node itself."""
        if isinstance(node, ast.stmt):
            return node
        return next((each for each in self.ancestors(node) if isinstance(each, ast.stmt)), None)

    def function(self, node: ast.AST) -> Function | None:
        """The innermost function around the node, never the node itself."""
        return next((each for each in self.ancestors(node) if isinstance(each, Function)), None)

    def functions(self, node: ast.AST) -> list[Function]:
        """All functions around the node, the innermost first."""
        return [each for each in self.ancestors(node) if isinstance(each, Function)]

    def loop(self, node: ast.AST) -> ast.For | ast.AsyncFor | ast.While | None:
        for each in self.ancestors(node):
            if isinstance(each, ast.For | ast.AsyncFor | ast.While):
                return each
            if isinstance(each, Function | ast.ClassDef):
                return None
        return None

    def enclosing_class(self, node: ast.AST) -> ast.ClassDef | None:
        return next((each for each in self.ancestors(node) if isinstance(each, ast.ClassDef)), None)

    @cached_property
    def places(self) -> dict[ast.stmt, Place]:
        found: dict[ast.stmt, Place] = {}
        for owner in ast.walk(self.tree):
            for block in blocks(owner):
                for position, statement in enumerate(block):
                    found[statement] = Place(block, position, owner)
        return found

    def is_docstring(self, statement: ast.stmt) -> bool:
        return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)

    def unit(self, node: ast.AST) -> ast.stmt | None:
        """The piece that is looked at alone when two candidates are compared: a function or a whole statement."""
        around = [node, *self.ancestors(node)]
        function = next((each for each in around if isinstance(each, Function)), None)
        if function is not None:
            return function
        statements = [each for each in around if isinstance(each, ast.stmt)]
        return statements[-1] if statements else None

    @cached_property
    def module_functions(self) -> dict[str, Function]:
        return {each.name: each for each in ast.walk(self.tree) if isinstance(each, Function)}

    @cached_property
    def attributes(self) -> dict[str, int]:
        """Attribute names that the file uses, with their number."""
        found: dict[str, int] = {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Attribute):
                found[node.attr] = found.get(node.attr, 0) + 1
        return found


def blocks(node: ast.AST) -> Iterator[Block]:
    """The blocks of statements that the node holds."""
    for name in ("body", "orelse", "finalbody"):
        block = getattr(node, name, None)
        if isinstance(block, list) and block:
            yield block
    for handler in getattr(node, "handlers", []):
        yield handler.body


def is_compound(statement: ast.stmt) -> bool:
    return isinstance(statement, (*_COMPOUND, ast.AsyncFunctionDef, ast.ClassDef, ast.Match))


def first_line(statement: ast.stmt) -> int:
    """The first line of a statement, its decorators included."""
    decorators: list[ast.expr] = getattr(statement, "decorator_list", [])
    return min([statement.lineno, *(each.lineno for each in decorators)])


def last_line(statement: ast.stmt) -> int:
    return statement.end_lineno or statement.lineno


def is_empty_collection(node: ast.expr) -> bool:
    match node:
        case ast.List(elts=[]) | ast.Dict(keys=[]) | ast.Call(func=ast.Name(id="set" | "list" | "dict"), args=[]):
            return True
        case _:
            return False


def names_in(node: ast.AST) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}


def _line_starts(text: str) -> list[int]:
    """Where lines begin as Python's tokenizer sees it: a form feed ends no line."""
    return [0, *(match.end() for match in re.finditer(r"\r\n|\r|\n", text))]
