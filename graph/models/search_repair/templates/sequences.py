"""Wrong index, wrong slice, wrong order, wrong range."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator
from typing import cast

from graph.models.search_repair.scopes import MAPPING, NUMBER, SEQUENCE, STRING
from graph.models.search_repair.source import Change
from graph.models.search_repair.templates.base import Site, Template, Variant, template


@template(ast.Tuple, ast.List, family="index", prior=0.6)
def swap_elements(site: Site, node: ast.Tuple | ast.List) -> Iterator[Variant]:
    elements = node.elts
    if len(elements) <= 6:
        for first, second in itertools.pairwise(elements):
            if site.text(first) != site.text(second):
                yield site.swap(first, second)
        if len(elements) == 3 and site.text(elements[0]) != site.text(elements[2]):
            yield site.swap(elements[0], elements[2], 0.6)


@template(ast.Subscript, family="index", prior=0.5)
def swap_indices(site: Site, node: ast.Subscript) -> Iterator[Variant]:
    """`grid[x][y]` becomes `grid[y][x]`."""
    inner = node.value
    if isinstance(inner, ast.Subscript) and site.text(inner.slice) != site.text(node.slice):
        yield site.swap(inner.slice, node.slice)


@template(ast.Subscript, family="index", prior=0.45)
def other_index(site: Site, node: ast.Subscript) -> Iterator[Variant]:
    index = node.slice
    if isinstance(index, ast.Slice | ast.Tuple) or MAPPING in site.scope.kind(node.value):
        return
    for text, weight in (("0", 0.7), ("-1", 0.8), ("1", 0.4)):
        if text != site.text(index):
            yield site.replace(index, text, weight)
    if isinstance(index, ast.Name | ast.BinOp):
        yield site.replace(index, f"-{site.operand(index)}", 0.2)
        yield site.replace(index, f"-{site.operand(index)} - 1", 0.2)
        yield site.replace(index, f"{site.operand(index)} % len({site.text(node.value)})", 0.4)


@template(ast.Subscript, family="index", prior=0.3)
def drop_index(site: Site, node: ast.Subscript) -> Iterator[Variant]:
    yield site.replace(node, site.text(node.value), 1.0 if isinstance(node.slice, ast.Slice) else 0.6)


@template(ast.Name, ast.Call, ast.Attribute, family="index", prior=0.2)
def add_index(site: Site, node: ast.AST) -> Iterator[Variant]:
    if not isinstance(getattr(node, "ctx", ast.Load()), ast.Load) or isinstance(site.parent, ast.Expr | ast.Attribute):
        return
    if isinstance(site.parent, ast.Subscript) or (isinstance(site.parent, ast.Call) and site.parent.func is node):
        return
    kinds = site.scope.kind(node)
    if kinds and not kinds & {SEQUENCE, STRING}:
        return
    for index in ("0", "-1", "1", *(each for each in site.scope.candidates(node) if NUMBER in site.scope.kinds(each))):
        yield site.replace(node, f"{site.text(node)}[{index}]", 0.8 if kinds else 0.4)


@template(ast.Name, ast.Subscript, ast.Attribute, ast.Call, family="slice", prior=0.4)
def add_slice(site: Site, node: ast.AST) -> Iterator[Variant]:
    """`items` becomes `items[1:]`, `items[k:]`, `items[::-1]`: only a part, or the other way round."""
    if not isinstance(getattr(node, "ctx", ast.Load()), ast.Load) or not _may_be_sliced(site):
        return
    kinds = site.scope.kind(node)
    if kinds and not kinds & {SEQUENCE, STRING}:
        return
    known = 1.0 if kinds else 0.5
    text = site.text(node)
    for part, weight in (("1:", 1.0), (":-1", 0.8), ("::-1", 0.7), (":", 0.6)):
        yield site.replace(node, f"{text}[{part}]", weight * known)
    for name in site.scope.candidates(node):
        if name != text and (NUMBER in site.scope.kinds(name) or not site.scope.kinds(name)):
            fit = known * (0.8 if NUMBER in site.scope.kinds(name) else 0.5)
            for part, weight in ((f"{name}:", 1.0), (f":{name}", 1.0), (f"{name} + 1:", 0.6), (f":{name} + 1", 0.4)):
                yield site.replace(node, f"{text}[{part}]", weight * fit)


def _may_be_sliced(site: Site) -> bool:
    match site.parent:
        case ast.Call(func=called):
            return called is not site.node
        case ast.For(iter=iterated) | ast.comprehension(iter=iterated):
            return iterated is site.node
        case ast.Assign() | ast.Return() | ast.BinOp() | ast.Starred() | ast.Tuple() | ast.Compare():
            return True
        case _:
            return False


@template(ast.Slice, family="slice", prior=0.55)
def other_slice(site: Site, node: ast.Slice) -> Iterator[Variant]:
    subscript = cast("ast.Subscript", site.parent)  # the grammar has slices nowhere else
    lower, upper = (site.text(each) if each is not None else "" for each in (node.lower, node.upper))
    step = f":{site.text(node.step)}" if node.step is not None else ""
    for low, high, weight in _bounds(lower, upper):
        yield _sliced(site, subscript, f"{low}:{high}{step}", weight)
    if not step:
        yield _sliced(site, subscript, f"{lower}:{upper}:-1", 0.2)
    for name in site.scope.candidates(node):
        if NUMBER in site.scope.kinds(name):
            if not lower:
                yield _sliced(site, subscript, f"{name}:{upper}{step}", 0.5)
            if not upper:
                yield _sliced(site, subscript, f"{lower}:{name}{step}", 0.5)


def _bounds(lower: str, upper: str) -> Iterator[tuple[str, str, float]]:
    if lower and upper:
        yield lower, "", 0.8
        yield "", upper, 0.8
    elif lower:
        yield "", lower, 0.8
        yield lower, "-1", 0.3
        yield "", "", 0.4
    elif upper:
        yield upper, "", 0.8
        yield "1", upper, 0.5
        yield "", "", 0.4
    for bound, position in ((lower, 0), (upper, 1)):
        if bound and not bound.lstrip("-").isdigit():
            for sign in ("+", "-"):
                moved = f"{bound} {sign} 1"
                yield (moved, upper, 0.9) if position == 0 else (lower, moved, 0.9)
    if not lower:
        yield "1", upper, 0.6
    if not upper:
        yield lower, "-1", 0.6


def _sliced(site: Site, subscript: ast.Subscript, text: str, weight: float) -> Variant:
    start, end = site.source.span(subscript.value)[1], site.source.span(subscript)[1]
    return Variant((Change(start, end, f"[{text}]"),), weight)


@template(ast.Call, family="range", prior=0.65)
def other_range(site: Site, node: ast.Call) -> Iterator[Variant]:
    if not (isinstance(node.func, ast.Name) and node.func.id == "range") or node.keywords:
        return
    texts = [site.text(each) for each in node.args]
    if len(texts) == 1:
        stop = texts[0]
        for other, weight in (
            (f"1, {stop}", 0.8),
            (f"1, {stop} + 1", 0.9),
            (f"{stop} - 1, -1, -1", 0.5),
            (f"{stop}, 0, -1", 0.3),
            (f"2, {stop}", 0.2),
        ):
            yield site.replace(node, f"range({other})", weight)
        for name in site.scope.candidates(node):
            if NUMBER in site.scope.kinds(name):
                yield site.replace(node, f"range({name}, {stop})", 0.4)
                yield site.replace(node, f"range({name} + 1, {stop})", 0.5)
    elif len(texts) == 2:
        start, stop = texts
        for other, weight in (
            (f"{start} + 1, {stop} + 1", 0.6),
            (stop, 0.5),
            (f"{start}, {stop}, -1", 0.3),
            (f"{stop}, {start}, -1", 0.3),
            (f"{stop}, {start}", 0.2),
            (f"{start} - 1, {stop} - 1", 0.2),
        ):
            yield site.replace(node, f"range({other})", weight)
    elif len(texts) == 3:
        start, stop, step = texts
        for other in (
            f"{start}, {stop}",
            f"{start}, {stop}, -{step}",
            f"{start}, {stop} - 1, {step}",
            f"{start}, -1, {step}",
            f"{stop}, {start}, {step}",
        ):
            yield site.replace(node, f"range({other})", 0.5)


@template(ast.For, ast.comprehension, family="range", prior=0.45)
def other_iteration(site: Site, node: ast.For | ast.comprehension) -> Iterator[Variant]:
    """Pairs that come from nowhere, an index where the value is meant, an order that matters."""
    iterated = node.iter
    text = site.text(iterated)
    pairs = isinstance(node.target, ast.Tuple) and len(node.target.elts) == 2
    simple = isinstance(iterated, ast.Name | ast.Attribute | ast.Subscript)
    if pairs and simple:
        yield site.replace(iterated, f"{text}.items()", 1.0)
        yield site.replace(iterated, f"enumerate({text})", 1.0)
        yield site.replace(iterated, f"zip({text}, {text}[1:])", 0.3)
    if simple:
        yield site.replace(iterated, f"list({text})", 0.6)
        yield site.replace(iterated, f"range(len({text}))", 0.4)
        yield site.replace(iterated, f"reversed({text})", 0.5)
        yield site.replace(iterated, f"sorted({text})", 0.5)
        yield site.replace(iterated, f"range({text})", 0.4)
    elif isinstance(iterated, ast.Call) and isinstance(iterated.func, ast.Name):
        yield site.replace(iterated, f"reversed({text})", 0.4)
        yield site.replace(iterated, f"list({text})", 0.3)


@template(ast.comprehension, family="condition", prior=0.3)
def drop_filter(site: Site, node: ast.comprehension) -> Iterator[Variant]:
    for condition in node.ifs:
        end = site.source.span(condition)[1]
        start = site.source.text.rfind("if", site.source.span(node.iter)[1], site.source.span(condition)[0])
        if start > 0:
            yield Variant((Change(start, end, ""),), 1.0)


@template(ast.comprehension, family="condition", prior=0.3)
def add_filter(site: Site, node: ast.comprehension) -> Iterator[Variant]:
    if not isinstance(node.target, ast.Name) or node.ifs:
        return
    end = site.source.span(node.iter)[1]
    name = node.target.id
    tests = [name, f"{name} is not None"]
    for other in site.scope.candidates(node):
        if other != name:
            tests += [f"{name} != {other}", f"{name} not in {other}"]
    for test in tests[:10]:
        yield Variant((Change(end, end, f" if {test}"),), 0.6)


@template(ast.BinOp, family="call", prior=0.6)
def repeated_reference(site: Site, node: ast.AST) -> Iterator[Variant]:
    """`[[0] * n] * m` repeats one and the same row."""
    match node:
        case ast.BinOp(left=ast.List(elts=[ast.expr() as row]), op=ast.Mult(), right=times) if not isinstance(
            row, ast.Constant
        ):
            yield site.replace(node, f"[{site.text(row)} for _ in range({site.text(times)})]")


@template(ast.Subscript, family="lookup", prior=0.4)
def lookup_with_default(site: Site, node: ast.Subscript) -> Iterator[Variant]:
    if not isinstance(node.ctx, ast.Load) or isinstance(node.slice, ast.Slice):
        return
    likely = 1.0 if "KeyError" in site.failure.errors else 0.3
    value, key = site.text(node.value), site.text(node.slice)
    key = f"({key})" if isinstance(node.slice, ast.Tuple) and not key.startswith("(") else key
    for default, weight in (("0", 1.0), (None, 0.8), ("[]", 0.7), ("''", 0.4), (key, 0.4)):
        text = f"{value}.get({key}, {default})" if default else f"{value}.get({key})"
        yield site.replace(node, text, weight * likely)


@template(ast.Name, ast.Call, ast.Subscript, ast.Attribute, family="wrap", prior=0.25)
def in_brackets(site: Site, node: ast.AST) -> Iterator[Variant]:
    """`item` becomes `[item]`: one where a list is wanted."""
    if not isinstance(getattr(node, "ctx", ast.Load()), ast.Load) or isinstance(
        site.parent, ast.Subscript | ast.Attribute | ast.Expr
    ):
        return
    if (
        isinstance(site.parent, ast.Return | ast.Call | ast.BinOp | ast.Assign)
        and getattr(site.parent, "func", None) is not node
    ):
        yield site.replace(node, f"[{site.text(node)}]", 0.8)
        yield site.replace(node, f"({site.text(node)},)", 0.2)


@template(ast.Attribute, ast.Name, ast.List, family="wrap", prior=0.25)
def copied(site: Site, node: ast.AST) -> Iterator[Variant]:
    """Two names for one list: the copy was forgotten."""
    if not isinstance(getattr(node, "ctx", ast.Load()), ast.Load) or not isinstance(
        site.parent, ast.Assign | ast.Return | ast.Call
    ):
        return
    if getattr(site.parent, "func", None) is node or isinstance(node, ast.List):
        return
    kinds = site.scope.kind(node)
    if not kinds or kinds & {SEQUENCE, MAPPING, "set", "object"}:
        yield site.replace(node, f"{site.text(node)}.copy()", 0.8)
        yield site.replace(node, f"list({site.text(node)})", 0.7)


TEMPLATES: tuple[Template, ...] = (
    swap_elements,
    swap_indices,
    other_index,
    drop_index,
    add_index,
    add_slice,
    other_slice,
    other_range,
    other_iteration,
    drop_filter,
    add_filter,
    repeated_reference,
    lookup_with_default,
    in_brackets,
    copied,
)
