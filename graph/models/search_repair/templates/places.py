"""A statement too many, or one in the wrong place."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from graph.models.search_repair.scopes import MAPPING, NUMBER, SEQUENCE, SET
from graph.models.search_repair.source import Change, is_compound, names_in
from graph.models.search_repair.templates.base import SIMPLE, Site, Template, Variant, template


@template(ast.stmt, family="delete", prior=0.15)
def delete_statement(site: Site, node: ast.stmt) -> Iterator[Variant]:
    if not isinstance(node, SIMPLE) or site.source.is_docstring(node) or not site.starts_its_line(node):
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
    delete_statement,
    swap_statements,
    at_once,
    move_out,
    move_in,
    swap_bodies,
    without_condition,
    only_if,
)
