"""Paths, globs and test files: what is decided from a name alone."""

import pytest

from tools.globs import path_pattern
from tools.testfiles import is_test_file


@pytest.mark.parametrize(
    ("glob", "path", "fits"),
    [
        ("*.py", "a.py", True),
        ("*.py", "deep/in/a.py", True),
        ("src/*.py", "src/a.py", True),
        ("src/*.py", "src/b/a.py", False),
        ("src/**/*.py", "src/a.py", True),
        ("src/**/*.py", "src/b/c/a.py", True),
        ("src/", "src/b/c/a.py", True),
        ("./a?.[ch]", "x/ab.c", False),
        ("a?.[ch]", "x/ab.c", True),
        ("a[!b].c", "ac.c", True),
        ("a[!b].c", "ab.c", False),
        ("a(b)+.py", "a(b)+.py", True),
        ("[z-a]", "[z-a]", True),
        ("[", "[", True),
    ],
)
def test_a_glob_means_what_a_shell_user_expects(glob: str, path: str, fits: bool) -> None:
    """No pattern raises, however odd."""
    assert (path_pattern(glob).fullmatch(path) is not None) is fits


@pytest.mark.parametrize(
    "path",
    [
        *("tests/anything.txt", "test_a.py", "src/pkg/a_test.py", "conftest.py", "pkg/tests/data/x.json"),
        *("web/app.test.tsx", "web/app.spec.js", "__tests__/a.js", "cmd/main_test.go", "spec/models/user_spec.rb"),
        *("src/test/java/FooTest.java", "FooTests.cs", "lib_test.rs", "test_x.c", "a.bats"),
    ],
)
def test_test_files_of_many_languages_are_known(path: str) -> None:
    """They are read-only to the agent."""
    assert is_test_file(path)


@pytest.mark.parametrize(
    "path",
    ["src/app.py", "testing_tools.py", "contest.py", "latest.js", "attest/main.go", "protest.rb", "a/Latest.java"],
)
def test_source_files_are_not_taken_for_tests(path: str) -> None:
    """A name that only sounds like a test can be edited."""
    assert not is_test_file(path)
