"""Tools that change the workspace: edit_file, write_file. A snapshot undoes them, so nobody is asked first."""

from __future__ import annotations

import asyncio
import difflib
from typing import NamedTuple

from tools.registry import ToolContext, ToolResult, tool
from tools.testfiles import is_test_file
from tools.workspace import Workspace, WorkspaceError

_COMPARED_LINES = 5000
"""Lines among which the closest one is looked for: the comparison is slow."""


@tool(kind="workspace")
async def edit_file(path: str, old: str, new: str, replace_all: bool = False, *, context: ToolContext) -> ToolResult:
    """Replace text in a file, exactly.

    old: the text to replace, white space included; it must occur exactly once, so take in neighbouring lines.
    new: what comes in its place. replace_all: replace each occurrence instead.
    """
    try:
        return await asyncio.to_thread(_edit, context, path, _Edit(old, new, replace_all))
    except WorkspaceError as error:
        return _error(str(error))


@tool(kind="workspace")
async def write_file(path: str, content: str, *, context: ToolContext) -> ToolResult:
    """Write a whole file: a new one, or in place of the old one. Folders are made as needed."""
    try:
        return await asyncio.to_thread(_write, context, path, content)
    except WorkspaceError as error:
        return _error(str(error))


class _Edit(NamedTuple):
    old: str
    new: str
    replace_all: bool


def _error(sentence: str) -> ToolResult:
    return ToolResult(content=sentence, is_error=True)


def _edit(context: ToolContext, path: str, edit: _Edit) -> ToolResult:
    _check_allowed(context, path)
    if not edit.old:
        return _error("old is empty: give the text to replace, or use write_file for a whole file")
    if edit.old == edit.new:
        return _error("old and new are the same; nothing was changed")
    before = context.workspace.read(path)
    if b"\0" in before:
        return _error(f"{path} is a binary file and can't be edited")
    text = before.decode(errors="surrogateescape")
    edit = _with_line_ends(text, edit)
    count = text.count(edit.old)
    if count == 0:
        return _error(f"the text was not found in {path}; nothing was changed{_closest(text, edit.old)}")
    if count > 1 and not edit.replace_all:
        return _error(
            f"the text occurs {count} times in {path}; nothing was changed:"
            " take in neighbouring lines to make it unique, or set replace_all"
        )
    after = text.replace(edit.old, edit.new)
    return _store(context.workspace, path, text, after, f"replaced {count} occurrence{'s' * (count > 1)}")


def _with_line_ends(text: str, edit: _Edit) -> _Edit:
    """The edit with the file's CRLF where it was given with plain line ends."""
    if "\r\n" not in text:
        return edit
    old = edit.old if edit.old in text else _crlf(edit.old)
    dos = _all_crlf(text) or old != edit.old
    return _Edit(old, _crlf(edit.new) if dos else edit.new, edit.replace_all)


def _crlf(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\n", "\r\n")


def _all_crlf(text: str) -> bool:
    return 0 < text.count("\r\n") == text.count("\n")


def _closest(text: str, old: str) -> str:
    """Where the person or the model may have meant, as the end of a sentence."""
    wanted = next((line for line in old.splitlines() if line.strip()), "").strip()
    lines = text.splitlines()[:_COMPARED_LINES]
    for number, line in enumerate(lines, 1):
        if wanted and line.strip() == wanted:
            return f"; line {number} starts alike but white space or the lines after it differ: {line!r}"
    close = difflib.get_close_matches(wanted, lines, n=1, cutoff=0.6) if wanted else []
    return f"; the closest line is {lines.index(close[0]) + 1}: {close[0]!r}" if close else ""


def _write(context: ToolContext, path: str, content: str) -> ToolResult:
    _check_allowed(context, path)
    before = ""
    verb = "created"
    if context.workspace.exists(path):
        before, verb = context.workspace.read(path).decode(errors="surrogateescape"), "rewrote"
        if _all_crlf(before) and "\r" not in content:
            content = _crlf(content)
    return _store(context.workspace, path, before, content, verb)


def _check_allowed(context: ToolContext, path: str) -> None:
    if context.work.get("allow_test_edits"):
        return
    if is_test_file(path) or is_test_file(context.workspace.resolve(path)):
        raise WorkspaceError(f"{path} is a test file, which is read-only here; nothing was changed")


def _store(workspace: Workspace, path: str, before: str, after: str, deed: str) -> ToolResult:
    try:
        data = after.encode(errors="surrogateescape")
    except UnicodeEncodeError as error:
        return _error(f"{path} was not changed: the new text holds {after[error.start]!r}, which no file can hold")
    workspace.write(path, data)
    added, removed = _stat(before, after)
    return ToolResult(
        content=f"{path}: {deed} (+{added} -{removed} lines)",
        facts={"path": path, "bytes": len(data), "added": added, "removed": removed},
    )


def _stat(before: str, after: str) -> tuple[int, int]:
    """Lines added and removed: what lies between the common beginning and the common end."""
    old, new = before.splitlines(), after.splitlines()
    start = 0
    while start < min(len(old), len(new)) and old[start] == new[start]:
        start += 1
    end = 0
    while end < min(len(old), len(new)) - start and old[-1 - end] == new[-1 - end]:
        end += 1
    return len(new) - start - end, len(old) - start - end
