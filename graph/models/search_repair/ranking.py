"""Which of several patches that pass the tests is most likely right.

Passing is not being right: what a patch drops, freezes or leaves unused counts against it.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Mapping, Sequence

from graph.models.search_repair.candidates import Candidate
from graph.models.search_repair.source import Function, Source, is_empty_collection, names_in


def best_first(plausible: Sequence[Candidate], sources: Mapping[str, Source]) -> list[Candidate]:
    """The most trustworthy first; equal ones in the order in which they were found."""
    return sorted(plausible, key=lambda each: -trust(each, sources[each.path]))


def trust(candidate: Candidate, source: Source) -> float:
    """How likely the patch is right, in no unit."""
    try:
        changed = ast.parse(candidate.text)
    except (SyntaxError, ValueError):
        return 0.0
    added, dropped = _difference(source.tree, changed)
    value = candidate.likely / (1.0 + 0.06 * (sum(added.values()) + sum(dropped.values())))
    value *= _logic_dropped(added, dropped)
    value *= _constant_answers(source.tree, changed)
    value *= 0.4 ** _own_calls_dropped(source.tree, changed)
    value *= _use_of_names(source.tree, changed)
    value *= 0.4 ** _keeps_more(source.tree, changed)
    value *= 0.2 ** max(0, _idle_operations(changed) - _idle_operations(source.tree))
    return float(value / len(candidate.edits) ** 0.5)


def _difference(before: ast.AST, after: ast.AST) -> tuple[Counter[str], Counter[str]]:
    """Nodes that came and nodes that went, by what they are."""
    old, new = _nodes(before), _nodes(after)
    return new - old, old - new


def _nodes(tree: ast.AST) -> Counter[str]:
    return Counter(_label(each) for each in ast.walk(tree) if not isinstance(each, ast.expr_context))


def _label(node: ast.AST) -> str:
    match node:
        case ast.Name(id=name):
            return f"name {name}"
        case ast.Attribute(attr=name):
            return f"attribute {name}"
        case ast.Constant(value=value):
            return f"constant {value!r}"
        case _:
            return type(node).__name__


def _logic_dropped(added: Counter[str], dropped: Counter[str]) -> float:
    """Calls, conditions and loops that went without others in their place."""
    weight = 1.0
    for kind, factor in (("Call", 0.75), ("If", 0.5), ("For", 0.4), ("While", 0.4), ("Compare", 0.7), ("BoolOp", 0.6)):
        lost = dropped[kind] - added[kind]
        weight *= factor ** max(0, lost)
    statements = sum(count for kind, count in dropped.items() if kind in _STATEMENTS)
    come = sum(count for kind, count in added.items() if kind in _STATEMENTS)
    return weight * 0.5 ** max(0, statements - come)


_STATEMENTS = frozenset({"Assign", "AugAssign", "Expr", "Return", "If", "For", "While", "Raise"})


def _constant_answers(before: ast.AST, after: ast.AST) -> float:
    """A new `return 0`, or a condition that is now always true, fits the tests rather than the task."""
    answers = _constant_returns(after) - _constant_returns(before)
    frozen = _frozen_conditions(after) - _frozen_conditions(before)
    return float(0.6 ** max(0, answers) * 0.15 ** max(0, frozen))


def _constant_returns(tree: ast.AST) -> int:
    returns = [each.value for each in ast.walk(tree) if isinstance(each, ast.Return) and each.value is not None]
    return sum(1 for value in returns if not names_in(value))


def _frozen_conditions(tree: ast.AST) -> int:
    return sum(1 for each in ast.walk(tree) if isinstance(each, ast.If) and isinstance(each.test, ast.Constant))


def _own_calls_dropped(before: ast.AST, after: ast.AST) -> int:
    """Calls of this file's own functions that are gone: recursion, a helper; they were there for a reason."""
    own = {each.name for each in ast.walk(before) if isinstance(each, Function)}
    lost = _called(before) - _called(after)
    return sum(count for name, count in lost.items() if name in own)


def _called(tree: ast.AST) -> Counter[str]:
    functions = [each.func for each in ast.walk(tree) if isinstance(each, ast.Call)]
    named = [each for each in functions if isinstance(each, ast.Name | ast.Attribute)]
    return Counter(each.id if isinstance(each, ast.Name) else each.attr for each in named)


def _idle_operations(tree: ast.AST) -> int:
    """`1 * x`, `x + 0`: code that does nothing hides what was changed."""
    return sum(1 for each in ast.walk(tree) if isinstance(each, ast.BinOp) and _is_idle(each))


def _is_idle(node: ast.BinOp) -> bool:
    neutral = 1 if isinstance(node.op, ast.Mult | ast.Div | ast.FloorDiv | ast.Pow) else 0
    sides = [node.right] if isinstance(node.op, ast.Sub | ast.Div | ast.FloorDiv | ast.Pow) else [node.left, node.right]
    return any(isinstance(side, ast.Constant) and side.value == neutral for side in sides)


def _keeps_more(before: ast.AST, after: ast.AST) -> int:
    """Statements that came, and did not only change, and that write to what outlives the call or was handed in:
    the tests see a better number, and everybody else wrong data."""
    old, new = _writes(before), _writes(after)
    return max(0, sum((new - old).values()) - sum((old - new).values()))


def _writes(tree: ast.AST) -> Counter[str]:
    found: Counter[str] = Counter()
    for function in ast.walk(tree):
        if isinstance(function, Function):
            given = {each.arg for each in function.args.args} - {"self", "cls"}
            found.update(ast.dump(each) for each in ast.walk(function) if _is_write(each, given))
    return found


def _is_write(node: ast.AST, given: set[str]) -> bool:
    match node:
        case ast.AugAssign(target=ast.Name(id=name)) | ast.Assign(targets=[ast.Name(id=name)]):
            return name in given
        case ast.AugAssign(target=target) | ast.Assign(targets=[target]):
            return isinstance(target, ast.Attribute | ast.Subscript)
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Attribute()))):
            return True
        case _:
            return False


def _use_of_names(before: ast.AST, after: ast.AST) -> float:
    """A parameter or a variable that is no longer used was there for a reason; one that is used at last, too."""
    old, new = _unused(before), _unused(after)
    filled = _never_filled(before) - _never_filled(after)
    return float(0.3 ** len(new - old) * 1.3 ** len(old - new) * 1.6 ** len(filled))


def _unused(tree: ast.AST) -> set[tuple[str, str]]:
    found = set()
    for function in ast.walk(tree):
        if isinstance(function, Function):
            names = [each for each in ast.walk(function) if isinstance(each, ast.Name)]
            read = {each.id for each in names if isinstance(each.ctx, ast.Load)}
            stored = {each.id for each in names if isinstance(each.ctx, ast.Store)}
            given = {each.arg for each in function.args.args}
            found |= {(function.name, name) for name in (stored | given) - read if name not in {"self", "cls", "_"}}
    return found


def _never_filled(tree: ast.AST) -> set[str]:
    """Collections that begin empty, are asked, and that nothing is ever put into: something was forgotten."""
    begun = set()
    changed: Counter[str] = Counter()
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                changed[name] += 1
                if is_empty_collection(value):
                    begun.add(name)
            case ast.AugAssign(target=ast.Name(id=name)) | ast.Subscript(value=ast.Name(id=name), ctx=ast.Store()):
                changed[name] += 2
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name))):
                changed[name] += 2
            case ast.Call(args=arguments):
                changed.update({each.id: 2 for each in arguments if isinstance(each, ast.Name)})
            case ast.Return(value=ast.Name(id=name)):
                changed[name] += 2
    return {name for name in begun if changed[name] == 1}
