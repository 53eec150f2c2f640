"""Wrong condition: a clause that is missing, a bound that is off, the wrong kind of emptiness."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from graph.models.search_repair.scopes import MAPPING, NUMBER, OBJECT, SEQUENCE, SET, STRING
from graph.models.search_repair.source import names_in
from graph.models.search_repair.templates.base import Site, Template, Variant, template
from graph.models.search_repair.templates.operators import SYMBOLS

_SIZED = {SEQUENCE, STRING, MAPPING, SET}


@template(ast.If, ast.While, ast.IfExp, family="guard", prior=0.55)
def add_none_check(site: Site, node: ast.If | ast.While | ast.IfExp) -> Iterator[Variant]:
    """An attribute chain is followed without asking whether there is anything: `a.b is None` → `a is None or …`."""
    test = node.test
    text = site.operand(test) if isinstance(test, ast.BoolOp | ast.IfExp | ast.Lambda) else site.text(test)
    chains = _chains(test)
    weight = 1.0 if chains else 0.0
    for chain in chains:
        yield site.replace(test, f"{chain} is None or {text}", weight)
        yield site.replace(test, f"{chain} is not None and {text}", weight)
        yield site.replace(test, f"{chain} and {text}", weight * 0.5)
        yield site.replace(test, f"not {chain} or {text}", weight * 0.5)


def _chains(test: ast.expr) -> list[str]:
    """What attributes and indices are taken of, as text."""
    found = [ast.unparse(each.value) for each in ast.walk(test) if isinstance(each, ast.Attribute | ast.Subscript)]
    return [each for each in dict.fromkeys(found) if "(" not in each]


@template(ast.If, ast.While, ast.IfExp, family="guard", prior=0.4)
def add_clause(site: Site, node: ast.If | ast.While | ast.IfExp) -> Iterator[Variant]:
    test = node.test
    text = site.operand(test) if isinstance(test, ast.BoolOp | ast.IfExp | ast.Lambda) else site.text(test)
    for clause, weight in _clauses(site, test):
        positive = 1.0 if not clause.startswith("not ") else 0.8
        yield site.replace(test, f"{text} or {clause}", weight if isinstance(node, ast.If) else weight * 0.5)
        yield site.replace(test, f"{text} and {clause}", weight * positive)
        if isinstance(node, ast.While):
            yield site.replace(test, f"{clause} and {text}", weight * 0.7)


def _clauses(site: Site, test: ast.expr) -> Iterator[tuple[str, float]]:
    """Small conditions over what is in scope, and those that the function already asks elsewhere."""
    for name in site.scope.candidates(test):
        yield from _about(name, site.scope.kinds(name))
    own = ast.unparse(test)
    asked = (ast.unparse(each) for each in _elsewhere(site))
    yield from ((text, 0.5) for text in asked if text != own and len(text) <= 60)
    yield from _relations(site, test)


def _about(name: str, kinds: frozenset[str]) -> Iterator[tuple[str, float]]:
    if kinds & _SIZED or not kinds:
        yield f"not {name}", 0.9
        yield name, 0.7
    if NUMBER in kinds:
        yield f"{name} < 0", 0.3
        yield f"{name} > 0", 0.4
        yield f"{name} == 0", 0.3
    if not kinds or OBJECT in kinds:
        yield f"{name} is None", 0.5


def _relations(site: Site, test: ast.expr) -> Iterator[tuple[str, float]]:
    names = site.scope.candidates(test)
    numbers = [each for each in names if NUMBER in site.scope.kinds(each)]
    sized = [each for each in names if site.scope.kinds(each) & _SIZED]
    for number in numbers[:4]:
        yield from ((f"{number} < len({each})", 0.4) for each in sized[:4])
        for other in numbers[:5]:
            if other != number:
                yield f"{number} < {other}", 0.25
                yield f"{number} != {other}", 0.2


def _elsewhere(site: Site) -> list[ast.Compare]:
    function = site.source.function(site.node)
    if function is None:
        return []
    return [each for each in ast.walk(function) if isinstance(each, ast.Compare)][:12]


@template(ast.While, family="loop", prior=0.7)
def other_loop_condition(site: Site, node: ast.While) -> Iterator[Variant]:
    test = node.test
    endless = isinstance(test, ast.Constant)
    used = {name for statement in node.body for name in names_in(statement)}
    for name in site.scope.candidates(node):
        if name in used and isinstance(test, ast.Constant | ast.Name):
            kinds = site.scope.kinds(name)
            fit = 1.0 if kinds & _SIZED else 0.6
            yield site.replace(test, name, fit if endless else fit * 0.5)
            if not kinds & _SIZED:
                yield site.replace(test, f"{name} is not None", 0.5 * fit)
            if kinds & {NUMBER}:
                yield site.replace(test, f"{name} > 0", 0.6)


@template(ast.If, ast.While, ast.IfExp, ast.BoolOp, ast.comprehension, family="condition", prior=0.35)
def none_or_empty(site: Site, node: ast.AST) -> Iterator[Variant]:
    """`if x` where `if x is not None` is meant, and the other way round."""
    for condition in _parts(node):
        match condition:
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                yield site.replace(condition, f"{site.operand(operand)} is None")
                yield site.replace(condition, f"len({site.text(operand)}) <= 1", 0.4)
            case ast.Name() | ast.Attribute() | ast.Subscript():
                yield site.replace(condition, f"{site.text(condition)} is not None")
                yield site.replace(condition, f"{site.text(condition)} > 0", 0.3)
                yield site.replace(condition, f"len({site.text(condition)}) > 1", 0.3)
            case ast.Compare(left=left, ops=[ast.Is()], comparators=[ast.Constant(value=None)]):
                yield site.replace(condition, f"not {site.operand(left)}")
            case ast.Compare(left=left, ops=[ast.IsNot()], comparators=[ast.Constant(value=None)]):
                yield site.replace(condition, site.text(left))


def _parts(node: ast.AST) -> list[ast.expr]:
    match node:
        case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test):
            return [test]
        case ast.BoolOp(values=values):
            return values
        case ast.comprehension(ifs=conditions):
            return conditions
        case _:
            return []


@template(ast.Compare, family="comparison", prior=0.5)
def neighbouring_bound(site: Site, node: ast.AST) -> Iterator[Variant]:
    """Operator and number off together: `== 0` where `<= 1` is meant."""
    match node:
        case ast.Compare(left=left, ops=[operator], comparators=[ast.Constant(value=int() as bound)]) if not isinstance(
            bound, bool
        ):
            old = SYMBOLS[type(operator)]
            for symbol, number, weight in (
                ("<=", bound + 1, 1.0),
                ("<", bound + 1, 0.5),
                (">=", bound - 1, 0.4),
                (">", bound - 1, 0.3),
                ("<=", bound - 1, 0.3),
                (">=", bound + 1, 0.4),
                (">", bound + 1, 0.3),
                ("<", bound - 1, 0.2),
            ):
                if symbol != old:
                    yield site.replace(
                        node,
                        f"{site.text(left)} {symbol} {number}",
                        weight if old in ("==", "!=") else weight * 0.6,
                    )


@template(ast.Compare, family="comparison", prior=0.3)
def compare_property(site: Site, node: ast.AST) -> Iterator[Variant]:
    """`a < b` where the lengths or the sizes are meant; `x == y` where membership is."""
    match node:
        case ast.Compare(
            left=left,
            ops=[ast.Lt() | ast.Gt() | ast.LtE() | ast.GtE() | ast.Eq() | ast.NotEq() as operator],
            comparators=[right],
        ):
            one, other, sign = site.text(left), site.text(right), SYMBOLS[type(operator)]
            if not isinstance(left, ast.Constant) and NUMBER not in site.scope.kind(left):
                yield site.replace(node, f"len({one}) {sign} {other}", 0.5)
                yield site.replace(node, f"len({one}) {sign} len({other})", 0.4)
            if NUMBER in site.scope.kind(left) | site.scope.kind(right):
                yield site.replace(node, f"abs({one}) {sign} {other}", 0.5)
                yield site.replace(
                    node, f"{one} {sign} len({other})", 0.3 if SEQUENCE in site.scope.kind(right) else 0.1
                )


@template(ast.If, ast.While, ast.IfExp, family="condition", prior=0.06)
def constant_condition(site: Site, node: ast.If | ast.While | ast.IfExp) -> Iterator[Variant]:
    test = node.test
    if not isinstance(test, ast.Constant):
        yield site.replace(test, "False")
        if not isinstance(node, ast.While):
            yield site.replace(test, "True")


@template(ast.IfExp, family="condition", prior=0.45)
def swap_branches(site: Site, node: ast.IfExp) -> Iterator[Variant]:
    yield site.swap(node.body, node.orelse)
    yield site.replace(node, site.text(node.body), 0.2)
    yield site.replace(node, site.text(node.orelse), 0.2)


@template(ast.Call, family="call", prior=0.3)
def type_check(site: Site, node: ast.AST) -> Iterator[Variant]:
    match node:
        case ast.Call(func=ast.Name(id="isinstance"), args=[_, kind]):
            text = site.text(kind)
            for other in ("(list, tuple)", "(int, float)", "str", "dict", "list", "int", "bool"):
                if other != text:
                    yield site.replace(kind, other, 0.7 if other.startswith("(") and text in other else 0.4)


TEMPLATES: tuple[Template, ...] = (
    add_none_check, add_clause, other_loop_condition, none_or_empty, neighbouring_bound, compare_property,
    constant_condition, swap_branches, type_check,
)  # fmt: skip
