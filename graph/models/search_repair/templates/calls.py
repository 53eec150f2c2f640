"""Wrong function, wrong arguments, a call too many or one too few."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Iterator

from graph.models.search_repair.scopes import BOOL, CALLABLE, MAPPING, NUMBER, SEQUENCE, SET, STRING
from graph.models.search_repair.source import Change, names_in
from graph.models.search_repair.templates.base import Site, Template, Variant, template

FUNCTIONS: tuple[tuple[str, ...], ...] = (
    ("any", "all"),
    ("min", "max"),
    ("sum", "len", "max", "min"),
    ("sorted", "reversed", "list"),
    ("list", "tuple", "set", "sorted", "dict", "frozenset"),
    ("int", "float", "round", "str"),
    ("range", "enumerate", "len"),
    ("floor", "ceil", "trunc", "round"),
    ("filter", "map"),
    ("zip", "zip_longest"),
    ("isinstance", "issubclass"),
    ("ord", "chr"),
    ("heappush", "heappop"),
    ("heappushpop", "heapreplace", "heappush"),
    ("nlargest", "nsmallest"),
    ("bisect_left", "bisect_right", "bisect"),
    ("permutations", "combinations", "product", "combinations_with_replacement"),
    ("next", "iter"),
    ("print", "str"),
    ("hasattr", "getattr"),
    ("sin", "cos", "tan"),
    ("gcd", "lcm"),
    ("log", "log2", "log10"),
    ("defaultdict", "Counter", "dict", "OrderedDict"),
    ("copy", "deepcopy"),
    ("dumps", "loads"),
    ("abs", "round"),
)
METHODS: tuple[tuple[str, ...], ...] = (
    ("append", "extend", "insert", "add", "appendleft"),
    ("add", "update", "discard", "append"),
    ("extendleft", "extend"),
    ("pop", "popleft", "popitem", "remove"),
    ("remove", "discard", "pop"),
    ("find", "rfind", "index", "rindex", "count"),
    ("strip", "lstrip", "rstrip"),
    ("removeprefix", "lstrip"),
    ("removesuffix", "rstrip"),
    ("lower", "upper", "title", "capitalize", "casefold", "swapcase"),
    ("startswith", "endswith"),
    ("keys", "values", "items"),
    ("get", "setdefault", "pop"),
    ("split", "rsplit", "splitlines", "partition", "rpartition"),
    ("union", "intersection", "difference", "symmetric_difference"),
    ("issubset", "issuperset", "isdisjoint"),
    ("isdigit", "isalpha", "isalnum", "isnumeric", "isdecimal", "isspace"),
    ("isupper", "islower"),
    ("ljust", "rjust", "center", "zfill"),
    ("read", "readline", "readlines"),
    ("write", "writelines"),
    ("match", "search", "fullmatch"),
    ("findall", "finditer"),
    ("group", "groups"),
    ("encode", "decode"),
    ("total_seconds", "seconds"),
    ("most_common", "elements"),
    ("replace", "translate"),
)


@template(ast.Call, family="call", prior=0.65)
def other_function(site: Site, node: ast.Call) -> Iterator[Variant]:
    called = node.func
    name = called.id if isinstance(called, ast.Name) else called.attr if isinstance(called, ast.Attribute) else ""
    families = FUNCTIONS if isinstance(called, ast.Name) else (*METHODS, *FUNCTIONS)
    end = site.source.span(called)[1]
    seen = {name}
    for family in families:
        for position, other in enumerate(family if name in family else ()):
            if other not in seen:
                seen.add(other)
                yield Variant((Change(end - len(name), end, other),), 1.0 - 0.1 * position)


@template(ast.Call, family="call", prior=0.4)
def other_own_function(site: Site, node: ast.Call) -> Iterator[Variant]:
    if not isinstance(node.func, ast.Name):
        return
    name, given = node.func.id, len(node.args)
    for other in dict.fromkeys([*site.source.module_functions, *site.scope.module_names]):
        if other != name and CALLABLE in site.scope.kinds(other):
            function = site.source.module_functions.get(other)
            same = function is None or len(function.args.args) == given
            alike = difflib.SequenceMatcher(None, name, other).ratio()
            yield site.replace(node.func, other, (0.6 + 0.4 * alike) * (1.0 if same else 0.2))


@template(ast.Name, family="call", prior=0.3)
def other_function_value(site: Site, node: ast.Name) -> Iterator[Variant]:
    """A function that is handed on (`key=len`, `defaultdict(list)`) is the wrong one."""
    if isinstance(site.parent, ast.Call | ast.keyword) and getattr(site.parent, "func", None) is not node:
        for family in FUNCTIONS:
            for other in family if node.id in family else ():
                if other != node.id:
                    yield site.replace(node, other, 0.8)


@template(ast.Call, family="argument", prior=0.7)
def swap_arguments(site: Site, node: ast.Call) -> Iterator[Variant]:
    given = node.args
    for i, first in enumerate(given):
        for j in range(i + 1, len(given)):
            if site.text(first) != site.text(given[j]):
                yield site.swap(first, given[j], 1.0 if j == i + 1 else 0.7)


@template(ast.Call, family="argument", prior=0.25)
def drop_argument(site: Site, node: ast.Call) -> Iterator[Variant]:
    every: list[ast.expr | ast.keyword] = [*node.args, *node.keywords]
    for position, dropped in enumerate(every):
        start, end = site.source.span(dropped)
        if position + 1 < len(every):
            end = site.source.span(every[position + 1])[0]
        elif position:
            start = site.source.span(every[position - 1])[1]
        yield Variant((Change(start, end, ""),), 0.9 if isinstance(dropped, ast.keyword) else 0.7)


_EXTRA: dict[str, tuple[str, ...]] = {
    "sorted": ("reverse=True", "key=len"),
    "sort": ("reverse=True", "key=len"),
    "max": ("default=0", "key=len", "0"),
    "min": ("default=0", "key=len", "0"),
    "get": ("0", "[]", "''", "None"),
    "pop": ("0", "-1", "None"),
    "enumerate": ("1",),
    "split": ("' '", "','"),
    "sum": ("[]",),
    "next": ("None",),
    "round": ("2", "1"),
    "int": ("2", "16"),
    "getattr": ("None",),
    "setdefault": ("[]", "0"),
    "open": ("'w'",),
    "zip": ("strict=True",),
    "dict": (),
    "Counter": (),
    "strip": ("' '", "'\\n'"),
    "reduce": ("0", "1"),
    "accumulate": ("initial=0",),
    "splitlines": ("True",),
    "dumps": ("sort_keys=True",),
}


@template(ast.Call, family="argument", prior=0.4)
def usual_extra_argument(site: Site, node: ast.Call) -> Iterator[Variant]:
    called = node.func
    name = called.id if isinstance(called, ast.Name) else called.attr if isinstance(called, ast.Attribute) else ""
    given = {keyword.arg for keyword in node.keywords}
    for extra in _EXTRA.get(name, ()):
        if extra.split("=")[0] not in given and (name not in {"max", "min"} or "=" not in extra or len(node.args) == 1):
            yield _appended(site, node, extra, 0.9)


@template(ast.Call, family="argument", prior=0.45)
def pass_on_argument(site: Site, node: ast.Call) -> Iterator[Variant]:
    """A parameter with a default that the caller should have passed on."""
    called = node.func
    name = called.id if isinstance(called, ast.Name) else called.attr if isinstance(called, ast.Attribute) else ""
    function = site.functions.get(name)
    if function is None:
        return
    parameters = [each.arg for each in function.args.args if each.arg not in {"self", "cls"}]
    given = {keyword.arg for keyword in node.keywords}
    missing = [
        each
        for each in [*parameters[len(node.args) :], *(each.arg for each in function.args.kwonlyargs)]
        if each not in given
    ]
    for parameter in missing[:3]:
        if parameter in site.scope.visible:
            yield _appended(site, node, f"{parameter}={parameter}", 1.0)
        for variable in site.scope.candidates(node)[:8]:
            if variable != parameter:
                yield _appended(site, node, f"{parameter}={variable}", 0.35)


def _appended(site: Site, node: ast.Call, argument: str, weight: float) -> Variant:
    every: list[ast.expr | ast.keyword] = [*node.args, *node.keywords]
    if every:
        at = max(site.source.span(each)[1] for each in every)
        return Variant((Change(at, at, f", {argument}"),), weight)
    at = site.source.span(node)[1] - 1
    return Variant((Change(at, at, argument),), weight)


@template(ast.Call, family="wrap", prior=0.5)
def unwrap(site: Site, node: ast.Call) -> Iterator[Variant]:
    """`f(x)` becomes `x`; `x.strip()` becomes `x`."""
    if isinstance(site.parent, ast.Expr):
        return
    if isinstance(node.func, ast.Attribute) and site.text(node.func.value) not in site.scope.module_names:
        yield site.replace(node, site.text(node.func.value), 0.7)
    for position, argument in enumerate(node.args[:3]):
        if not isinstance(argument, ast.Starred):
            yield site.replace(
                node,
                site.operand(argument) if isinstance(site.parent, ast.BinOp) else site.text(argument),
                0.9 - 0.2 * position,
            )


@template(
    ast.Name,
    ast.Call,
    ast.Subscript,
    ast.Attribute,
    ast.BinOp,
    ast.ListComp,
    ast.GeneratorExp,
    family="wrap",
    prior=0.35,
)
def wrap(site: Site, node: ast.AST) -> Iterator[Variant]:
    if not isinstance(getattr(node, "ctx", ast.Load()), ast.Load) or isinstance(site.parent, ast.Expr | ast.Attribute):
        return
    if isinstance(site.parent, ast.Call) and site.parent.func is node:
        return
    outer = site.parent.func.id if isinstance(site.parent, ast.Call) and isinstance(site.parent.func, ast.Name) else ""
    text = site.text(node)
    for function, weight in _wrappers(site.scope.kind(node), site.failure.errors):
        if function != outer and not text.startswith(function + "("):
            yield site.replace(node, f"{function}({text})", weight)


def _wrappers(kinds: frozenset[str], errors: frozenset[str]) -> Iterator[tuple[str, float]]:
    unknown = 0.6 if not kinds else 0.0
    typed = 1.6 if "TypeError" in errors else 1.0
    for function, wanted, weight in (
        ("abs", {NUMBER}, 0.8),
        ("int", {NUMBER, STRING}, 0.7 * typed),
        ("round", {NUMBER}, 0.3),
        ("float", {NUMBER, STRING}, 0.3 * typed),
        ("str", {NUMBER}, 0.6 * typed),
        ("len", {SEQUENCE, STRING, MAPPING, SET}, 0.7),
        ("sorted", {SEQUENCE, SET}, 0.8),
        ("list", {SEQUENCE, SET}, 0.6),
        ("set", {SEQUENCE}, 0.7),
        ("tuple", {SEQUENCE}, 0.5 * typed),
        ("sum", {SEQUENCE}, 0.5),
        ("reversed", {SEQUENCE}, 0.5),
        ("max", {SEQUENCE}, 0.3),
        ("min", {SEQUENCE}, 0.3),
        ("enumerate", {SEQUENCE}, 0.2),
        ("bool", {BOOL, SEQUENCE}, 0.2),
        ("dict", {MAPPING}, 0.3),
        ("not ", {BOOL}, 0.2),
        ("any", {SEQUENCE}, 0.15),
        ("all", {SEQUENCE}, 0.15),
    ):
        fit = weight if kinds & wanted else weight * unknown
        if fit:
            yield function, fit


@template(ast.Name, ast.Call, ast.Subscript, ast.Attribute, ast.BinOp, family="wrap", prior=0.4)
def clamp(site: Site, node: ast.AST) -> Iterator[Variant]:
    """`x` becomes `max(0, x)`, `max(best, x)`, `min(limit, x)`: a bound was forgotten."""
    if not isinstance(getattr(node, "ctx", ast.Load()), ast.Load) or not isinstance(
        site.parent, ast.Assign | ast.Return | ast.Call | ast.BinOp | ast.Tuple
    ):
        return
    kinds = site.scope.kind(node)
    if (kinds and NUMBER not in kinds) or (isinstance(site.parent, ast.Call) and site.parent.func is node):
        return
    targets = [each for target in getattr(site.parent, "targets", []) for each in sorted(names_in(target))]
    numbers = [
        each for each in site.scope.candidates(node) if NUMBER in site.scope.kinds(each) and each not in names_in(node)
    ]
    text = site.text(node)
    for bound in dict.fromkeys(["0", "1", *targets, *numbers]):
        weight = 1.0 if bound == "0" or bound in targets else 0.45
        weight *= 1.0 if isinstance(site.parent, ast.Assign | ast.Return) else 0.5
        yield site.replace(node, f"max({bound}, {text})", weight)
        yield site.replace(node, f"min({bound}, {text})", weight * 0.8)


_CLEANERS = (
    "strip()",
    "lower()",
    "upper()",
    "copy()",
    "split()",
    "rstrip()",
    "lstrip()",
    "items()",
    "values()",
    "keys()",
)


@template(ast.Name, ast.Attribute, ast.Subscript, ast.Call, family="wrap", prior=0.3)
def call_method(site: Site, node: ast.AST) -> Iterator[Variant]:
    """`name` becomes `name.strip()`, `lookup` becomes `lookup.items()`: a step was forgotten."""
    if not isinstance(getattr(node, "ctx", ast.Load()), ast.Load) or isinstance(site.parent, ast.Attribute | ast.Expr):
        return
    if isinstance(site.parent, ast.Call) and site.parent.func is node:
        return
    kinds = site.scope.kind(node)
    for method in _CLEANERS:
        wanted = {"items()": MAPPING, "values()": MAPPING, "keys()": MAPPING, "copy()": SEQUENCE}.get(method, STRING)
        if not kinds or wanted in kinds or (method == "copy()" and kinds & {MAPPING, SET}):
            yield site.replace(node, f"{site.text(node)}.{method}", 0.8 if wanted in kinds else 0.3)


@template(ast.Attribute, ast.Name, family="call", prior=0.35)
def missing_call(site: Site, node: ast.AST) -> Iterator[Variant]:
    """`items.values` becomes `items.values()`."""
    if isinstance(site.parent, ast.Call) and site.parent.func is node:
        return
    if not isinstance(getattr(node, "ctx", ast.Load()), ast.Load) or isinstance(site.parent, ast.Attribute):
        return
    known = site.source.module_functions
    if (isinstance(node, ast.Attribute) and (node.attr in known or any(node.attr in each for each in METHODS))) or (
        isinstance(node, ast.Name) and node.id in known
    ):
        yield site.replace(node, site.text(node) + "()")


@template(ast.Call, family="call", prior=0.15)
def call_too_many(site: Site, node: ast.Call) -> Iterator[Variant]:
    if not node.args and not node.keywords and not isinstance(site.parent, ast.Expr):
        yield site.replace(node, site.text(node.func))


@template(ast.Call, family="call", prior=0.5)
def awaited(site: Site, node: ast.AST) -> Iterator[Variant]:
    function = site.source.function(node)
    if isinstance(function, ast.AsyncFunctionDef) and not isinstance(site.parent, ast.Await):
        yield site.replace(
            node,
            "await " + site.text(node)
            if isinstance(site.parent, ast.Expr | ast.Assign | ast.Return)
            else f"(await {site.text(node)})",
        )


TEMPLATES: tuple[Template, ...] = (
    other_function,
    other_own_function,
    other_function_value,
    swap_arguments,
    drop_argument,
    usual_extra_argument,
    pass_on_argument,
    unwrap,
    wrap,
    clamp,
    call_method,
    missing_call,
    call_too_many,
    awaited,
)
