"""Tools that look at the workspace: list_files, read_file, search_text. They leave nothing behind."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import IO, NamedTuple

from tools.globs import path_pattern
from tools.registry import ToolContext, ToolResult, tool
from tools.workspace import Entry, Workspace, WorkspaceError

_MB = 1024 * 1024
_LISTED = 500
_LEFT_OUT = 30
_READ_BYTES = _MB
"""What one read_file shows at most."""
_SEARCHED_FILE = _MB
_SEARCHED_ALL = 64 * _MB
_MATCHES = 200
_SEARCH_SECONDS = 10.0
_BINARY_PROBE = 8192
_SEARCHER = Path(__file__).with_name("search_lines.py")


@tool(kind="read")
async def list_files(glob: str | None = None, *, context: ToolContext) -> ToolResult:
    """List the repository's files, one path a line.

    glob: keep only paths like this, for example "*.py" (in any folder) or "src/**/*.py".
    """
    not_covered: Mapping[str, str] = {}
    if context.snapshot is not None:
        not_covered = (await context.snapshots.manifest(context.snapshot)).not_covered
    return await asyncio.to_thread(_list, context.workspace, glob, not_covered)


@tool(kind="read")
async def read_file(path: str, offset: int = 1, limit: int = 2000, *, context: ToolContext) -> ToolResult:
    """Read a text file exactly as it is.

    The first line of the answer says what is shown; the file's text follows it unchanged.
    path: relative to the repository's folder. offset: the first line to show, from 1. limit: how many lines.
    """
    if offset < 1 or limit < 1:
        return _error("offset and limit must be 1 or more")
    try:
        return await asyncio.to_thread(_read, context.workspace, path, offset, limit)
    except WorkspaceError as error:
        return _error(str(error))


@tool(kind="read")
async def search_text(
    pattern: str, regex: bool = False, glob: str | None = None, ignore_case: bool = False, *, context: ToolContext
) -> ToolResult:
    """Search the repository's text files; answers one "path:line: text" a match.

    pattern: the text, or with regex=true a Python regular expression that is tried on each line by itself.
    glob: search only in paths like this, for example "src/**/*.py".
    """
    if not pattern or "\n" in pattern:
        return _error("the pattern must be one line of text, not empty")
    expression = pattern if regex else re.escape(pattern)
    try:
        re.compile(expression)
    except re.error as error:
        return _error(f"{pattern!r} is no regular expression: {error}")
    corpus = await asyncio.to_thread(_corpus, context.workspace, glob)
    head = json.dumps({"pattern": expression, "ignore_case": ignore_case, "most": _MATCHES})
    answer = await _searched(head.encode() + b"\n" + corpus.data)
    if answer is None:
        return _error(f"the search took longer than {_SEARCH_SECONDS:g} s and was stopped; simplify the pattern")
    return _search_result(answer, corpus)


def _error(sentence: str) -> ToolResult:
    return ToolResult(content=sentence, is_error=True)


# --- list_files


def _list(workspace: Workspace, glob: str | None, not_covered: Mapping[str, str]) -> ToolResult:
    left_out = {**dict.fromkeys(workspace.folders_left_out(), ""), **not_covered}
    entries = [entry for entry in workspace.entries() if _wanted(entry.path, glob)]
    shown = entries[:_LISTED]
    lines = [_line(entry) for entry in shown]
    if len(entries) > len(shown):
        lines.append(f"… {len(entries) - len(shown):,} more not shown; narrow the glob")
    if not entries:
        lines.append(f"no file matches {glob}" if glob else "there are no files")
    if left_out:
        some = [f"{path} ({why})" if why else path for path, why in islice(left_out.items(), _LEFT_OUT)]
        more = f" and {len(left_out) - len(some):,} more" if len(left_out) > len(some) else ""
        lines.append(f"not listed and not covered: {', '.join(some)}{more}")
    facts = {"files": len(entries), "shown": len(shown)}
    return ToolResult(content="\n".join(lines), facts={**facts, "left_out": list(left_out)})


def _wanted(path: str, glob: str | None) -> bool:
    return glob is None or path_pattern(glob).fullmatch(path) is not None


def _line(entry: Entry) -> str:
    if entry.kind == "file":
        return entry.path if entry.size <= _MB else f"{entry.path}  ({entry.size / _MB:.1f} MB)"
    return f"{entry.path}  ({'a link' if entry.kind == 'link' else 'no regular file'})"


# --- read_file


class _Window(NamedTuple):
    text: bytes
    shown: int
    lines: int
    size: int
    cut: bool


def _read(workspace: Workspace, path: str, offset: int, limit: int) -> ToolResult:
    with workspace.open(path) as file:
        if b"\0" in file.read(_BINARY_PROBE):
            size = file.seek(0, 2)
            return _error(f"{path} is a binary file of {size:,} bytes and can't be shown")
        file.seek(0)
        window = _window(file, offset, limit)
    if offset > max(window.lines, 1):
        return _error(f"{path} has {window.lines:,} lines; line {offset:,} does not exist")
    last = offset + window.shown - 1
    head = f"{path}: lines {offset}-{last} of {window.lines}" if window.lines else f"{path}: empty"
    if b"\r\n" in window.text:
        head += ", CRLF line ends"
    if window.cut:
        head += f", cut after {len(window.text):,} bytes: go on with offset={last + 1}"
    facts = {"path": path, "bytes": window.size, "lines": window.lines, "shown": window.shown}
    text = window.text.decode(errors="surrogateescape")
    return ToolResult(content=f"{head}\n{text}", facts=facts)


def _window(file: IO[bytes], offset: int, limit: int) -> _Window:
    """The lines that were asked for, as many as fit, and the count of all; a huge file is never held whole."""
    total, kept, used = 0, [], 0
    for line in islice(_lines(file), offset - 1 + limit):
        total += 1
        if total >= offset and used + len(line) <= _READ_BYTES:
            kept.append(line)
            used += len(line)
        elif total >= offset:
            if not kept:
                kept.append(line[:_READ_BYTES])
            return _Window(b"".join(kept), len(kept), total + _rest(file), file.tell(), cut=True)
    return _Window(b"".join(kept), len(kept), total + _rest(file), file.tell(), cut=False)


def _lines(file: IO[bytes]) -> Iterator[bytes]:
    """Lines, of which only what could be shown is kept."""
    while line := file.readline(_READ_BYTES + 1):
        rest = line
        while len(rest) == _READ_BYTES + 1 and not rest.endswith(b"\n"):
            rest = file.readline(_READ_BYTES + 1)
        yield line


def _rest(file: IO[bytes]) -> int:
    """The number of lines that are left."""
    count, last = 0, b"\n"
    while block := file.read(_MB):
        count += block.count(b"\n")
        last = block
    return count + (not last.endswith(b"\n"))


# --- search_text


class _Corpus(NamedTuple):
    data: bytes
    files: int
    skipped: int


def _corpus(workspace: Workspace, glob: str | None) -> _Corpus:
    """The text files in the form that the searcher reads."""
    pieces, total, files, skipped = [], 0, 0, 0
    for entry in workspace.entries():
        if entry.kind != "file" or not _wanted(entry.path, glob):
            continue
        data = _text_of(workspace, entry) if total + entry.size <= _SEARCHED_ALL else None
        if data is None:
            skipped += 1
            continue
        files += 1
        total += len(data)
        pieces += [json.dumps([entry.path, len(data)]).encode() + b"\n", data]
    return _Corpus(b"".join(pieces), files, skipped)


def _text_of(workspace: Workspace, entry: Entry) -> bytes | None:
    if entry.size > _SEARCHED_FILE:
        return None
    try:
        data = workspace.read(entry.path)
    except WorkspaceError:
        return None  # unreadable, or changed while we looked
    return None if b"\0" in data[:_BINARY_PROBE] else data


async def _searched(request: bytes) -> bytes | None:
    """The searcher's answer, or None when it took too long."""
    searcher = await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-S", _SEARCHER),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env={},
    )
    try:
        answer, _ = await asyncio.wait_for(searcher.communicate(request), _SEARCH_SECONDS)
    except TimeoutError:
        return None
    finally:
        if searcher.returncode is None:
            searcher.kill()
            await searcher.wait()
    return answer


def _search_result(answer: bytes, corpus: _Corpus) -> ToolResult:
    *matches, (_, found, _) = map(json.loads, answer.splitlines())
    lines = [f"{path}:{number}: {text}" for path, number, text in matches]
    if found > len(matches):
        lines.append(f"… {found - len(matches):,} more matches not shown; narrow the pattern or the glob")
    if not found:
        lines.append(f"no match in {corpus.files:,} files")
    if corpus.skipped:
        lines.append(f"not searched: {corpus.skipped:,} binary, very large or unreadable files")
    facts = {"matches": found, "files": corpus.files, "skipped": corpus.skipped}
    return ToolResult(content="\n".join(lines), facts=facts)
