"""The patch form, byte by byte."""

from __future__ import annotations

import pytest

from tools.unified import EXECUTABLE, FILE, LINK, FileChange, Version, render, shown


def change(old: bytes | None, new: bytes | None, path: str = "a.txt") -> FileChange:
    return FileChange(path, None if old is None else Version(FILE, old), None if new is None else Version(FILE, new))


def test_a_changed_line_is_shown_with_three_lines_around_it() -> None:
    """The form is git's, to the byte (compared with git 2.39)."""
    old = b"".join(b"%d\n" % n for n in range(1, 11))
    assert render([change(old, old.replace(b"5\n", b"five\n"))], binary=False) == (
        b"diff --git a/a.txt b/a.txt\n"
        b"index f00c965d83..33011fd77b 100644\n"
        b"--- a/a.txt\n+++ b/a.txt\n"
        b"@@ -2,7 +2,7 @@\n 2\n 3\n 4\n-5\n+five\n 6\n 7\n 8\n"
    )


def test_differences_far_apart_get_hunks_of_their_own() -> None:
    """Seven equal lines between two differences part them; six join them."""
    lines = [b"%d\n" % n for n in range(20)]
    apart = render([change(b"".join(lines), b"".join([b"x\n", *lines[1:8], b"y\n", *lines[9:]]))], binary=False)
    joined = render([change(b"".join(lines), b"".join([b"x\n", *lines[1:7], b"y\n", *lines[8:]]))], binary=False)
    assert apart.count(b"@@ -") == 2
    assert joined.count(b"@@ -") == 1


def test_line_ends_are_content() -> None:
    """A file that goes from LF to CRLF has changed, and a carriage return alone ends no line."""
    patch = render([change(b"one\rtwo\n", b"one\rtwo\r\n")], binary=False)
    assert patch.endswith(b"@@ -1 +1 @@\n-one\rtwo\n+one\rtwo\r\n")


def test_a_missing_last_line_end_is_said() -> None:
    """Both sides say it for themselves."""
    patch = render([change(b"one", b"two")], binary=False)
    assert patch.endswith(b"-one\n\\ No newline at end of file\n+two\n\\ No newline at end of file\n")


def test_added_removed_and_empty_files() -> None:
    """An empty file has no hunk, and /dev/null stands for what is not there."""
    added = render([change(None, b"x\n")], binary=False)
    assert b"new file mode 100644\nindex 0000000000.." in added
    assert b"--- /dev/null\n+++ b/a.txt\n@@ -0,0 +1 @@\n+x\n" in added
    removed = render([change(b"x\n", None)], binary=False)
    assert b"deleted file mode 100644\n" in removed
    assert b"--- a/a.txt\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n" in removed
    assert b"---" not in render([change(None, b"")], binary=False)


def test_a_mode_alone_is_a_change() -> None:
    """An executable bit needs no content."""
    only_mode = FileChange("run.sh", Version(FILE, b"x\n"), Version(EXECUTABLE, b"x\n"))
    assert render([only_mode], binary=False) == (b"diff --git a/run.sh b/run.sh\nold mode 100644\nnew mode 100755\n")


def test_a_file_that_becomes_a_link_goes_and_comes() -> None:
    """Two parts, the removal first."""
    swapped = FileChange("x", Version(FILE, b"content\n"), Version(LINK, b"target"))
    patch = render([swapped], binary=False)
    assert patch.index(b"deleted file mode 100644") < patch.index(b"new file mode 120000")
    assert b"+target\n\\ No newline at end of file\n" in patch


@pytest.mark.parametrize(
    ("path", "written"),
    [
        ("plain/name.py", b"--- a/plain/name.py\n"),
        ("with blank.py", b"--- a/with blank.py\t\n"),
        ('quo"te.py', b'--- "a/quo\\"te.py"\n'),
        ("zwölf.py", "--- a/zwölf.py\n".encode()),
        ("tab\there", b'--- "a/tab\\there"\n'),
        ("odd\udcff.py", b'--- "a/odd\\377.py"\n'),
    ],
)
def test_names_are_quoted_only_where_they_must_be(path: str, written: bytes) -> None:
    """Blanks, quotes, tabs, UTF-8 and undecodable bytes."""
    assert written in render([change(b"a\n", b"b\n", path)], binary=False)


def test_a_binary_file_is_named_or_written_whole() -> None:
    """For reading it is named, for applying it is there."""
    binary = change(b"\0\1\2", b"\0\1\2\3")
    assert b"Binary files a/a.txt and b/a.txt differ (3 and 4 bytes)\n" in render([binary], binary=False)
    assert b"GIT binary patch\nliteral 4\n" in render([binary], binary=True)


def test_nothing_changed_is_an_empty_patch() -> None:
    assert render([change(b"same\n", b"same\n")], binary=True) == b""


def test_huge_unlike_files_end_in_one_hunk() -> None:
    """Matching 20,000 lines against 20,000 others could take minutes; it is not tried."""
    old = b"".join(b"old %d\n" % n for n in range(20_000))
    new = b"".join(b"new %d\n" % n for n in range(20_000))
    patch = render([change(b"first\n" + old, b"first\n" + new)], binary=False)
    assert patch.count(b"@@ -") == 1
    assert b"@@ -1,20001 +1,20001 @@\n first\n-old 0\n" in patch


def test_text_for_a_terminal_hides_nothing() -> None:
    """Escape sequences, carriage returns and turned reading directions are written out."""
    assert shown("a\x1b[2Kb\rc\u202ed\tend\n") == "a\\x1b[2Kb\\x0dc\\u202ed\tend\n"
