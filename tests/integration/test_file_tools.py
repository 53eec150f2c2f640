"""The file tools as the agent calls them: on real files, each expected error one clear sentence."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from state.settings import Settings
from state.snapshots import Snapshots
from tests.helpers.memory_stores import MemoryArtifacts
from tools.read import list_files, read_file, search_text
from tools.registry import Tool, ToolContext, ToolResult
from tools.sandbox.local import Local
from tools.workspace import Workspace
from tools.write import edit_file, write_file


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "workspace").mkdir()
    return tmp_path / "workspace"


@pytest.fixture
def context(root: Path, tmp_path: Path) -> ToolContext:
    return make_context(root)


def make_context(root: Path, **work: Any) -> ToolContext:
    artifacts = MemoryArtifacts()
    return ToolContext(
        run_id="run",
        call_id="call",
        key="key",
        work=work,
        workspace=Workspace(root, root.parent / "repository"),
        sandbox=Local(),
        artifacts=artifacts,
        snapshots=Snapshots(artifacts=artifacts),
        settings=Settings(home=root.parent),
    )


async def call(tool: Tool, context: ToolContext, **arguments: Any) -> ToolResult:
    """As the agent's call is performed: through the schema that the model sees."""
    checked = tool.arguments.validated(arguments)
    return cast("ToolResult", await tool.call(**checked, context=context))


async def refused(tool: Tool, context: ToolContext, **arguments: Any) -> str:
    result = await call(tool, context, **arguments)
    assert result.is_error
    assert "\n" not in result.content
    return result.content


async def test_files_are_listed_with_what_is_left_out(root: Path, context: ToolContext) -> None:
    """Sorted paths; links, pipes and sizes are marked, folders that are not covered are named."""
    for path in ("src/a.py", "src/b/c.py", "README.md", ".venv/lib/x.py", ".git/config", 'it\'s "odd".txt'):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text("x")
    (root / "link").symlink_to("/etc")
    with (root / "big").open("wb") as file:
        file.truncate(200 << 20)
    result = await call(list_files, context)
    assert result.content.splitlines() == [
        "README.md",
        "big  (200.0 MB)",
        'it\'s "odd".txt',
        "link  (a link)",
        "src/a.py",
        "src/b/c.py",
        "not listed and not covered: .git, .venv",
    ]
    assert result.facts == {"files": 6, "shown": 6, "left_out": [".git", ".venv"]}
    assert (await call(list_files, context, glob="src/**/*.py")).content.startswith("src/a.py\nsrc/b/c.py\n")
    assert (await call(list_files, context, glob="*.rs")).content.startswith("no file matches *.rs")


async def test_what_a_snapshot_does_not_cover_is_named(root: Path, context: ToolContext) -> None:
    """Secrets and the like are not in the copy; the agent is told that they exist, and why it does not see them."""
    (root / "a.py").touch()
    (root / ".env").write_text("KEY=secret")
    snapshot = await context.snapshots.take(root)
    (root / ".env").unlink()
    result = await call(list_files, replace(context, snapshot=snapshot))
    first, second = result.content.splitlines()
    assert first == "a.py"
    assert second.startswith("not listed and not covered: .env (")


async def test_a_long_list_says_how_many_are_left_out(root: Path, context: ToolContext) -> None:
    """The model must know that it does not see everything."""
    for number in range(620):
        (root / f"f{number:03}").touch()
    result = await call(list_files, context)
    assert result.content.endswith("f499\n… 120 more not shown; narrow the glob")
    assert result.facts["files"] == 620


async def test_text_is_read_exactly(root: Path, context: ToolContext) -> None:
    """After one line about the file comes its text, unchanged."""
    text = "a\r\nb\n\tc  \n\x0cd"
    (root / "file").write_bytes(text.encode())
    result = await call(read_file, context, path="file")
    head, _, body = result.content.partition("\n")
    assert body == text
    assert head == "file: lines 1-4 of 4, CRLF line ends"
    assert result.facts == {"path": "file", "bytes": len(text), "lines": 4, "shown": 4}


@pytest.mark.parametrize(
    ("offset", "limit", "content"),
    [
        (1, 2, "f: lines 1-2 of 5\n1\n2\n"),
        (4, 9, "f: lines 4-5 of 5\n4\n5"),
        (5, 1, "f: lines 5-5 of 5\n5"),
    ],
)
async def test_a_part_is_read_by_lines(root: Path, context: ToolContext, offset: int, limit: int, content: str) -> None:
    """The head says which lines these are, of how many."""
    (root / "f").write_text("1\n2\n3\n4\n5")
    assert (await call(read_file, context, path="f", offset=offset, limit=limit)).content == content


async def test_odd_files_are_read_or_refused_in_one_sentence(root: Path, context: ToolContext) -> None:
    """Empty, not UTF-8, binary, absent, a folder, beyond the end."""
    (root / "empty").touch()
    (root / "latin").write_bytes(b"caf\xe9\n")
    (root / "binary").write_bytes(b"\x00\x01")
    (root / "folder").mkdir()
    assert (await call(read_file, context, path="empty")).content == "empty: empty\n"
    assert (
        (await call(read_file, context, path="latin")).content.encode(errors="surrogateescape").endswith(b"caf\xe9\n")
    )
    assert await refused(read_file, context, path="binary") == "binary is a binary file of 2 bytes and can't be shown"
    assert await refused(read_file, context, path="absent") == "absent does not exist"
    assert "not a regular file" in await refused(read_file, context, path="folder")
    assert await refused(read_file, context, path="latin", offset=3) == "latin has 1 lines; line 3 does not exist"
    assert "1 or more" in await refused(read_file, context, path="latin", offset=0)


async def test_a_huge_text_file_is_capped(root: Path, context: ToolContext) -> None:
    """Nothing beyond a megabyte comes back, the head says how to go on, and one endless line is cut too."""
    with (root / "lines").open("wb") as file:
        file.writelines(b"%099d\n" % number for number in range(200_000))
    result = await call(read_file, context, path="lines", limit=10**6)
    head, _, body = result.content.partition("\n")
    assert head == "lines: lines 1-10485 of 200000, cut after 1,048,500 bytes: go on with offset=10486"
    assert len(body) == 1_048_500
    with (root / "line").open("wb") as file:
        file.write(b"x" * (3 << 20) + b"\nend\n")
    result = await call(read_file, context, path="line")
    assert result.content.startswith("line: lines 1-1 of 2, cut after 1,048,576 bytes")
    assert (await call(read_file, context, path="line", offset=2)).content == "line: lines 2-2 of 2\nend\n"


async def test_text_is_found_with_path_and_line(root: Path, context: ToolContext) -> None:
    """Fixed text by default, a regular expression on request; binary and huge files are said to be skipped."""
    (root / "a.py").write_text("def f(x):\n    return x+1\n")
    (root / "b.txt").write_bytes(b"X+1 caf\xe9\r\n")
    (root / "binary").write_bytes(b"\x00x+1")
    assert (await call(search_text, context, pattern="x+1")).content.splitlines() == [
        "a.py:2:     return x+1",
        "not searched: 1 binary, very large or unreadable files",
    ]
    found = await call(search_text, context, pattern=r"^x\+\d", regex=True, ignore_case=True)
    assert found.content.splitlines()[0] == "b.txt:1: X+1 caf\udce9"
    only = await call(search_text, context, pattern="x", glob="*.txt", ignore_case=True)
    assert only.facts == {"matches": 1, "files": 1, "skipped": 0}
    assert (await call(search_text, context, pattern="nowhere", glob="*.py")).content == "no match in 1 files"


async def test_matches_are_capped_and_counted(root: Path, context: ToolContext) -> None:
    """The first 200 are shown, long lines around the match."""
    (root / "many").write_text("hit\n" * 1000)
    assert (await call(search_text, context, pattern="hit")).content.endswith(
        "many:200: hit\n… 800 more matches not shown; narrow the pattern or the glob"
    )
    (root / "many").write_text("x" * 5000 + "hit" + "y" * 5000)
    (line,) = (await call(search_text, context, pattern="hit")).content.splitlines()
    assert "hit" in line
    assert len(line) < 400


async def test_a_catastrophic_pattern_is_stopped(
    root: Path, context: ToolContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would run for ages; the event loop stays free meanwhile, and the searcher is dead afterwards."""
    monkeypatch.setattr("tools.read._SEARCH_SECONDS", 0.7)
    (root / "trap").write_text("a" * 60 + "!\n")
    began = time.monotonic()
    sentence = await refused(search_text, context, pattern="(a|aa)+$", regex=True)
    assert "took longer than 0.7 s" in sentence
    assert time.monotonic() - began < 10
    assert "no regular expression" in await refused(search_text, context, pattern="(", regex=True)
    assert "one line" in await refused(search_text, context, pattern="a\nb")


async def test_an_edit_replaces_just_what_was_named(root: Path, context: ToolContext) -> None:
    """The result says what changed, in lines."""
    (root / "a.py").write_text("one\ntwo\nthree\n")
    result = await call(edit_file, context, path="a.py", old="two\n", new="2\n2.5\n")
    assert (root / "a.py").read_text() == "one\n2\n2.5\nthree\n"
    assert result.content == "a.py: replaced 1 occurrence (+2 -1 lines)"
    assert result.facts == {"path": "a.py", "bytes": 16, "added": 2, "removed": 1}


async def test_an_edit_that_is_not_clear_changes_nothing(root: Path, context: ToolContext) -> None:
    """Absent, ambiguous, empty, the same: each with what to do about it."""
    text = "def f(a):\n    return a\n\ndef g(a):\n    return a\n"
    (root / "a.py").write_text(text)
    sentences = [
        await refused(edit_file, context, path="a.py", old="    return a\n", new="x"),
        await refused(edit_file, context, path="a.py", old="def f(b):", new="x"),
        await refused(edit_file, context, path="a.py", old="  def g(a):\n  return a", new="x"),
        await refused(edit_file, context, path="a.py", old="", new="x"),
        await refused(edit_file, context, path="a.py", old="def", new="def"),
        await refused(edit_file, context, path="b.py", old="def", new="x"),
    ]
    assert (root / "a.py").read_text() == text
    assert "occurs 2 times" in sentences[0]
    assert "closest line is 1: 'def f(a):'" in sentences[1]
    assert "line 4 starts alike" in sentences[2]
    assert sentences[5] == "b.py does not exist"
    result = await call(edit_file, context, path="a.py", old="return a", new="return -a", replace_all=True)
    assert result.content == "a.py: replaced 2 occurrences (+4 -4 lines)"
    assert (root / "a.py").read_text().count("return -a") == 2


@pytest.mark.parametrize("given", ["two\nthree\n", "two\r\nthree\r\n"])
async def test_crlf_files_keep_their_line_ends(root: Path, context: ToolContext, given: str) -> None:
    """Edits and whole files may be given with plain line ends."""
    (root / "dos.py").write_bytes(b"one\r\ntwo\r\nthree\r\n")
    await call(edit_file, context, path="dos.py", old=given, new="2\n3\n")
    assert (root / "dos.py").read_bytes() == b"one\r\n2\r\n3\r\n"
    await call(edit_file, context, path="dos.py", old="2", new="2a\n2b")
    assert (root / "dos.py").read_bytes() == b"one\r\n2a\r\n2b\r\n3\r\n"
    await call(write_file, context, path="dos.py", content="x\ny\n")
    assert (root / "dos.py").read_bytes() == b"x\r\ny\r\n"


async def test_mixed_line_ends_and_odd_bytes_survive_an_edit(root: Path, context: ToolContext) -> None:
    """What was not named stays byte for byte."""
    (root / "mixed").write_bytes(b"a\r\nb\nc\xe9\r\nd\n")
    await call(edit_file, context, path="mixed", old="b\n", new="B\n")
    assert (root / "mixed").read_bytes() == b"a\r\nB\nc\xe9\r\nd\n"
    assert "which no file can hold" in await refused(edit_file, context, path="mixed", old="d", new="\ud800")


async def test_a_file_is_written_whole(root: Path, context: ToolContext) -> None:
    """New ones with their folders, old ones with their mode."""
    result = await call(write_file, context, path="new/deep/a.py", content="x = 1\n")
    assert result.content == "new/deep/a.py: created (+1 -0 lines)"
    (root / "run").write_text("a\nb\n")
    (root / "run").chmod(0o755)
    result = await call(write_file, context, path="run", content="a\nc\nd\n")
    assert result.content == "run: rewrote (+2 -1 lines)"
    assert (root / "run").stat().st_mode & 0o777 == 0o755


@pytest.mark.parametrize("path", ["tests/data.json", "test_a.py", "web/a.test.ts", "sneaky.py", "./tests/../test_a.py"])
async def test_test_files_are_read_only(root: Path, path: str) -> None:
    """Also through a link, and also where there is none yet; unless the person allowed it."""
    (root / "tests").mkdir()
    (root / "tests" / "real.py").write_text("assert False\n")
    (root / "sneaky.py").symlink_to("tests/real.py")
    assert "read-only" in await refused(write_file, make_context(root), path=path, content="x") or ".." in path
    assert (root / "tests" / "real.py").read_text() == "assert False\n"
    if ".." not in path:
        result = await call(write_file, make_context(root, allow_test_edits=True), path=path, content="x")
        assert not result.is_error


async def test_nothing_outside_can_be_touched(root: Path, context: ToolContext) -> None:
    """Whatever the path: absolute, upwards, through links, into .git."""
    (root.parent / "secret").write_text("secret")
    (root / "link").symlink_to("../secret")
    (root / ".git").mkdir()
    (root / ".git" / "config").write_text("x")
    for path in ("/etc/passwd", "../secret", "link", ".git/config", "a\0b"):
        await refused(edit_file, context, path=path, old="x", new="y")
        await refused(write_file, context, path=path, content="y")
        if path != ".git/config":
            await refused(read_file, context, path=path)
    assert (root.parent / "secret").read_text() == "secret"
    assert (root / ".git" / "config").read_text() == "x"


async def test_a_folder_that_cannot_be_written_is_one_sentence(root: Path, context: ToolContext) -> None:
    """Nothing half-written."""
    if os.getuid() == 0:
        pytest.skip("root writes everywhere")
    (root / "closed").mkdir()
    (root / "closed" / "a.py").write_text("old")
    (root / "closed").chmod(0o555)
    assert "permission denied" in await refused(write_file, context, path="closed/a.py", content="new")
    assert (root / "closed" / "a.py").read_text() == "old"
