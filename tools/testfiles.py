"""Which files are tests: the agent may read them but not change them, or it could make them pass by lying."""

from __future__ import annotations

import re
from pathlib import PurePosixPath

_FOLDERS = frozenset({"test", "tests", "__tests__", "spec", "specs"})
_NAMES = re.compile(
    r"test_.*\.py|.*_tests?\.py|tests?\.py|conftest\.py"  # Python
    r"|.*[._-](test|spec)s?\.[cm]?[jt]sx?|.*\.snap"  # JavaScript, TypeScript
    r"|.*_test\.(go|rs|exs?|c|cc|cpp|cxx|dart|clj|lua|php)|test_.*\.(c|cc|cpp|cxx|rb|jl|lua|sh|R)"
    r"|.*_(test|spec)\.rb|.*(Test|Tests|IT|Spec|Specs)\.(java|kt|kts|scala|groovy|cs|fs|swift|php)"
    r"|Test[A-Z].*\.(java|kt|cs)|.*\.bats"
)

_STEERING = re.compile(
    r"pytest\.(ini|toml|py)|\.pytest\.(ini|toml)|tox\.ini|noxfile\.py|setup\.cfg|pyproject\.toml|sitecustomize\.py"
    r"|usercustomize\.py|unittest\.py|(GNU)?[mM]akefile|package\.json|.*\.pth"
)


def steers_tests(path: str) -> bool:
    """Whether the file may say which tests run, or with what: a person should look at what is changed there."""
    place = PurePosixPath(path)
    return _STEERING.fullmatch(place.name) is not None or place.parts[0] in {"_pytest", "pytest", "unittest"}


def is_test_file(path: str) -> bool:
    """Whether the path (relative, with `/`) is a test, or lies among tests, in the usual forms of any language."""
    place = PurePosixPath(path)
    return any(part in _FOLDERS for part in place.parts[:-1]) or _NAMES.fullmatch(place.name) is not None
