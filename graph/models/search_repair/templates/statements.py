"""A statement that is missing, too many, in the wrong place or of the wrong form."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator

from graph.models.search_repair.scopes import BOOL, MAPPING, NUMBER, OBJECT, SEQUENCE, SET, STRING
from graph.models.search_repair.source import Change, Function, is_compound, names_in
from graph.models.search_repair.templates.base import Site, Template, Variant, template

_SIMPLE = (ast.Expr, ast.Assign, ast.AugAssign, ast.Return, ast.Delete, ast.Raise, ast.Continue, ast.Break)
_LOOPS = (ast.For, ast.AsyncFor, ast.While)


# -- wrong form ----------------------------------------------------------------------------------------------


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
    for expected in _expected_errors(site) if kind is not None else []:
        if kind is not None and expected != site.text(kind):
            yield site.replace(kind, expected)


def _expected_errors(site: Site) -> list[str]:
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


# -- missing -------------------------------------------------------------------------------------------------


@template(ast.FunctionDef, ast.AsyncFunctionDef, family="guard", prior=0.4)
def early_return(site: Site, node: Function) -> Iterator[Variant]:
    """A case that must be answered before anything else: nothing given, the end of a recursion."""
    first = _first_statement(site, node)
    if first is None or not site.starts_its_line(first):
        return
    inner = Site(source=site.source, node=first, failure=site.failure)
    recursive = any(
        isinstance(each, ast.Call) and isinstance(each.func, ast.Name) and each.func.id == node.name
        for each in ast.walk(node)
    )
    weight = (
        1.0
        if recursive or site.failure.errors & {"RecursionError", "IndexError", "ZeroDivisionError", "AttributeError"}
        else 0.7
    )
    for condition, fit in _starting_conditions(inner):
        for answer, likely in _answers(inner, condition):
            yield inner.insert_before(first, f"if {condition}:\n    return {answer}", weight * fit * likely)


def _first_statement(site: Site, node: Function) -> ast.stmt | None:
    body = [each for each in node.body if not site.source.is_docstring(each)]
    return body[0] if body and body[0].lineno != node.lineno else None


def _starting_conditions(site: Site) -> Iterator[tuple[str, float]]:
    for name in site.scope.parameters:
        if name in {"self", "cls"}:
            continue
        kinds = site.scope.kinds(name)
        if NUMBER in kinds or not kinds:
            yield from ((f"{name} == 0", 0.8), (f"{name} <= 0", 0.7), (f"{name} <= 1", 0.6), (f"{name} < 0", 0.5))
        if NUMBER not in kinds:
            yield f"not {name}", 1.0
            yield f"{name} is None", 0.7
        if kinds & {SEQUENCE, STRING}:
            yield f"len({name}) <= 1", 0.5


def _answers(site: Site, condition: str) -> Iterator[tuple[str, float]]:
    """What to return early: what is asked for, or an empty value like those that the function returns elsewhere."""
    function = site.source.function(site.node)
    returned = [
        each.value
        for each in ast.walk(function or site.source.tree)
        if isinstance(each, ast.Return) and each.value is not None
    ]
    kinds = {kind for value in returned for kind in site.scope.kind(value)}
    asked = sorted(names_in(ast.parse(condition, mode="eval")) - {"len"})
    fitting: dict[str, set[str]] = {
        "0": {NUMBER},
        "1": {NUMBER},
        "[]": {SEQUENCE},
        "''": {STRING},
        "False": {BOOL},
        "True": {BOOL},
        "{}": {MAPPING},
        "None": {OBJECT},
        "[[]]": {SEQUENCE},
    }
    constants = [
        each for each in (ast.unparse(value) for value in returned if not names_in(value)) if each not in fitting
    ]
    for name in asked:
        yield name, 0.8
    for answer, wanted in fitting.items():
        yield answer, 1.0 if kinds & wanted else 0.35 if kinds else 0.6
    for answer in constants[:3]:
        yield answer, 0.6


@template(ast.FunctionDef, ast.AsyncFunctionDef, family="guard", prior=0.5)
def refuse_argument(site: Site, node: Function) -> Iterator[Variant]:
    """The tests wait for an error that nothing raises."""
    first = _first_statement(site, node)
    if (
        first is None
        or not site.starts_its_line(first)
        or not any("DID NOT RAISE" in each for each in site.failure.messages)
    ):
        return
    inner = Site(source=site.source, node=first, failure=site.failure)
    for error in _expected_errors(inner)[:2]:
        for condition, fit in [*_starting_conditions(inner), *_refusals(inner)]:
            yield inner.insert_before(first, f"if {condition}:\n    raise {error}({condition!r})", fit)


def _refusals(site: Site) -> Iterator[tuple[str, float]]:
    for name in site.scope.parameters:
        for kind in ("int", "str", "list"):
            yield f"not isinstance({name}, {kind})", 0.4
        for other in site.scope.parameters:
            if other != name and name not in {"self", "cls"} and other not in {"self", "cls"}:
                yield f"{name} > {other}", 0.4


@template(ast.stmt, family="insert", prior=0.3)
def insert_statement(site: Site, node: ast.stmt) -> Iterator[Variant]:
    """A statement was forgotten here: one like those that the function has already, or a usual step."""
    if site.source.function(node) is None or site.source.is_docstring(node) or not site.starts_its_line(node):
        return
    if isinstance(node, ast.If) and site.source.text.startswith("elif", site.source.span(node)[0]):
        return
    place = site.source.places[node]
    last = place.position == len(place.block) - 1 and not isinstance(
        node, ast.Return | ast.Raise | ast.Break | ast.Continue
    )
    for text, weight in _ingredients(site, node):
        yield site.insert_before(node, text, weight)
        if last:
            yield site.insert_after(node, text, weight)


def _ingredients(site: Site, node: ast.stmt) -> Iterator[tuple[str, float]]:
    seen: dict[str, float] = {}
    for text, weight in [*_usual_steps(site), *_own_statements(site, node)]:
        seen[text] = max(weight, seen.get(text, 0.0))
    neighbours = _neighbours(site, node)
    for text, weight in seen.items():
        if text not in neighbours:
            yield text, weight


def _neighbours(site: Site, node: ast.stmt) -> set[str]:
    place = site.source.places[node]
    around = place.block[max(0, place.position - 1) : place.position + 1]
    return {site.text(each) for each in around}


def _usual_steps(site: Site) -> Iterator[tuple[str, float]]:
    """Progress in a loop, collecting, remembering: what loops and searches are made of."""
    names = site.scope.candidates(site.node)
    loop = site.source.loop(site.node)
    inside = 1.0 if loop is not None else 0.5
    stored = {
        each.id for each in ast.walk(site.scope.node) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)
    }
    single = [each for each in names if not site.scope.kinds(each) & {SEQUENCE, SET, MAPPING}]
    for name in names:
        kinds = site.scope.kinds(name)
        if name in stored and (NUMBER in kinds):
            yield from ((f"{name} += 1", 0.7 * inside), (f"{name} -= 1", 0.5 * inside))
        for other in names if kinds & {SEQUENCE, SET} else ():
            one = other in single
            if other != name and SET in kinds:
                yield f"{name}.add({other})", (0.9 if one else 0.4) * inside
            if other != name and SEQUENCE in kinds and NUMBER not in kinds:
                yield f"{name}.append({other})", (0.9 if one or STRING in site.scope.kinds(other) else 0.4)
    for name in sorted(stored & set(names)):
        for other in names:
            if other != name and site.scope.fits(other, site.scope.kinds(name)) > 0.5:
                yield f"{name} = {other}", 0.8 * inside if loop is not None else 0.3
    if loop is not None:
        yield from (("break", 0.2), ("continue", 0.2))


def _own_statements(site: Site, node: ast.stmt) -> Iterator[tuple[str, float]]:
    """Statements of the same function, as they are and with one variable exchanged."""
    names = site.scope.candidates(node)
    left_over = _in_loop_before(site, node)
    for statement in ast.walk(site.source.function(node) or site.source.tree):
        if not _is_ingredient(site, node, statement):
            continue
        text = site.text(statement)
        weight = 0.6 if isinstance(statement, ast.Expr) else 0.3 if isinstance(statement, ast.Return) else 0.5
        if statement in left_over:
            weight = 0.9  # what is left when a loop ends must often be dealt with as in the loop
        yield text, weight
        for old in sorted(names_in(statement) & set(names)):
            for new in names:
                if new != old and site.scope.fits(new, site.scope.kinds(old)) > 0.5:
                    yield re.sub(rf"\b{re.escape(old)}\b", new, text), weight * 0.7


def _is_ingredient(site: Site, node: ast.stmt, statement: ast.AST) -> bool:
    if not isinstance(statement, _SIMPLE) or site.source.is_docstring(statement):
        return False
    if isinstance(statement, ast.Break | ast.Continue) and site.source.loop(node) is None:
        return False
    text = site.text(statement)
    return "\n" not in text and len(text) <= 80


def _in_loop_before(site: Site, node: ast.stmt) -> set[ast.AST]:
    place = site.source.places[node]
    before = place.block[place.position - 1] if place.position else None
    return set(ast.walk(before)) if isinstance(before, _LOOPS) else set()


@template(ast.stmt, family="insert", prior=0.2)
def insert_jump(site: Site, node: ast.stmt) -> Iterator[Variant]:
    """Leave early where a condition that the function asks elsewhere holds."""
    function = site.source.function(node)
    if function is None or not site.starts_its_line(node) or site.source.is_docstring(node):
        return
    if isinstance(node, ast.If) and site.source.text.startswith("elif", site.source.span(node)[0]):
        return
    loop = site.source.loop(node)
    names = site.scope.candidates(node)
    conditions = [f"not {each}" for each in names if site.scope.kinds(each) & {SEQUENCE, SET, STRING, MAPPING}]
    conditions += [f"{each} is None" for each in names if not site.scope.kinds(each) & {NUMBER, SEQUENCE}]
    conditions += [
        f"{one} in {many}"
        for many in names
        if site.scope.kinds(many) & {SET, MAPPING, SEQUENCE}
        for one in names
        if one != many and not site.scope.kinds(one) & {SEQUENCE, SET, MAPPING}
    ]
    conditions += [ast.unparse(each) for each in ast.walk(function) if isinstance(each, ast.Compare)]
    for condition in dict.fromkeys(conditions):
        if loop is not None:
            yield site.insert_before(node, f"if {condition}:\n    continue", 0.8)
            yield site.insert_before(node, f"if {condition}:\n    break", 0.6)
        yield site.insert_before(node, f"if {condition}:\n    return", 0.25)


@template(ast.FunctionDef, ast.AsyncFunctionDef, family="return", prior=0.4)
def final_return(site: Site, node: Function) -> Iterator[Variant]:
    """The function comes to its end without a result."""
    last = node.body[-1]
    if (
        isinstance(last, ast.Return | ast.Raise)
        or not site.starts_its_line(last)
        or any(isinstance(each, ast.Yield) for each in ast.walk(node))
    ):
        return
    inner = Site(source=site.source, node=last, failure=site.failure)
    names = [each for each in inner.scope.candidates(last) if each in inner.scope.locals]
    silent = not any(isinstance(each, ast.Return) and each.value is not None for each in ast.walk(node))
    for name in names:
        yield inner.insert_after(last, f"return {name}", 1.0 if silent else 0.6)
    for constant in ("True", "False", "None", "[]", "0", "self"):
        yield inner.insert_after(last, f"return {constant}", 0.4)


@template(ast.FunctionDef, ast.AsyncFunctionDef, family="name", prior=0.8)
def mutable_default(site: Site, node: Function) -> Iterator[Variant]:
    """A default list is shared by all calls."""
    first = _first_statement(site, node)
    if first is None or not site.starts_its_line(first):
        return
    arguments = node.args
    positional = [*arguments.posonlyargs, *arguments.args]
    pairs = list(zip(positional[len(positional) - len(arguments.defaults) :], arguments.defaults, strict=True))
    pairs += [
        (each, default)
        for each, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
        if default is not None
    ]
    for argument, default in pairs:
        if isinstance(default, ast.List | ast.Dict | ast.Set | ast.ListComp | ast.Call):
            inner = Site(source=site.source, node=first, failure=site.failure)
            guard = inner.insert_before(first, f"if {argument.arg} is None:\n    {argument.arg} = {site.text(default)}")
            yield Variant((Change(*site.source.span(default), "None"), *guard.changes), 1.0)


@template(ast.FunctionDef, ast.AsyncFunctionDef, family="name", prior=0.8)
def outer_variable(site: Site, node: Function) -> Iterator[Variant]:
    """An assignment made a variable local that belongs to the function or the module around."""
    first = _first_statement(site, node)
    if first is None or not site.starts_its_line(first):
        return
    inner = Site(source=site.source, node=first, failure=site.failure)
    for name in _names_in_messages(site, "UnboundLocalError", "local variable"):
        if name in inner.scope.locals:
            word = "nonlocal" if site.source.function(node) is not None else "global"
            yield inner.insert_before(first, f"{word} {name}")
            for start in ("0", "[]", "None", "''", "{}", "1"):
                yield inner.insert_before(first, f"{name} = {start}", 0.4)


def _names_in_messages(site: Site, *hints: str) -> list[str]:
    texts = [
        each
        for each in site.failure.messages
        if site.failure.errors & set(hints) or any(hint in each for hint in hints)
    ]
    return list(dict.fromkeys(name for text in texts for name in re.findall(r"'(\w+)'", text)))


@template(ast.Module, family="name", prior=0.8)
def missing_import(site: Site, node: ast.AST) -> Iterator[Variant]:
    """A name of the standard library that nobody imported."""
    body = [each for each in site.source.tree.body if not site.source.is_docstring(each)]
    body = [each for each in body if not (isinstance(each, ast.ImportFrom) and each.module == "__future__")] or body
    if not body or "NameError" not in site.failure.errors:
        return
    inner = Site(source=site.source, node=body[0], failure=site.failure)
    for name in _names_in_messages(site, "NameError"):
        if name in sys.stdlib_module_names:
            yield inner.insert_before(body[0], f"import {name}")
        for module in _EXPORTS.get(name, ()):
            yield inner.insert_before(body[0], f"from {module} import {name}")


_EXPORTS = {
    name: (module,)
    for module, names in {
        "bisect": ("bisect_left", "bisect_right"),
        "collections": ("deque", "defaultdict", "Counter", "OrderedDict", "namedtuple"),
        "copy": ("deepcopy",),
        "dataclasses": ("dataclass", "field"),
        "datetime": ("date", "timedelta", "timezone"),
        "decimal": ("Decimal",),
        "functools": ("reduce", "partial", "wraps", "lru_cache", "cache"),
        "heapq": ("heappush", "heappop", "heapify", "nlargest", "nsmallest"),
        "itertools": ("permutations", "combinations", "product", "chain", "count", "groupby", "accumulate"),
        "math": ("sqrt", "ceil", "floor", "gcd", "pi", "log", "inf"),
        "pathlib": ("Path",),
    }.items()
    for name in names
}


# -- too many, wrong place -----------------------------------------------------------------------------------


@template(ast.stmt, family="delete", prior=0.15)
def delete_statement(site: Site, node: ast.stmt) -> Iterator[Variant]:
    if not isinstance(node, _SIMPLE) or site.source.is_docstring(node) or not site.starts_its_line(node):
        return
    place = site.source.places[node]
    if len(place.block) > 1:
        yield Variant((site.delete_lines(node),), 1.0)
    else:
        yield site.replace(node, "pass", 0.8)


@template(ast.stmt, family="move", prior=0.3)
def swap_statements(site: Site, node: ast.stmt) -> Iterator[Variant]:
    place = site.source.places[node]
    if place.position + 1 < len(place.block):
        following = place.block[place.position + 1]
        if all(site.starts_its_line(each) and not site.source.is_docstring(each) for each in (node, following)):
            far = is_compound(node) or is_compound(following)
            yield site.swap(node, following, 0.5 if far else 1.0)


@template(ast.Assign, family="move", prior=0.4)
def at_once(site: Site, node: ast.Assign) -> Iterator[Variant]:
    """`a = b` then `b = a + b`: both right sides were meant with the old values."""
    place = site.source.places[node]
    following = place.block[place.position + 1] if place.position + 1 < len(place.block) else None
    match node, following:
        case ast.Assign(targets=[ast.Name(id=one) as first], value=left), ast.Assign(
            targets=[ast.Name() as second], value=right
        ) if one in names_in(right):
            start, end = site.source.span(node)[0], site.source.span(following)[1]
            yield Variant(
                (
                    Change(
                        start, end, f"{site.text(first)}, {site.text(second)} = {site.text(left)}, {site.text(right)}"
                    ),
                ),
                1.0,
            )


@template(ast.stmt, family="move", prior=0.4)
def move_out(site: Site, node: ast.stmt) -> Iterator[Variant]:
    """The last statement of a block belongs after it; most often a `return` that ends a loop at once."""
    place = site.source.places[node]
    owner = place.owner
    if (
        not isinstance(owner, ast.If | ast.With | ast.Try | ast.For | ast.While)
        or place.position != len(place.block) - 1
    ):
        return
    if not site.starts_its_line(node) or owner.end_lineno is None or len(place.block) < 1:
        return
    outer = site.source.indent(owner)
    text = _reindented(site, node, outer)
    at = site.source.line_start(owner.end_lineno + 1)
    text = (
        text
        if at != len(site.source.text) or site.source.text.endswith("\n")
        else site.source.newline + text.rstrip("\r\n")
    )
    weight = 1.0 if isinstance(node, ast.Return) else 0.6
    gone = site.delete_lines(node)
    if len(place.block) == 1:
        gone = gone._replace(text=site.source.indent(node) + "pass" + site.source.newline)
        weight *= 0.4
    yield Variant((gone, Change(at, at, text)), weight)


@template(ast.stmt, family="move", prior=0.3)
def move_in(site: Site, node: ast.stmt) -> Iterator[Variant]:
    """What stands after a loop or a condition belongs inside, at its end."""
    place = site.source.places[node]
    before = place.block[place.position - 1] if place.position else None
    if not isinstance(before, ast.For | ast.While | ast.If | ast.With) or not site.starts_its_line(node):
        return
    for block in (before.body, before.orelse if not isinstance(before, ast.With) else []):
        if block and block[-1].lineno != before.lineno:
            moved = _reindented(site, node, site.source.indent(block[-1]))
            at = site.source.line_start((block[-1].end_lineno or 0) + 1)
            leaves = len(place.block) > 1
            yield Variant((Change(at, at, moved), site.delete_lines(node)), 0.8 if leaves else 0.1)


def _reindented(site: Site, statement: ast.stmt, indent: str) -> str:
    old = site.source.indent(statement)
    change = site.delete_lines(statement)
    lines = site.source.text[change.start : change.end].splitlines()
    moved = [indent + line[len(old) :] if line.startswith(old) else line for line in lines]
    return "".join(line + site.source.newline for line in moved)


@template(ast.If, family="condition", prior=0.3)
def swap_bodies(site: Site, node: ast.If) -> Iterator[Variant]:
    """`then` and `else` the wrong way round, where the condition itself can't be turned."""
    body, other = node.body, node.orelse
    if (
        other
        and not (len(other) == 1 and isinstance(other[0], ast.If))
        and len(body) == len(other) == 1
        and (
            site.starts_its_line(body[0])
            and site.starts_its_line(other[0])
            and not is_compound(body[0])
            and not is_compound(other[0])
        )
    ):
        yield site.swap(body[0], other[0], 0.8)


@template(ast.If, family="delete", prior=0.12)
def without_condition(site: Site, node: ast.If) -> Iterator[Variant]:
    """What stood under a condition is always done."""
    start, _ = site.source.span(node)
    if node.orelse or site.source.text.startswith("elif", start) or node.body[0].lineno == node.lineno:
        return
    kept = "".join(_reindented(site, each, site.source.indent(node)) for each in node.body)
    whole = site.delete_lines(node)
    yield Variant((whole._replace(text=kept),), 1.0)


@template(ast.stmt, family="guard", prior=0.18)
def only_if(site: Site, node: ast.stmt) -> Iterator[Variant]:
    """What is always done belongs under a condition."""
    if not isinstance(node, ast.Expr | ast.Assign | ast.AugAssign | ast.Return) or site.source.function(node) is None:
        return
    if site.source.is_docstring(node) or not site.starts_its_line(node):
        return
    used = names_in(node)
    indent = site.source.indent(node)
    body = _reindented(site, node, indent + "    ")
    whole = site.delete_lines(node)
    names = site.scope.candidates(node)
    conditions = [(each, 0.8) for each in names if each in used and NUMBER not in site.scope.kinds(each)]
    conditions += [
        (f"{each} is not None", 0.6) for each in names if each in used and NUMBER not in site.scope.kinds(each)
    ]
    for many in names:
        if site.scope.kinds(many) & {SET, MAPPING, SEQUENCE}:
            conditions += [(f"{one} not in {many}", 0.8) for one in names if one != many and one in used]
    function = site.source.function(node)
    conditions += [
        (ast.unparse(each), 0.5) for each in ast.walk(function or site.source.tree) if isinstance(each, ast.Compare)
    ][:8]
    for condition, weight in conditions:
        yield Variant((whole._replace(text=f"{indent}if {condition}:{site.source.newline}{body}"),), weight)


TEMPLATES: tuple[Template, ...] = (
    assign_or_add, update_or_assign, in_place_method, missing_return, other_return, other_jump, if_or_elif, once,
    other_exception, other_raise, early_return, refuse_argument, insert_statement, insert_jump, final_return,
    mutable_default, outer_variable, missing_import, delete_statement, swap_statements, at_once, move_out, move_in,
    swap_bodies, without_condition, only_if,
)  # fmt: skip
