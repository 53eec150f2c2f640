"""Wrong operator, wrong side, one operand too many."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from graph.models.search_repair.scopes import NUMBER, SEQUENCE, STRING
from graph.models.search_repair.source import Change
from graph.models.search_repair.templates.base import Site, Template, Variant, template

SYMBOLS: dict[type[ast.AST], str] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%", ast.Pow: "**",
    ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^", ast.LShift: "<<", ast.RShift: ">>", ast.MatMult: "@",
    ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=",
    ast.Is: "is", ast.IsNot: "is not", ast.In: "in", ast.NotIn: "not in",
}  # fmt: skip

_ARITHMETIC: dict[str, dict[str, float]] = {
    "+": {"-": 1.0, "*": 0.6, "|": 0.1},
    "-": {"+": 1.0, "*": 0.3, "//": 0.2, "%": 0.2},
    "*": {"+": 0.7, "**": 0.5, "/": 0.6, "//": 0.4, "-": 0.2},
    "/": {"//": 1.0, "*": 0.8, "%": 0.4, "-": 0.1},
    "//": {"/": 0.9, "%": 0.9, "*": 0.4, "-": 0.1, ">>": 0.1},
    "%": {"//": 0.9, "/": 0.4, "*": 0.2, "-": 0.2},
    "**": {"*": 0.9, "+": 0.1, "^": 0.1},
    "&": {"|": 1.0, "^": 0.9, "-": 0.3},
    "|": {"&": 1.0, "^": 0.8, "-": 0.2},
    "^": {"&": 1.0, "|": 0.9, "**": 0.7},
    "<<": {">>": 1.0},
    ">>": {"<<": 1.0},
}
_COMPARISON: dict[str, dict[str, float]] = {
    "<": {"<=": 1.0, ">": 0.75, ">=": 0.7, "!=": 0.35, "==": 0.2},
    "<=": {"<": 1.0, ">=": 0.7, ">": 0.65, "==": 0.25, "!=": 0.15},
    ">": {">=": 1.0, "<": 0.75, "<=": 0.7, "!=": 0.35, "==": 0.2},
    ">=": {">": 1.0, "<=": 0.7, "<": 0.65, "==": 0.25, "!=": 0.15},
    "==": {"!=": 0.9, "<=": 0.7, ">=": 0.7, "<": 0.3, ">": 0.3, "in": 0.2, "is": 0.15},
    "!=": {"==": 0.9, "<": 0.5, ">": 0.5, "not in": 0.2, ">=": 0.2, "<=": 0.2},
    "is": {"is not": 1.0, "==": 0.9},
    "is not": {"is": 1.0, "!=": 0.9},
    "in": {"not in": 1.0, "==": 0.3},
    "not in": {"in": 1.0, "!=": 0.3},
}
_UNORDERED = (ast.Add, ast.Mult, ast.BitAnd, ast.BitOr, ast.BitXor)


def between(site: Site, left: ast.expr, right: ast.expr, old: str, new: str) -> Change | None:
    """The change of the operator that stands between two operands; comments and brackets there are kept."""
    start, end = site.source.span(left)[1], site.source.span(right)[0]
    found = site.source.text.find(old, start, end)
    return None if found < 0 else Change(found, found + len(old), new)


@template(ast.Compare, family="comparison", prior=1.0)
def other_comparison(site: Site, node: ast.Compare) -> Iterator[Variant]:
    operands = [node.left, *node.comparators]
    for left, operator, right in zip(operands, node.ops, operands[1:], strict=False):
        old = SYMBOLS[type(operator)]
        for new, weight in _COMPARISON[old].items():
            change = between(site, left, right, old, new)
            if change is not None:
                yield Variant((change,), weight)


@template(ast.BinOp, family="operator", prior=0.8)
def other_operator(site: Site, node: ast.BinOp) -> Iterator[Variant]:
    old = SYMBOLS[type(node.op)]
    kinds = site.scope.kind(node.left) | site.scope.kind(node.right)
    doubt = 0.15 if kinds & {STRING, SEQUENCE} and NUMBER not in kinds else 1.0
    for new, weight in _ARITHMETIC.get(old, {}).items():
        change = between(site, node.left, node.right, old, new)
        if change is not None:
            yield Variant((change,), weight * doubt)


@template(ast.AugAssign, family="operator", prior=0.85)
def other_augmented_operator(site: Site, node: ast.AugAssign) -> Iterator[Variant]:
    old = SYMBOLS[type(node.op)]
    for new, weight in [*_ARITHMETIC.get(old, {}).items(), ("", 0.6)]:
        change = between(site, node.target, node.value, old + "=", new + "=")
        if change is not None:
            yield Variant((change,), weight)


@template(ast.BoolOp, family="condition", prior=0.8)
def and_or(site: Site, node: ast.BoolOp) -> Iterator[Variant]:
    old, new = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
    pairs = zip(node.values, node.values[1:], strict=False)
    changes = [between(site, left, right, old, new) for left, right in pairs]
    yield Variant(tuple(each for each in changes if each is not None), 1.0)


@template(ast.BoolOp, family="condition", prior=0.5)
def drop_clause(site: Site, node: ast.BoolOp) -> Iterator[Variant]:
    joint = " and " if isinstance(node.op, ast.And) else " or "
    for dropped in node.values:
        kept = [site.operand(each) for each in node.values if each is not dropped]
        if len(kept) == 1:
            kept = [site.text(each) for each in node.values if each is not dropped]
        yield site.replace(node, joint.join(kept))


@template(ast.If, ast.While, ast.IfExp, ast.BoolOp, ast.comprehension, family="condition", prior=0.65)
def negate(site: Site, node: ast.AST) -> Iterator[Variant]:
    for condition in _conditions(node):
        if isinstance(condition, ast.UnaryOp) and isinstance(condition.op, ast.Not):
            yield site.replace(condition, site.text(condition.operand))
        elif not isinstance(condition, ast.Compare) or len(condition.ops) > 1:
            yield site.replace(condition, "not " + site.operand(condition), 0.6 if isinstance(node, ast.While) else 0.9)


def _conditions(node: ast.AST) -> list[ast.expr]:
    match node:
        case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test):
            return [test]
        case ast.BoolOp(values=values):
            return values
        case ast.comprehension(ifs=conditions):
            return conditions
        case _:
            return []


@template(ast.UnaryOp, family="operator", prior=0.4)
def drop_unary(site: Site, node: ast.UnaryOp) -> Iterator[Variant]:
    yield site.replace(node, site.text(node.operand))


@template(ast.Name, ast.Call, ast.Subscript, ast.Attribute, family="operator", prior=0.12)
def negative(site: Site, node: ast.AST) -> Iterator[Variant]:
    if (
        isinstance(getattr(node, "ctx", ast.Load()), ast.Load)
        and _is_operand(site)
        and not isinstance(site.parent, ast.UnaryOp)
    ):
        yield site.replace(node, "-" + site.text(node), 1.0 if NUMBER in site.scope.kind(node) else 0.4)


def _is_operand(site: Site) -> bool:
    return isinstance(
        site.parent, ast.Return | ast.Assign | ast.Compare | ast.Call | ast.Tuple | ast.Lambda | ast.keyword
    )


@template(ast.BinOp, family="operator", prior=0.45)
def swap_operands(site: Site, node: ast.BinOp) -> Iterator[Variant]:
    left, right = node.left, node.right
    numeric = NUMBER in site.scope.kind(left) | site.scope.kind(right)
    weight = 1.0
    if isinstance(node.op, _UNORDERED):
        weight = 0.2 if numeric or not isinstance(node.op, ast.Add) else 0.9
    changes = (
        Change(*site.source.span(left), site.operand(right)),
        Change(*site.source.span(right), site.operand(left)),
    )
    yield Variant(changes, weight)


@template(ast.BinOp, family="operand", prior=0.55)
def drop_operand(site: Site, node: ast.BinOp) -> Iterator[Variant]:
    nested = isinstance(site.parent, ast.BinOp | ast.UnaryOp)
    for kept, dropped in ((node.left, node.right), (node.right, node.left)):
        weight = 1.0 if isinstance(dropped, ast.Constant) else 0.6
        yield site.replace(node, site.operand(kept) if nested else site.text(kept), weight)


@template(ast.BinOp, family="operator", prior=0.25)
def regroup(site: Site, node: ast.BinOp) -> Iterator[Variant]:
    """`a + b * c` for `(a + b) * c`, and the other way round: brackets forgotten or too many."""
    outer, text = node, site.text
    symbol = SYMBOLS[type(outer.op)]
    if isinstance(outer.left, ast.BinOp):
        inner = outer.left
        sign = SYMBOLS[type(inner.op)]
        yield site.replace(outer, f"{text(inner.left)} {sign} ({text(inner.right)} {symbol} {text(outer.right)})")
    if isinstance(outer.right, ast.BinOp):
        inner = outer.right
        sign = SYMBOLS[type(inner.op)]
        yield site.replace(outer, f"({text(outer.left)} {symbol} {text(inner.left)}) {sign} {text(inner.right)}")


TEMPLATES: tuple[Template, ...] = (
    other_comparison, other_operator, other_augmented_operator, and_or, drop_clause, negate, drop_unary, negative,
    swap_operands, drop_operand, regroup,
)  # fmt: skip
