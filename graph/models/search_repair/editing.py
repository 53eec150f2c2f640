"""Edits as edit_file takes them, and as a person reads them."""

from __future__ import annotations

from graph.models.search_repair.candidates import Edit


def unique(text: str, edit: Edit) -> Edit:
    """The edit with as many neighbouring lines as make its old and its new text occur just once."""
    lines = text.splitlines(keepends=True)
    first, last = edit.line - 1, edit.line - 1 + max(1, len(edit.old.splitlines()))
    before = after = ""
    for _ in range(len(lines)):
        old, new = before + edit.old + after, before + edit.new + after
        changed = text.replace(old, new, 1)
        if text.count(old) == 1 and changed.count(new) == 1 and old:
            return Edit(edit.path, first + 1, old, new)
        if first > 0:
            first -= 1
            before = lines[first] + before
        if last < len(lines):
            after = after + (lines[last] if after.endswith("\n") else _line_end(lines[last - 1]) + lines[last])
            last += 1
    return edit


def _line_end(line: str) -> str:
    return line[len(line.rstrip("\r\n")) :]


def changed_lines(edit: Edit) -> tuple[str, str]:
    """The lines in which old and new differ, short enough for a sentence."""
    old, new = edit.old.splitlines(), edit.new.splitlines()
    while old and new and old[0] == new[0]:
        old, new = old[1:], new[1:]
    while old and new and old[-1] == new[-1]:
        old, new = old[:-1], new[:-1]
    return _short(old), _short(new)


def _short(lines: list[str]) -> str:
    text = " / ".join(line.strip() for line in lines) or "nothing"
    return text if len(text) <= 90 else text[:87] + "..."
