"""The difference of two states of files, as text: git's patch form, written without git.

Pure: bytes in, bytes out, the same on every machine, so that what a person approved can be compared.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
import unicodedata
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Final, Literal, NamedTuple

Mode = Literal["100644", "100755", "120000"]
"""As git writes it; it knows no others of a file."""

FILE: Final = "100644"
EXECUTABLE: Final = "100755"
LINK: Final = "120000"

_CONTEXT = 3
_MATCH_LIMIT = 100_000_000
"""Lines times lines. Beyond it the matching could take minutes, and one large hunk says the same."""


@dataclass(frozen=True)
class Version:
    """What a path holds: a file's content, or where a link points."""

    mode: Mode
    data: bytes


@dataclass(frozen=True)
class FileChange:
    """One path before and after; None where there is none."""

    path: str
    """Relative, with slashes; undecodable bytes as `os.fsdecode` gives them."""
    old: Version | None
    new: Version | None


class _Range(NamedTuple):
    """Lines [a_from, a_to) give way to lines [b_from, b_to)."""

    a_from: int
    a_to: int
    b_from: int
    b_to: int


def render(changes: Sequence[FileChange], *, binary: bool) -> bytes:
    """The patch, for `git apply` and `patch -p1`.

    With `binary`, binary files are written whole in git's form (only `git apply` reads it); without it they
    are named, and the patch is for reading.
    """
    return b"".join(_render(part, binary) for change in changes for part in _parts(change))


def shown(text: str) -> str:
    """Text from a repository, safe on a terminal: what could move the cursor or turn the reading direction
    is written out, so that the eye sees what the machine will read."""
    return "".join(_visible(each) for each in text)


def is_binary(data: bytes) -> bool:
    return b"\0" in data


def _parts(change: FileChange) -> Iterator[FileChange]:
    """A file that becomes a link goes and comes: the form has no other words for it."""
    old, new = change.old, change.new
    if old and new and (old.mode == LINK) != (new.mode == LINK):
        yield FileChange(change.path, old, None)
        yield FileChange(change.path, None, new)
    elif old != new:
        yield change


def _render(change: FileChange, binary: bool) -> bytes:
    name = os.fsencode(change.path)
    old_name, new_name = _quoted(b"a/" + name), _quoted(b"b/" + name)
    head = b"diff --git %s %s\n" % (old_name, new_name) + _mode_lines(change)
    old = change.old.data if change.old else b""
    new = change.new.data if change.new else b""
    if old == new and change.old and change.new:
        return head
    if is_binary(old) or is_binary(new):
        return head + _index_line(change, whole=binary) + _binary_body(change, old_name, new_name, binary)
    head += _index_line(change, whole=False)
    body = b"".join(_hunks(old, new))
    if not body:
        return head
    before = _marked(old_name) if change.old else b"/dev/null"
    after = _marked(new_name) if change.new else b"/dev/null"
    return head + b"--- %s\n+++ %s\n" % (before, after) + body


def _mode_lines(change: FileChange) -> bytes:
    if change.old is None and change.new is not None:
        return b"new file mode %s\n" % change.new.mode.encode()
    if change.new is None and change.old is not None:
        return b"deleted file mode %s\n" % change.old.mode.encode()
    if change.old and change.new and change.old.mode != change.new.mode:
        return b"old mode %s\nnew mode %s\n" % (change.old.mode.encode(), change.new.mode.encode())
    return b""


def _index_line(change: FileChange, *, whole: bool) -> bytes:
    length = 40 if whole else 10
    old = _blob_id(change.old)[:length].encode()
    new = _blob_id(change.new)[:length].encode()
    same_mode = change.old and change.new and change.old.mode == change.new.mode
    mode = b" " + change.old.mode.encode() if same_mode and change.old else b""
    return b"index %s..%s%s\n" % (old, new, mode)


def _blob_id(version: Version | None) -> str:
    if version is None:
        return "0" * 40
    content = b"blob %d\0" % len(version.data) + version.data
    return hashlib.sha1(content, usedforsecurity=False).hexdigest()


def _quoted(name: bytes) -> bytes:
    """As git writes a path: in quotes only where it must be. UTF-8 stays readable."""
    try:
        name.decode()
        escaped = re.sub(rb'[\x00-\x1f"\\\x7f]', _escape, name)
    except UnicodeDecodeError:
        escaped = re.sub(rb'[\x00-\x1f"\\\x7f-\xff]', _escape, name)
    return name if escaped == name else b'"' + escaped + b'"'


def _escape(match: re.Match[bytes]) -> bytes:
    byte = match[0]
    short = {b'"': rb"\"", b"\\": rb"\\", b"\n": rb"\n", b"\t": rb"\t", b"\r": rb"\r"}
    return short.get(byte, b"\\%03o" % byte[0])


def _marked(name: bytes) -> bytes:
    """A tab ends a name with blanks, or `patch` takes what follows for a date."""
    return name + b"\t" if b" " in name and not name.startswith(b'"') else name


def _hunks(old: bytes, new: bytes) -> Iterator[bytes]:
    a, b = _lines(old), _lines(new)
    for group in _grouped(_differences(a, b)):
        yield _hunk(a, b, group)


def _lines(data: bytes) -> list[bytes]:
    """Split at line feeds only; each keeps its end, so that CRLF is content like any other."""
    parts = data.split(b"\n")
    lines = [part + b"\n" for part in parts[:-1]]
    return [*lines, parts[-1]] if parts[-1] else lines


def _differences(a: list[bytes], b: list[bytes]) -> list[_Range]:
    shorter = min(len(a), len(b))
    start = next((i for i in range(shorter) if a[i] != b[i]), shorter)
    rest = shorter - start
    end = next((i for i in range(rest) if a[-1 - i] != b[-1 - i]), rest)
    a_part, b_part = a[start : len(a) - end], b[start : len(b) - end]
    if len(a_part) * len(b_part) > _MATCH_LIMIT:
        return [_Range(start, len(a) - end, start, len(b) - end)]
    codes = SequenceMatcher(None, a_part, b_part).get_opcodes()
    return [_Range(i1 + start, i2 + start, j1 + start, j2 + start) for tag, i1, i2, j1, j2 in codes if tag != "equal"]


def _grouped(differences: list[_Range]) -> Iterator[list[_Range]]:
    """Differences whose context lines would touch share a hunk."""
    group: list[_Range] = []
    for each in differences:
        if group and each.a_from - group[-1].a_to > 2 * _CONTEXT:
            yield group
            group = []
        group.append(each)
    if group:
        yield group


def _hunk(a: list[bytes], b: list[bytes], group: list[_Range]) -> bytes:
    before = min(_CONTEXT, group[0].a_from)
    after = min(_CONTEXT, len(a) - group[-1].a_to)
    a_from, a_to = group[0].a_from - before, group[-1].a_to + after
    b_from, b_to = group[0].b_from - before, group[-1].b_to + after
    written = [b"@@ -%s +%s @@\n" % (_extent(a_from, a_to), _extent(b_from, b_to))]
    place = a_from
    for each in group:
        written += [_line(b" ", line) for line in a[place : each.a_from]]
        written += [_line(b"-", line) for line in a[each.a_from : each.a_to]]
        written += [_line(b"+", line) for line in b[each.b_from : each.b_to]]
        place = each.a_to
    written += [_line(b" ", line) for line in a[place:a_to]]
    return b"".join(written)


def _line(sign: bytes, line: bytes) -> bytes:
    return sign + line if line.endswith(b"\n") else sign + line + b"\n\\ No newline at end of file\n"


def _extent(start: int, stop: int) -> bytes:
    count = stop - start
    first = start + 1 if count else start
    return b"%d" % first if count == 1 else b"%d,%d" % (first, count)


def _binary_body(change: FileChange, old_name: bytes, new_name: bytes, whole: bool) -> bytes:
    old = change.old.data if change.old else b""
    new = change.new.data if change.new else b""
    if whole:
        # The second part is the way back, for `git apply -R`.
        return b"GIT binary patch\n" + _literal(new) + _literal(old)
    before = old_name if change.old else b"/dev/null"
    after = new_name if change.new else b"/dev/null"
    return b"Binary files %s and %s differ (%d and %d bytes)\n" % (before, after, len(old), len(new))


def _literal(data: bytes) -> bytes:
    """Deflated, then 52 bytes a line: a letter for the count, and the base 85 of RFC 1924."""
    packed = zlib.compress(data)
    lines = [_base85(packed[i : i + 52]) for i in range(0, len(packed), 52)]
    return b"literal %d\n" % len(data) + b"".join(lines) + b"\n"


def _base85(part: bytes) -> bytes:
    count = len(part)
    letter = chr(ord("A") + count - 1) if count <= 26 else chr(ord("a") + count - 27)
    return letter.encode() + base64.b85encode(part, pad=True) + b"\n"


def _visible(character: str) -> str:
    if character in "\n\t" or unicodedata.category(character) not in ("Cc", "Cf", "Cs"):
        return character
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
