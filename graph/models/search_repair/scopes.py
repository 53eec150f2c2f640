"""Which names a place can use, and what kind of value each seems to hold.

The kinds are guesses from how a name is used. They order candidates; they never forbid one.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterable, Iterator
from functools import cached_property

from graph.models.search_repair.source import Function, Source, names_in

NUMBER, SEQUENCE, STRING, MAPPING, SET, OBJECT, CALLABLE, BOOL = (
    "number", "sequence", "string", "mapping", "set", "object", "callable", "bool",
)  # fmt: skip

_RETURNS = {
    **dict.fromkeys(("len", "int", "float", "abs", "round", "sum", "ord", "hash", "divmod", "pow"), NUMBER),
    **dict.fromkeys(("list", "sorted", "range", "tuple", "map", "filter", "zip", "reversed", "enumerate"), SEQUENCE),
    **dict.fromkeys(("deque", "bytearray"), SEQUENCE),
    **dict.fromkeys(("str", "repr", "chr", "hex", "bin", "format"), STRING),
    **dict.fromkeys(("dict", "defaultdict", "Counter", "OrderedDict"), MAPPING),
    **dict.fromkeys(("set", "frozenset"), SET),
    **dict.fromkeys(("isinstance", "any", "all", "bool", "callable", "hasattr"), BOOL),
}  # fmt: skip
_METHODS = {
    **dict.fromkeys(("append", "extend", "insert", "sort", "reverse", "popleft", "appendleft"), SEQUENCE),
    **dict.fromkeys(("split", "strip", "lower", "upper", "startswith", "endswith", "join", "replace"), STRING),
    **dict.fromkeys(("find", "rfind", "isdigit", "isalpha", "isspace", "encode", "format", "title", "rsplit"), STRING),
    **dict.fromkeys(("keys", "values", "items", "setdefault", "get"), MAPPING),
    **dict.fromkeys(("add", "union", "intersection", "issuperset", "issubset", "difference", "discard"), SET),
}  # fmt: skip
_METHOD_RETURNS = {
    **dict.fromkeys(("strip", "lower", "upper", "join", "replace", "lstrip", "rstrip", "title"), STRING),
    **dict.fromkeys(("split", "splitlines", "keys", "values", "items", "copy"), SEQUENCE),
    **dict.fromkeys(("index", "find", "rfind", "count"), NUMBER),
    **dict.fromkeys(("startswith", "endswith", "isdigit", "isalpha", "issubset", "issuperset"), BOOL),
}  # fmt: skip


class Scope:
    """The names that one function (or the module, for None) can use."""

    def __init__(self, source: Source, function: Function | None, *, outer: Scope | None) -> None:
        self.source = source
        self.function = function
        self.outer = outer
        self.node: ast.AST = function or source.tree
        self._own = list(_own_nodes(self.node))

    @cached_property
    def parameters(self) -> list[str]:
        if self.function is None:
            return []
        arguments = self.function.args
        every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        every += [each for each in (arguments.vararg, arguments.kwarg) if each is not None]
        return [each.arg for each in every]

    @cached_property
    def locals(self) -> list[str]:
        """Parameters and assigned names, without those of comprehensions."""
        found = dict.fromkeys(self.parameters)
        for node in self._own:
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and not self._in_comprehension(node):
                found.setdefault(node.id)
            elif isinstance(node, Function | ast.ClassDef) and self.function is not None:
                found.setdefault(node.name)
        return list(found)

    @cached_property
    def visible(self) -> list[str]:
        """Local names and those of the functions around; never the module's."""
        names = dict.fromkeys(self.locals)
        if self.outer is not None and self.outer.function is not None:
            names.update(dict.fromkeys(self.outer.visible))
        return list(names)

    @cached_property
    def module_names(self) -> list[str]:
        """Constants of the module and names that it imports or defines."""
        found: dict[str, None] = {}
        for statement in self.source.tree.body:
            if isinstance(statement, ast.Assign | ast.AnnAssign):
                targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
                found.update(dict.fromkeys(each.id for each in targets if isinstance(each, ast.Name)))
            elif isinstance(statement, Function | ast.ClassDef):
                found[statement.name] = None
            elif isinstance(statement, ast.Import | ast.ImportFrom):
                found.update(dict.fromkeys((each.asname or each.name).split(".")[0] for each in statement.names))
        return list(found)

    def comprehension_names(self, node: ast.AST) -> list[str]:
        """Names of the comprehensions around the node."""
        found: list[str] = []
        for each in self.source.ancestors(node):
            if isinstance(each, ast.stmt):
                break
            if isinstance(each, ast.Lambda):
                found += [argument.arg for argument in each.args.args]
            for generator in getattr(each, "generators", []):
                found += sorted(names_in(generator.target))
        return found

    def candidates(self, node: ast.AST) -> list[str]:
        """Variables that could stand at this place, the closest first; no functions, no modules."""
        names = dict.fromkeys([*self.comprehension_names(node), *self.visible])
        return [name for name in names if CALLABLE not in self.kinds(name) and name not in {"self", "cls"}]

    def kinds(self, name: str) -> frozenset[str]:
        if name in self._kinds:
            return self._kinds[name]
        if name in self.locals or self.outer is None:
            return frozenset({CALLABLE}) if name in dir(builtins) and name not in self.locals else frozenset()
        return self.outer.kinds(name)

    def kind(self, node: ast.AST) -> frozenset[str]:  # noqa: C901 - a table by kind of node
        """What an expression seems to be; empty where nothing is known."""
        match node:
            case ast.Name(id=name):
                return self.kinds(name)
            case ast.Constant(value=value):
                return frozenset(_kind_of_constant(value))
            case ast.BinOp(left=left, op=operator, right=right):
                return _kind_of_operation(operator, self.kind(left), self.kind(right))
            case ast.List() | ast.ListComp() | ast.Tuple() | ast.GeneratorExp():
                return frozenset({SEQUENCE})
            case ast.Dict() | ast.DictComp():
                return frozenset({MAPPING})
            case ast.Set() | ast.SetComp():
                return frozenset({SET})
            case ast.JoinedStr():
                return frozenset({STRING})
            case ast.Compare() | ast.BoolOp() | ast.UnaryOp(op=ast.Not()):
                return frozenset({BOOL})
            case ast.UnaryOp(operand=operand):
                return self.kind(operand) or frozenset({NUMBER})
            case ast.Call(func=ast.Name(id=name)) if name in _RETURNS:
                return frozenset({_RETURNS[name]})
            case ast.Call(func=ast.Attribute(attr=name)) if name in _METHOD_RETURNS:
                return frozenset({_METHOD_RETURNS[name]})
            case ast.Subscript(value=value, slice=ast.Slice()):
                return self.kind(value) or frozenset({SEQUENCE})
            case ast.IfExp(body=body, orelse=orelse):
                return self.kind(body) | self.kind(orelse)
            case _:
                return frozenset()

    def fits(self, name: str, kinds: Iterable[str]) -> float:
        """1 where a name may be of these kinds, less where it seems to be of others."""
        wanted, own = frozenset(kinds), self.kinds(name)
        if not wanted or not own:
            return 0.8
        return 1.0 if wanted & own else 0.25

    @cached_property
    def _kinds(self) -> dict[str, frozenset[str]]:
        known: dict[str, frozenset[str]] = {}
        for _ in range(2):  # what a name is tells what it is compared with
            self.__dict__["_kinds"] = known  # a name's kind must not ask for itself
            found: dict[str, set[str]] = {}
            for node in self._own:
                for name, kind in _evidence(node, self):
                    found.setdefault(name, set()).add(kind)
            known = {name: frozenset(kinds) for name, kinds in found.items()}
        return known

    def _in_comprehension(self, node: ast.AST) -> bool:
        return any(isinstance(each, ast.comprehension) for each in self.source.ancestors(node))


def scope_of(source: Source, node: ast.AST) -> Scope:
    scope = Scope(source, None, outer=None)
    for function in source.functions(node)[::-1]:
        scope = Scope(source, function, outer=scope)
    return scope


def _own_nodes(root: ast.AST) -> Iterator[ast.AST]:
    """All nodes of a function's body, in the order of the text, not those of functions inside it."""
    for child in ast.iter_child_nodes(root):
        yield child
        if not isinstance(child, Function | ast.ClassDef):
            yield from _own_nodes(child)


def _evidence(node: ast.AST, scope: Scope) -> Iterator[tuple[str, str]]:  # noqa: C901 - a table by kind of node
    match node:
        case (
            ast.Assign(targets=[ast.Name(id=name)], value=value)
            | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value)
        ):
            yield from ((name, kind) for kind in scope.kind(value))
        case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Tuple(elts=values)) if len(targets) == len(values):
            for target, value in zip(targets, values, strict=True):
                if isinstance(target, ast.Name):
                    yield from ((target.id, kind) for kind in scope.kind(value))
        case ast.AugAssign(target=ast.Name(id=name), value=value):
            yield from ((name, kind) for kind in scope.kind(value))
        case ast.For(target=target, iter=iterated) | ast.comprehension(target=target, iter=iterated):
            yield from _iteration(target, iterated)
        case ast.Subscript(value=ast.Name(id=name), slice=index):
            yield (name, SEQUENCE if isinstance(index, ast.Slice) or NUMBER in scope.kind(index) else MAPPING)
        case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=method)):
            yield (name, _METHODS.get(method, OBJECT))
        case ast.Call(func=ast.Name(id="len"), args=[ast.Name(id=name)]):
            yield (name, SEQUENCE)
        case ast.Call(func=ast.Name(id="range"), args=arguments):
            yield from ((each.id, NUMBER) for each in arguments if isinstance(each, ast.Name))
        case ast.Call(func=ast.Name(id=name)):
            yield (name, CALLABLE)
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield (name, CALLABLE)
        case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
            yield from ((alias.asname or alias.name, CALLABLE) for alias in aliases)
        case ast.Attribute(value=ast.Name(id=name)):
            yield (name, OBJECT)
        case ast.BinOp(left=left, op=operator, right=right) if not isinstance(operator, ast.Add | ast.Mod | ast.Mult):
            yield from ((each.id, NUMBER) for each in (left, right) if isinstance(each, ast.Name))
        case ast.BinOp(left=left, right=right):
            yield from _shared(left, right, scope)
        case ast.Compare(left=left, comparators=[right], ops=[operator]) if not isinstance(
            operator, ast.In | ast.NotIn
        ):
            yield from _shared(left, right, scope)


def _iteration(target: ast.expr, iterated: ast.expr) -> Iterator[tuple[str, str]]:
    if isinstance(iterated, ast.Name):
        yield (iterated.id, SEQUENCE)
    match iterated, target:
        case ast.Call(func=ast.Name(id="range")), ast.Name(id=name):
            yield (name, NUMBER)
        case ast.Call(func=ast.Name(id="enumerate")), ast.Tuple(elts=[ast.Name(id=name), *_]):
            yield (name, NUMBER)


def _shared(left: ast.expr, right: ast.expr, scope: Scope) -> Iterator[tuple[str, str]]:
    """What stands on one side of `+` or `<` is of the other side's kind."""
    for one, other in ((left, right), (right, left)):
        if isinstance(one, ast.Name):
            yield from ((one.id, kind) for kind in scope.kind(other) if kind != BOOL)


def _kind_of_constant(value: object) -> set[str]:
    if isinstance(value, bool):
        return {BOOL}
    if isinstance(value, int | float):
        return {NUMBER}
    return {STRING, SEQUENCE} if isinstance(value, str | bytes) else set()


def _kind_of_operation(operator: ast.operator, left: frozenset[str], right: frozenset[str]) -> frozenset[str]:
    if isinstance(operator, ast.Add):
        return (left | right) - {OBJECT}
    if isinstance(operator, ast.Mult | ast.Mod):
        return (left | right) - {NUMBER, OBJECT} or frozenset({NUMBER})
    if isinstance(operator, ast.BitAnd | ast.BitOr | ast.BitXor | ast.Sub) and (left | right) & {SET}:
        return frozenset({SET})
    return frozenset({NUMBER})
