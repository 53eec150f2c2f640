"""Something is missing: a guard, a case, a step, a return, a declaration, an import."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator

from graph.models.search_repair.scopes import BOOL, MAPPING, NUMBER, OBJECT, SEQUENCE, SET, STRING
from graph.models.search_repair.source import Change, Function, is_compound, names_in
from graph.models.search_repair.templates.base import SIMPLE, Site, Template, Variant, expected_errors, template

_LOOPS = (ast.For, ast.AsyncFor, ast.While)


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
    for error in expected_errors(inner)[:2]:
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
    if site.source.function(node) is None or not _can_precede(site, node):
        return
    place = site.source.places[node]
    last = place.position == len(place.block) - 1 and not isinstance(
        node, ast.Return | ast.Raise | ast.Break | ast.Continue
    )
    for text, weight in _ingredients(site, node):
        yield site.insert_before(node, text, weight)
        if last:
            yield site.insert_after(node, text, weight)


def _can_precede(site: Site, node: ast.stmt) -> bool:
    """Whether a line can stand before the statement."""
    if site.source.is_docstring(node) or not site.starts_its_line(node):
        return False
    return not (isinstance(node, ast.If) and site.source.text.startswith("elif", site.source.span(node)[0]))


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
    inside = 1.0 if site.source.loop(site.node) is not None else 0.5
    names = site.scope.candidates(site.node)
    own = [each for each in ast.walk(site.scope.node) if isinstance(each, ast.Name)]
    stored = {each.id for each in own if isinstance(each.ctx, ast.Store)}
    for name in names:
        if name in stored and NUMBER in site.scope.kinds(name):
            yield from ((f"{name} += 1", 0.7 * inside), (f"{name} -= 1", 0.5 * inside))
        yield from _collecting(site, name, names, inside)
    for name in sorted(stored & set(names)):
        for other in names:
            if other != name and site.scope.fits(other, site.scope.kinds(name)) > 0.5:
                yield f"{name} = {other}", 0.8 if inside == 1.0 else 0.3
    if inside == 1.0:
        yield from (("break", 0.2), ("continue", 0.2))


def _collecting(site: Site, name: str, names: list[str], inside: float) -> Iterator[tuple[str, float]]:
    """Put something into a collection; one that nothing is ever put into is asking for it."""
    kinds = site.scope.kinds(name)
    if not kinds & {SEQUENCE, SET}:
        return
    filled = re.search(
        rf"\b{re.escape(name)}(\.(add|append|update|extend|insert|appendleft)\(| \+=|\[)", site.source.text
    )
    inside = inside if filled else 1.0
    for other in names:
        if other == name:
            continue
        one = not site.scope.kinds(other) & {SEQUENCE, SET, MAPPING} or STRING in site.scope.kinds(other)
        weight = (0.9 if filled else 1.0) if one else 0.4
        if SET in kinds:
            yield f"{name}.add({other})", weight * inside
        elif NUMBER not in kinds:
            yield f"{name}.append({other})", weight


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
    if not isinstance(statement, SIMPLE) or site.source.is_docstring(statement):
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
    if function is None or not _can_precede(site, node):
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


@template(ast.stmt, family="guard", prior=0.45)
def none_guard(site: Site, node: ast.stmt) -> Iterator[Variant]:
    """None stood where the statement waits for a value: leave before it."""
    told = [each for each in site.failure.messages if "NoneType" in each]
    if not told or site.source.function(node) is None or not _can_precede(site, node):
        return
    looping = site.source.loop(node) is not None
    for text, weight in _perhaps_none(site, node, told):
        condition = f"{text} is None"
        if looping:
            yield site.insert_before(node, f"if {condition}:\n    continue", 0.9 * weight)
        yield site.insert_before(node, f"if {condition}:\n    return None", 0.8 * weight)
        for answer, likely in _answers(site, condition):
            yield site.insert_before(node, f"if {condition}:\n    return {answer}", 0.6 * likely * weight)


def _perhaps_none(site: Site, node: ast.stmt, told: list[str]) -> Iterator[tuple[str, float]]:
    """What the statement, or the head of a compound one, reads; most likely what the message speaks of."""
    head = getattr(node, "test", None) or getattr(node, "iter", None) or node
    if head is node and is_compound(node):
        return
    seen: dict[str, float] = {}
    for each in ast.walk(head):
        parent = site.source.parent(each)
        called = isinstance(parent, ast.Call) and parent.func is each
        if isinstance(each, ast.Name | ast.Attribute | ast.Subscript) and isinstance(each.ctx, ast.Load) and not called:
            named = isinstance(parent, ast.Attribute) and any(f"attribute '{parent.attr}'" in text for text in told)
            text = ast.unparse(each)
            if "(" not in text and text not in {"self", "cls"}:
                seen[text] = max(1.0 if named else 0.5, seen.get(text, 0.0))
    yield from seen.items()


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


TEMPLATES: tuple[Template, ...] = (
    early_return,
    refuse_argument,
    insert_statement,
    insert_jump,
    none_guard,
    final_return,
    mutable_default,
    outer_variable,
    missing_import,
)
