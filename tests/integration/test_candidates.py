"""evaluate_candidates: verdicts are right, also for code that is hard to swap, and the workspace stays as it is."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from tests.integration.test_testing import PACKAGE, context_for
from tools.candidates import evaluate_candidates
from tools.execution import validated
from tools.registry import ToolContext, ToolResult
from tools.testing import run_tests
from tools.warm import Warm


@pytest.fixture(scope="module")
def devfix_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture
async def warm() -> AsyncIterator[Warm]:
    kept = Warm()
    yield kept
    await kept.aclose()


def patch(path: str, old: str, new: str, line: int | None = None) -> dict[str, Any]:
    return {"edits": [{"path": path, "old": old, "new": new, "line": line}]}


async def evaluate(context: ToolContext, *candidates: dict[str, Any], **options: Any) -> ToolResult:
    values = validated(evaluate_candidates, {"candidates": list(candidates), **options})
    return cast("ToolResult", await evaluate_candidates.call(**values, context=context))


def verdicts(result: ToolResult) -> list[str]:
    return [
        line.split()[1].rstrip(":")
        for line in result.content.splitlines()
        if line[:1].isdigit() and " candidates " not in line
    ]


async def test_what_is_cut_off_while_it_is_made_leaves_no_trace_on_the_terminal(warm: Warm) -> None:
    """The borrower has the error; that nobody else looked at it is no bug to tell of."""
    complaints: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, told: complaints.append(told["message"]))

    @asynccontextmanager
    async def slow() -> AsyncIterator[None]:
        await asyncio.sleep(60)
        yield

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05), warm.lend("tests", 1, slow):
            pass
    gc.collect()
    assert complaints == []


async def test_each_candidate_gets_its_verdict(tmp_path: Path, devfix_home: Path, warm: Warm) -> None:
    """Plausible, failing, breaking another test, no Python, not to be found, a test file: one line each."""
    context = await context_for(tmp_path, devfix_home, PACKAGE, "python -m pytest -q", warm=warm)
    prices = "shop/prices.py"
    result = await evaluate(
        context,
        patch(prices, "amount + discount", "amount - discount"),
        patch(prices, "amount + discount", "amount * discount"),
        patch(prices, "amount + discount", "7"),
        patch(prices, "amount + discount", "amount -"),
        patch(prices, "no such text", "x"),
        patch("tests/test_prices.py", "== 7", "== 13"),
        patch(prices, "    return amount + discount", "    return amount - abs(discount)", line=5),
    )
    assert verdicts(result) == ["plausible", "fails", "fails", "invalid", "invalid", "invalid", "plausible"], (
        result.content
    )
    assert result.facts["plausible"] == [0, 6]
    assert result.facts["evaluated"] == 7
    assert "read-only" in result.content
    assert (context.workspace.root / prices).read_text().count("amount + discount") == 1


HARD = {
    "pkg/__init__.py": "from pkg.core import api\n",
    "pkg/core.py": """
        import functools
        from dataclasses import dataclass

        REGISTRY = {}


        def register(function):
            REGISTRY[function.__name__] = function

            @functools.wraps(function)
            def inner(*args):
                return function(*args)

            return inner


        def adder(amount):
            def add(x):
                return x - amount

            return add


        add_two = adder(2)


        @register
        def api(x):
            return add_two(x)


        @dataclass
        class Limit:
            low: int = 1
        """,
    "conftest.py": """
        import pytest
        from pkg.core import REGISTRY


        @pytest.fixture
        def registered():
            return REGISTRY["api"]
        """,
    "tests/test_api.py": """
        from pkg import api
        from pkg.core import Limit


        def test_api(registered):
            assert api(3) == 5 and registered(3) == 5


        def test_default():
            assert Limit().low == 1
        """,
}


async def test_decorators_closures_and_conftest_imports_take_the_candidate(
    tmp_path: Path, devfix_home: Path, warm: Warm
) -> None:
    """Code that was bound at import time, also by a conftest file, is that of the candidate."""
    context = await context_for(tmp_path, devfix_home, HARD, "python -m pytest -q", warm=warm)
    result = await evaluate(
        context,
        patch("pkg/core.py", "x - amount", "x + amount"),
        patch("pkg/core.py", "adder(2)", "adder(-2)"),
        patch("pkg/core.py", "low: int = 1", "low: int = 0"),
    )
    assert verdicts(result) == ["plausible", "plausible", "fails"], result.content


async def test_tests_that_vanish_or_are_skipped_have_not_passed(tmp_path: Path, devfix_home: Path, warm: Warm) -> None:
    """A patch that makes the failing test skip, or not be collected, is not plausible."""
    files = {
        "shop.py": "READY = True\nCASES = [1, 2]\n\n\ndef double(x):\n    return x + 2\n",
        "test_shop.py": """
            import pytest
            import shop

            @pytest.mark.skipif(not shop.READY, reason="not ready")
            @pytest.mark.parametrize("case", shop.CASES)
            def test_double(case):
                assert shop.double(case) == 2 * case

            def test_type():
                assert isinstance(shop.double(1), int)
            """,
    }
    context = await context_for(tmp_path, devfix_home, files, "python -m pytest -q", warm=warm)
    result = await evaluate(
        context,
        patch("shop.py", "READY = True", "READY = False"),
        patch("shop.py", "CASES = [1, 2]", "CASES = [2]"),
        patch("shop.py", "x + 2", "x * 2"),
    )
    assert verdicts(result) == ["fails", "fails", "plausible"], result.content


async def test_endless_dying_and_greedy_candidates_harm_nobody(tmp_path: Path, devfix_home: Path, warm: Warm) -> None:
    """Loops in Python and in C, deep recursion, a killed process, memory without end: a verdict, and on."""
    files = {
        "work.py": "def work(n):\n    return n\n",
        "test_work.py": "from work import work\n\n\ndef test_work():\n    assert work(2) == 3\n",
    }
    context = await context_for(tmp_path, devfix_home, files, "python -m pytest -q", warm=warm)
    bodies = [
        "while True: pass",
        "return work(n)",
        "import os; os._exit(0)",
        "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
        "return len(' ' * 10 ** 11)",
        "import itertools; return sum(itertools.repeat(1))",
        "import time; time.sleep(1000)",
        "\n    try:\n        while True: pass\n    except BaseException: return 3",
        "return n + 1",
    ]
    result = await evaluate(context, *[patch("work.py", "return n", body) for body in bodies])
    rest = [
        index
        for index in range(len(bodies))
        if not any(line.startswith(f"{index} ") for line in result.content.splitlines())
    ]
    found = dict(line.split(" ", 1) for line in result.content.splitlines()[1:] if line[:1].isdigit())
    again = await evaluate(context, *[patch("work.py", "return n", bodies[index]) for index in rest]) if rest else None
    if again is not None:
        lines = dict(line.split(" ", 1) for line in again.content.splitlines()[1:] if line[:1].isdigit())
        found |= {str(rest[int(index)]): verdict for index, verdict in lines.items()}
    words = [found[str(index)].split()[0].rstrip(":") for index in range(len(bodies))]
    assert words[-1] == "plausible", found
    assert set(words[:-1]) <= {"timeout", "fails"}, found
    assert words[0] == words[6] == words[7] == "timeout"


async def test_commands_without_pytest_are_tried_one_by_one(tmp_path: Path, devfix_home: Path, warm: Warm) -> None:
    """Where there is no pytest to keep waiting, each candidate runs the command; the exit code is the verdict."""
    files = {
        "shop.py": "def total(xs):\n    return sum(xs) + 1\n",
        "check.py": "from shop import total\nassert total([1, 2]) == 3\n",
    }
    context = await context_for(tmp_path, devfix_home, files, "python check.py", warm=warm)
    result = await evaluate(context, patch("shop.py", "+ 1", "- 1"), patch("shop.py", " + 1", ""))
    assert verdicts(result) == ["fails", "plausible"], result.content
    assert (context.workspace.root / "shop.py").read_text() == files["shop.py"]


@pytest.mark.parametrize("command", ["python -m pytest -q", "python check.py"])
async def test_a_module_behind_a_link_is_located_and_tried_as_the_file_itself(
    tmp_path: Path, devfix_home: Path, warm: Warm, command: str
) -> None:
    """The suspicious line is the real file's, and a candidate takes effect under either path; no test is one."""
    files = {
        "lib/sums.py": "def total(xs):\n    return sum(xs) / xs[0]\n",
        "lib/checks.py": "from sums import total\n\n\ndef test_total():\n    assert total([0, 2]) == 2\n",
        "check.py": "from test_sums import test_total\n\ntest_total()\n",
    }
    context = await context_for(tmp_path, devfix_home, files, command, warm=warm)
    (context.workspace.root / "sums.py").symlink_to("lib/sums.py")
    (context.workspace.root / "test_sums.py").symlink_to("lib/checks.py")
    located = await run_tests.call(locate=True, context=context)
    places = [line.split()[1] for line in located.content.splitlines() if line.startswith("suspicious ")]
    assert places[0] == "lib/sums.py:2", located.content
    assert not any(place.startswith(("lib/checks.py", "sums.py")) for place in places), located.content
    fixes = [patch(path, "sum(xs) / xs[0]", "sum(xs)") for path in ("lib/sums.py", "sums.py")]
    result = await evaluate(context, *fixes, patch("test_sums.py", "== 2", "== 0"))
    assert verdicts(result) == ["plausible", "plausible", "invalid"], result.content


async def test_a_defect_at_import_time_can_be_repaired(tmp_path: Path, devfix_home: Path, warm: Warm) -> None:
    """Nothing can be collected before the patch; with it, everything passes."""
    files = {
        "rates.py": "RATES = [1, 2]\nBEST = RATES[2]\n",
        "test_rates.py": "from rates import BEST\n\n\ndef test_best():\n    assert BEST == 2\n",
    }
    context = await context_for(tmp_path, devfix_home, files, "python -m pytest -q", warm=warm)
    result = await evaluate(
        context, patch("rates.py", "RATES[2]", "RATES[1]"), patch("rates.py", "RATES[2]", "RATES[0]")
    )
    assert verdicts(result) == ["plausible", "fails"], result.content


async def test_a_warm_process_is_only_a_cache(tmp_path: Path, devfix_home: Path, warm: Warm) -> None:
    """With it and without it the verdicts are the same; other content gets another process."""
    fix = patch("shop/prices.py", "amount + discount", "amount - discount")
    cold = await context_for(tmp_path, devfix_home, PACKAGE, "python -m pytest -q")
    kept = await context_for(tmp_path, devfix_home, PACKAGE, "python -m pytest -q", warm=warm)
    assert [verdicts(await evaluate(each, fix)) for each in (cold, kept, kept)] == [["plausible"]] * 3


async def test_without_a_failing_test_there_is_nothing_to_try(tmp_path: Path, devfix_home: Path) -> None:
    """All tests pass as they are: that is an answer, not fifty plausible patches."""
    files = {"test_fine.py": "def test_fine():\n    pass\n", "fine.py": "x = 1\n"}
    context = await context_for(tmp_path, devfix_home, files, "python -m pytest -q")
    result = await evaluate(context, patch("fine.py", "x = 1", "x = 2"))
    assert result.is_error
    assert "pass without any edit" in result.content
