"""A statement of the wrong form: assignment, return, jump, chain, exception."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from graph.models.search_repair.scopes import BOOL, NUMBER
from graph.models.search_repair.source import Change
from graph.models.search_repair.templates.base import Site, Template, Variant, expected_errors, template


@template(ast.Assign, family="operator", prior=0.45)
def assign_or_add(site: Site, node: ast.AST) -> Iterator[Variant]:
    match node:
        case ast.Assign(targets=[ast.Name() | ast.Attribute() | ast.Subscript() as target], value=value):
            weight = 0.8 if site.source.loop(node) is not None else 0.5
            kinds = site.scope.kind(value) | site.scope.kind(target)
            for symbol, fit in (("+", 1.0), ("-", 0.5), ("*", 0.2)):
                if symbol == "+" or not kinds or NUMBER in kinds:
                    yield site.replace(node, f"{site.text(target)} {symbol}= {site.text(value)}", weight * fit)
            yield from _keep_best(site, target, value)


def _keep_best(site: Site, target: ast.expr, value: ast.expr) -> Iterator[Variant]:
    """`longest = length` where the longest of all is meant."""
    if site.source.loop(site.node) is not None and NUMBER in site.scope.kind(target) | site.scope.kind(value):
        for step in (f"{site.text(target)} + {site.text(value)}", f"{site.text(value)} + {site.text(target)}"):
            yield site.replace(value, step, 0.3)


@template(ast.Assign, ast.AugAssign, family="name", prior=0.35)
def other_target(site: Site, node: ast.Assign | ast.AugAssign) -> Iterator[Variant]:
    """The result goes to the wrong place: most often it was meant for something that it is made of."""
    target = node.targets[0] if isinstance(node, ast.Assign) else node.target
    seen = {site.text(target)}
    for part in ast.walk(node.value):
        if isinstance(part, ast.Subscript | ast.Attribute | ast.Name) and site.text(part) not in seen:
            called = site.source.parent(part)
            if not (isinstance(called, ast.Call) and called.func is part):
                seen.add(site.text(part))
                yield site.replace(target, site.text(part), 0.4 if isinstance(part, ast.Name) else 1.0)


@template(ast.Expr, family="call", prior=0.3)
def update_or_assign(site: Site, node: ast.AST) -> Iterator[Variant]:
    """`group.update(other)` where `group = other` is meant; a method that changes nothing in place."""
    match node:
        case ast.Expr(
            value=ast.Call(
                func=ast.Attribute(value=ast.Name() | ast.Subscript() | ast.Attribute() as changed, attr=method),
                args=arguments,
            ) as call
        ):
            if len(arguments) == 1:
                yield site.replace(node, f"{site.text(changed)} = {site.text(arguments[0])}", 0.7)
                yield site.replace(node, f"{site.text(changed)} += {site.text(arguments[0])}", 0.2)
                yield site.replace(call, f"{site.text(changed)}.{method}({site.text(arguments[0])}.copy())", 0.3)
                yield site.replace(call, f"{site.text(changed)}.{method}(list({site.text(arguments[0])}))", 0.3)
            yield site.replace(node, f"{site.text(changed)} = {site.text(call)}", 0.5)


@template(ast.Assign, family="call", prior=0.4)
def in_place_method(site: Site, node: ast.AST) -> Iterator[Variant]:
    """`items = items.sort()` keeps None."""
    match node:
        case ast.Assign(
            targets=[_],
            value=ast.Call(
                func=ast.Attribute(
                    value=changed,
                    attr="sort" | "reverse" | "append" | "extend" | "update" | "add" | "insert" | "shuffle",
                )
            ) as call,
        ):
            yield site.replace(node, site.text(call), 1.0)
            if isinstance(call.func, ast.Attribute) and call.func.attr == "sort":
                yield site.replace(call, f"sorted({site.text(changed)})", 0.8)
        case ast.Assign(targets=[ast.Subscript(value=held, slice=key)], value=value):
            yield site.replace(
                node, f"{site.text(held)}.setdefault({site.text(key)}, []).append({site.text(value)})", 0.4
            )
            yield site.replace(node, f"{site.text(held)}[{site.text(key)}].append({site.text(value)})", 0.2)


@template(ast.Expr, family="return", prior=0.5)
def missing_return(site: Site, node: ast.Expr) -> Iterator[Variant]:
    value = node.value
    if site.source.function(node) is None or isinstance(value, ast.Constant):
        return
    if isinstance(value, ast.Yield) and value.value is not None:
        yield site.replace(node, f"yield from {site.text(value.value)}", 1.0)
        yield site.replace(node, f"return {site.text(value.value)}", 0.3)
    elif isinstance(value, ast.YieldFrom):
        yield site.replace(node, f"yield {site.text(value.value)}", 1.0)
    else:
        weight = 0.6 if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) else 1.0
        yield site.replace(node, f"return {site.text(value)}", weight)
        yield site.replace(node, f"yield from {site.text(value)}", 0.3)


@template(ast.Return, family="return", prior=0.45)
def other_return(site: Site, node: ast.Return) -> Iterator[Variant]:
    value = node.value
    names = site.scope.candidates(node)
    if value is None:
        yield from (site.replace(node, f"return {name}", 0.7) for name in names)
        return
    if isinstance(value, ast.Constant) and isinstance(value.value, bool):
        for name in names:
            yield from (site.replace(value, text, weight) for text, weight in _truths(site, name))
    if isinstance(value, ast.Constant | ast.List | ast.Dict | ast.Tuple):
        for name in names:
            yield site.replace(value, name, 0.6)
            yield site.replace(value, f"[{name}]", 0.3 if isinstance(value, ast.List) else 0.1)
    if isinstance(value, ast.Compare | ast.BoolOp | ast.Call | ast.Name):
        yield site.replace(value, f"not {site.operand(value)}", 0.6 if BOOL in site.scope.kind(value) else 0.15)
    yield site.replace(node, f"yield {site.text(value)}", 0.2)
    function = site.source.function(node)
    parameters = function.args.args if function is not None else []
    if parameters and isinstance(value, ast.BinOp | ast.Call | ast.Name):
        yield site.replace(value, f"{site.operand(value)}, {parameters[0].arg}", 0.05)


def _truths(site: Site, name: str) -> Iterator[tuple[str, float]]:
    kinds = site.scope.kinds(name)
    if NUMBER in kinds or not kinds:
        yield f"{name} == 0", 0.8
        yield f"{name} > 0", 0.4
        yield f"{name} == 1", 0.3
    if not kinds & {NUMBER}:
        yield f"not {name}", 0.7
        yield f"bool({name})", 0.3
        yield f"{name} is None", 0.4
        yield f"{name} is not None", 0.4
    yield name, 0.3


@template(ast.Break, ast.Continue, ast.Pass, family="move", prior=0.6)
def other_jump(site: Site, node: ast.AST) -> Iterator[Variant]:
    in_loop = site.source.loop(node) is not None
    for word, weight in (("continue", 1.0), ("break", 1.0), ("pass", 0.6), ("return", 0.3)):
        if site.text(node) != word and (in_loop or word in ("pass", "return")):
            yield site.replace(node, word, weight)


@template(ast.If, family="condition", prior=0.4)
def if_or_elif(site: Site, node: ast.If) -> Iterator[Variant]:
    """A chain that was broken, or alternatives that should both be asked; `if` where it must be done again."""
    start, _ = site.source.span(node)
    if site.source.text.startswith("elif", start):
        yield Variant((Change(start, start + 4, "if"),), 0.9)
    elif site.source.text.startswith("if", start):
        place = site.source.places.get(node)
        if place is not None and place.position and isinstance(place.block[place.position - 1], ast.If):
            before = place.block[place.position - 1]
            if isinstance(before, ast.If) and (not before.orelse or isinstance(before.orelse[0], ast.If)):
                yield Variant((Change(start, start, "el"),), 1.0)
        if not node.orelse:
            yield Variant((Change(start, start + 2, "while"),), 0.4)


@template(ast.While, family="loop", prior=0.2)
def once(site: Site, node: ast.AST) -> Iterator[Variant]:
    start, _ = site.source.span(node)
    yield Variant((Change(start, start + 5, "if"),), 1.0)


@template(ast.ExceptHandler, family="condition", prior=0.4)
def other_exception(site: Site, node: ast.ExceptHandler) -> Iterator[Variant]:
    kind = node.type
    if kind is None:
        return
    for error in sorted(site.failure.errors):
        if (
            error.isidentifier()
            and error not in {"AssertionError", "Timeout", "Failed", "Crash"}
            and error != site.text(kind)
        ):
            yield site.replace(
                kind, f"({site.text(kind)}, {error})" if isinstance(kind, ast.Name | ast.Attribute) else error, 1.0
            )
            yield site.replace(kind, error, 0.5)
    yield site.replace(kind, "Exception", 0.3)


@template(ast.Raise, family="condition", prior=0.35)
def other_raise(site: Site, node: ast.Raise) -> Iterator[Variant]:
    kind = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
    for expected in expected_errors(site) if kind is not None else []:
        if kind is not None and expected != site.text(kind):
            yield site.replace(kind, expected)


TEMPLATES: tuple[Template, ...] = (
    assign_or_add,
    other_target,
    update_or_assign,
    in_place_method,
    missing_return,
    other_return,
    other_jump,
    if_or_elif,
    once,
    other_exception,
    other_raise,
)
