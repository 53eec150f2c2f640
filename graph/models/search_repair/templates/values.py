"""Wrong constant, off by one, wrong variable, wrong attribute."""

from __future__ import annotations

import ast
import builtins
import difflib
import re
from collections.abc import Iterator

from graph.models.search_repair.scopes import CALLABLE, NUMBER, SEQUENCE, STRING
from graph.models.search_repair.source import Change, Function, names_in
from graph.models.search_repair.templates.base import Site, Template, Variant, template

_BOUNDS = (ast.Subscript, ast.Slice, ast.Call)


@template(ast.Constant, family="constant", prior=0.7)
def other_number(site: Site, node: ast.Constant) -> Iterator[Variant]:
    value = node.value
    if isinstance(value, bool) or not isinstance(value, int | float):
        return
    if isinstance(value, float) and not value.is_integer():
        yield from (site.replace(node, repr(each), 0.3) for each in (value * 10, value / 10, 1 - value, 0.5))
        return
    near = {value + 1: 1.0, value - 1: 0.9, 0: 0.6, 1: 0.6, 2: 0.35, -value: 0.4, -1: 0.3, value * 2: 0.1}
    if abs(value) >= 10:
        near |= {value * 10: 0.3, value // 10: 0.3, value * 100: 0.1}
    for other, weight in near.items():
        if other != value:
            yield site.replace(node, repr(other), weight * (0.6 if other < 0 else 1.0))


_LITERAL = r"-?(?:0|[1-9]\d{0,17})(?:\.\d{1,17})?|'[^'\\\x00-\x1f\ud800-\udfff]*'"
_EQUATION = re.compile(rf"\bassert ({_LITERAL}) == ({_LITERAL})(?=\s|$)")


@template(ast.Constant, family="constant", prior=0.8)
def expected_value(site: Site, node: ast.Constant) -> Iterator[Variant]:
    """The constant itself reaches the test, which waits for another: `assert 456 == 465`."""
    for message in site.failure.messages:
        for sides in _EQUATION.findall(message):
            one, other = (ast.literal_eval(each) for each in sides)
            for value, wanted in ((one, other), (other, one)):
                if type(node.value) is type(value) and node.value == value != wanted:
                    yield site.replace(node, repr(wanted))


@template(ast.Constant, family="constant", prior=0.7)
def other_truth(site: Site, node: ast.Constant) -> Iterator[Variant]:
    if isinstance(node.value, bool):
        yield site.replace(node, str(not node.value))
        yield site.replace(node, "None", 0.3)
    elif node.value is None:
        for text, weight in (("0", 0.5), ("[]", 0.5), ("False", 0.4), ("''", 0.4), ("{}", 0.4), ("True", 0.2)):
            yield site.replace(node, text, weight)


@template(ast.Constant, family="constant", prior=0.35)
def other_string(site: Site, node: ast.Constant) -> Iterator[Variant]:
    value = node.value
    if not isinstance(value, str) or isinstance(site.parent, ast.Expr | ast.JoinedStr):
        return
    used = [each.value for each in ast.walk(site.source.tree) if isinstance(each, ast.Constant)]
    short = dict.fromkeys(each for each in used if isinstance(each, str) and each != value and len(each) <= 24)
    for other in [*list(short)[:12], "", " ", ", ", ",", "\n"]:
        if other != value:
            yield site.replace(node, repr(other), 0.8 if len(value) <= 3 or other in short else 0.3)
    for other in (value.lower(), value.upper(), value.strip(), value + " "):
        if other != value:
            yield site.replace(node, repr(other), 0.3)


@template(ast.JoinedStr, ast.Constant, family="constant", prior=0.3)
def format_string(site: Site, node: ast.AST) -> Iterator[Variant]:
    """A string with names in braces that lacks its `f`."""
    if (
        isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and not isinstance(site.parent, ast.JoinedStr | ast.Expr)
    ) and any("{" + name in node.value for name in site.scope.visible):
        yield site.replace(node, "f" + site.text(node))


@template(ast.List, ast.Dict, ast.Tuple, family="constant", prior=0.35)
def other_empty(site: Site, node: ast.AST) -> Iterator[Variant]:
    """A wrong empty value, most often as the start of something that is built up."""
    text = site.text(node).replace(" ", "")
    others = {
        "[]": ("[[]]", "{}", "set()", "''", "0", "None"),
        "{}": ("[]", "set()", "None"),
        "()": ("[]", "((),)"),
        "[[]]": ("[]",),
    }
    for position, other in enumerate(others.get(text, ())):
        yield site.replace(node, other, 1.0 - 0.12 * position)
    if text == "[]" and isinstance(site.parent, ast.Return | ast.Assign | ast.Call):
        for name in site.scope.candidates(node)[:6]:
            yield site.replace(node, f"[{name}]", 0.8)


@template(ast.Name, ast.Call, ast.BinOp, ast.Subscript, ast.Attribute, family="offbyone", prior=0.6)
def one_more_or_less(site: Site, node: ast.AST) -> Iterator[Variant]:
    if not isinstance(getattr(node, "ctx", ast.Load()), ast.Load) or not isinstance(node, ast.expr):
        return
    weight = _wants_number(site, node)
    if weight:
        text = (
            site.operand(node)
            if isinstance(node, ast.BinOp) and not isinstance(node.op, ast.Add | ast.Sub)
            else site.text(node)
        )
        closed = isinstance(site.parent, ast.BinOp) and not isinstance(site.parent.op, ast.Add)
        for sign in ("+", "-"):
            yield site.replace(node, f"({text} {sign} 1)" if closed else f"{text} {sign} 1", weight)


def _wants_number(site: Site, node: ast.expr) -> float:
    """How likely a bound or a count stands here; 0 for what is no number."""
    kinds = site.scope.kind(node)
    if kinds and NUMBER not in kinds:
        return 0.0
    known = 1.0 if NUMBER in kinds else 0.5
    match site.parent:
        case ast.Subscript(slice=index) if index is node:
            return known
        case ast.Slice():
            return known
        case ast.Call(func=ast.Name(id="range")):
            return 1.0
        case ast.Call(func=called) if called is not node:
            return 0.75 * known
        case ast.Compare():
            return 0.6 * known
        case ast.Tuple() | ast.Return() | ast.Assign() | ast.AugAssign() | ast.keyword():
            return 0.5 * known
        case ast.BinOp() if isinstance(node, ast.Call | ast.Name):
            return 0.8 if isinstance(node, ast.Call) and site.text(node).startswith("len(") else 0.45 * known
        case _:
            return 0.0


@template(ast.Name, family="name", prior=0.7)
def other_variable(site: Site, node: ast.Name) -> Iterator[Variant]:
    name = node.id
    if CALLABLE in site.scope.kinds(name) or name in {"self", "cls"}:
        return
    stored = 1.0 if isinstance(node.ctx, ast.Load) else 0.45
    wanted = site.scope.kinds(name)
    for other in site.scope.candidates(node):
        if other != name:
            yield site.replace(node, other, stored * site.scope.fits(other, wanted))
    for other in site.scope.module_names:
        if other != name and other not in site.scope.visible and CALLABLE not in site.scope.kinds(other):
            yield site.replace(node, other, 0.35 * stored * site.scope.fits(other, wanted))


@template(ast.Subscript, ast.Call, ast.Attribute, ast.BinOp, family="name", prior=0.3)
def variable_for_expression(site: Site, node: ast.AST) -> Iterator[Variant]:
    if not isinstance(getattr(node, "ctx", ast.Load()), ast.Load) or isinstance(site.parent, ast.Expr):
        return
    wanted = site.scope.kind(node)
    for name in site.scope.candidates(node):
        if not (isinstance(site.parent, ast.Assign) and name in {site.text(each) for each in site.parent.targets}):
            yield site.replace(node, name, site.scope.fits(name, wanted))


@template(ast.Name, ast.Constant, family="name", prior=0.22)
def expression_for_value(site: Site, node: ast.AST) -> Iterator[Variant]:
    """An expression that the same function uses elsewhere stands in for a variable or a constant."""
    if not isinstance(getattr(node, "ctx", ast.Load()), ast.Load) or not _is_value(site):
        return
    function = site.source.function(node)
    seen = {site.text(node)}
    for other in ast.walk(function or site.source.tree):
        if not isinstance(other, ast.Subscript | ast.Call | ast.Attribute | ast.BinOp) or not isinstance(
            getattr(other, "ctx", ast.Load()), ast.Load
        ):
            continue
        text = site.operand(other)
        if text not in seen and len(text) <= 40 and "\n" not in text and node not in ast.walk(other):
            seen.add(text)
            kinds, wanted = site.scope.kind(other), site.scope.kind(node)
            yield site.replace(node, text, 0.4 if kinds and wanted and not kinds & wanted else 0.9)


def _is_value(site: Site) -> bool:
    if isinstance(site.node, ast.Name) and (CALLABLE in site.scope.kinds(site.node.id) or site.node.id == "self"):
        return False
    if isinstance(site.node, ast.Constant) and isinstance(site.parent, ast.Expr | ast.JoinedStr):
        return False
    return not isinstance(site.parent, Function | ast.arg | ast.arguments)


@template(ast.Name, family="operand", prior=0.3)
def adjust_by_variable(site: Site, node: ast.Name) -> Iterator[Variant]:
    """`k` becomes `k - count`: a count that has to be carried along."""
    if not isinstance(node.ctx, ast.Load) or not isinstance(
        site.parent, ast.Call | ast.Subscript | ast.Slice | ast.Compare | ast.Return | ast.Assign
    ):
        return
    kinds = site.scope.kinds(node.id)
    if kinds and NUMBER not in kinds:
        return
    for other in site.scope.candidates(node):
        if other != node.id and NUMBER in site.scope.kinds(other):
            for sign, weight in (("-", 1.0), ("+", 0.9), ("*", 0.2)):
                yield site.replace(node, f"{node.id} {sign} {other}", weight)


@template(ast.Name, family="operand", prior=0.5)
def use_loop_variable(site: Site, node: ast.Name) -> Iterator[Variant]:
    """A loop takes a value apart and leaves a part unused: `sum(price for price, count in lines)`."""
    if not isinstance(node.ctx, ast.Load) or CALLABLE in site.scope.kinds(node.id):
        return
    if isinstance(site.parent, ast.Attribute | ast.Call) and node not in getattr(site.parent, "args", ()):
        return
    closed = isinstance(site.parent, ast.BinOp | ast.UnaryOp)
    for other in _idle_loop_variables(site):
        for sign, weight in (("*", 1.0), ("+", 0.7), ("-", 0.6), ("/", 0.3)):
            whole = f"{node.id} {sign} {other}"
            yield site.replace(node, f"({whole})" if closed else whole, weight)


def _idle_loop_variables(site: Site) -> list[str]:
    """Names that the loops and comprehensions around the place bind, and that nobody reads."""
    names: dict[str, None] = {}
    for around in site.source.ancestors(site.node):
        loops = [around] if isinstance(around, ast.For | ast.AsyncFor) else getattr(around, "generators", [])
        for loop in loops:
            read = {
                each.id for each in ast.walk(around) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load)
            }
            names |= dict.fromkeys(sorted(each for each in names_in(loop.target) - read if not each.startswith("_")))
    return list(names)


@template(ast.Name, family="operand", prior=0.2)
def square(site: Site, node: ast.Name) -> Iterator[Variant]:
    if isinstance(node.ctx, ast.Load) and isinstance(site.parent, ast.BinOp | ast.Compare):
        kinds = site.scope.kinds(node.id)
        if NUMBER in kinds or not kinds:
            yield site.replace(node, f"{node.id} ** 2")
            yield site.replace(node, f"({node.id} / 2)", 0.3)


@template(ast.Return, ast.Assign, family="operand", prior=0.3)
def join_variable(site: Site, node: ast.Return | ast.Assign) -> Iterator[Variant]:
    """What is returned or kept lacks a part: `rest` becomes `first + rest`."""
    value = node.value
    if value is None or isinstance(value, ast.Constant):
        return
    kinds = site.scope.kind(value)
    text = site.operand(value)
    for name in site.scope.candidates(value):
        own = site.scope.kinds(name)
        if kinds & {SEQUENCE, STRING} and not own & {NUMBER}:
            for whole in (f"{text} + {name}", f"{name} + {text}"):
                yield site.replace(value, whole, 0.9 if own & kinds else 0.4)
            yield site.replace(value, f"[{name}] + {text}", 0.2)
            yield site.replace(value, f"{text} + [{name}]", 0.2)
        elif NUMBER in kinds and NUMBER in own:
            for sign in "+-*":
                yield site.replace(value, f"{text} {sign} {name}", 0.5)


@template(ast.Attribute, family="attribute", prior=0.6)
def other_attribute(site: Site, node: ast.Attribute) -> Iterator[Variant]:
    called = isinstance(site.parent, ast.Call) and site.parent.func is node
    name = node.attr
    end = site.source.span(node)[1]
    for other in site.source.attributes:
        if other != name and _is_called(site, other) == called:
            weight = 0.5 + 0.5 * difflib.SequenceMatcher(None, name, other).ratio()
            yield Variant((Change(end - len(name), end, other),), weight)


def _is_called(site: Site, attribute: str) -> bool:
    return any(
        isinstance(each, ast.Call) and isinstance(each.func, ast.Attribute) and each.func.attr == attribute
        for each in ast.walk(site.source.tree)
    )


@template(ast.Attribute, family="attribute", prior=0.2)
def drop_attribute(site: Site, node: ast.Attribute) -> Iterator[Variant]:
    if not (isinstance(site.parent, ast.Call) and site.parent.func is node) and site.text(node.value) != "self":
        yield site.replace(node, site.text(node.value))


@template(ast.Name, family="attribute", prior=0.3)
def add_attribute(site: Site, node: ast.Name) -> Iterator[Variant]:
    """`node` becomes `node.value`, for attributes that the file reads."""
    if not isinstance(node.ctx, ast.Load) or isinstance(site.parent, ast.Attribute) or not _is_value(site):
        return
    kinds = site.scope.kinds(node.id)
    for name in list(site.source.attributes)[:12]:
        if not _is_called(site, name) and (not kinds or "object" in kinds):
            yield site.replace(node, f"{node.id}.{name}", 0.8)


@template(ast.Name, family="name", prior=0.5)
def known_name(site: Site, node: ast.Name) -> Iterator[Variant]:
    """A name that does not exist: one that looks like it does, or the object's own attribute."""
    name = node.id
    if not any(f"'{name}'" in message for message in site.failure.messages):
        return
    known = [*site.scope.visible, *site.scope.module_names, *dir(builtins)]
    for position, other in enumerate(
        difflib.get_close_matches(name, [each for each in known if each != name], n=5, cutoff=0.5)
    ):
        yield site.replace(node, other, 1.0 - 0.15 * position)
    if "self" in site.scope.visible:
        yield site.replace(node, f"self.{name}", 0.9)
    if isinstance(node.ctx, ast.Load):
        yield site.replace(node, repr(name), 0.3)


@template(ast.arguments, family="constant", prior=0.25)
def other_default(site: Site, node: ast.arguments) -> Iterator[Variant]:
    for default in [*node.defaults, *(each for each in node.kw_defaults if each is not None)]:
        text = site.text(default)
        for other in ("None", "0", "1", "True", "False", "''"):
            if other != text:
                yield site.replace(default, other, 0.5)


TEMPLATES: tuple[Template, ...] = (
    other_number, expected_value, other_truth, other_string, format_string, other_empty, one_more_or_less,
    other_variable, variable_for_expression, expression_for_value, adjust_by_variable, use_loop_variable, square,
    join_variable, other_attribute, drop_attribute, add_attribute, known_name, other_default,
)  # fmt: skip
