"""run_tests: what it says of a repository's tests, whatever they do; real sandbox, real pytest."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from typing import Any, cast

import pytest

from state.settings import Settings
from tools.registry import ToolContext, ToolResult
from tools.sandbox import choose_sandbox
from tools.testing import run_tests
from tools.warm import Warm
from tools.workspace import Workspace

Run = Callable[..., Any]

PACKAGE = {
    "shop/__init__.py": "",
    "shop/prices.py": """
        def total(prices, discount=0):
            amount = 0
            for price in prices:
                amount += price
            return amount + discount


        def label(price):
            return f"{price} EUR"
        """,
    "tests/test_prices.py": """
        import pytest

        from shop.prices import label, total


        def test_total():
            assert total([1, 2, 3]) == 6


        def test_discount():
            assert total([10], discount=3) == 7


        def test_label():
            assert label(3) == "3 EUR"


        @pytest.mark.skip(reason="not yet")
        def test_later():
            assert False
        """,
}


@pytest.fixture(scope="session")
def devfix_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One home for all: the folder that offers pytest is made once."""
    return tmp_path_factory.mktemp("home")


@pytest.fixture
def run(tmp_path: Path, devfix_home: Path) -> Run:
    """Lay out files, run the tool on them."""

    async def laid_out(files: dict[str, str], command: str = "python -m pytest -q", **options: Any) -> ToolResult:
        context = await context_for(tmp_path, devfix_home, files, command, **options.pop("work", {}))
        seconds = options.pop("timeout", 60.0)
        context = cast("ToolContext", _with_timeout(context, seconds))
        return cast("ToolResult", await run_tests.call(**options, context=context))

    return laid_out


async def context_for(
    folder: Path, home: Path, files: dict[str, str], command: str, *, warm: Warm | None = None, **work: Any
) -> ToolContext:
    """A tool's context on a workspace with these files; the original lies beside it and is empty."""
    root, original = folder / "workspace", folder / "original"
    original.mkdir(exist_ok=True)
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(dedent(text).lstrip("\n"), newline="")
    return ToolContext(
        run_id="run",
        call_id="call",
        key="key",
        work={"test_command": command, "python": None, "env": [], **work},
        workspace=Workspace(root=root, repository=original),
        sandbox=await choose_sandbox(unsafe_local=True),
        artifacts=cast("Any", None),
        snapshots=cast("Any", None),
        settings=Settings(home=home),
        warm=warm,
        snapshot="content",
    )


def _with_timeout(context: ToolContext, seconds: float) -> ToolContext:
    from dataclasses import replace

    return replace(context, settings=context.settings.model_copy(update={"test_timeout_seconds": seconds}))


async def test_failing_tests_are_named_with_error_and_place(run: Run) -> None:
    """Counts, node ids, the short error with its place, and pytest's own output; the skipped test is no failure."""
    result = await run(PACKAGE)
    facts = result.facts
    assert facts["outcome"] == "failed"
    assert (facts["passed"], facts["failed"], facts["skipped"], facts["tests"]) == (2, 1, 1, 4)
    assert facts["failing"] == ["tests/test_prices.py::test_discount"]
    assert facts["exit_code"] == 1
    assert "AssertionError at tests/test_prices.py:11: assert 13 == 7" in result.content
    assert "1 failed" in str(facts["output"])


async def test_locate_ranks_the_lines_that_only_failing_tests_run(run: Run) -> None:
    """With locate, the project's lines come by suspicion; no line of a test, none that only passing tests ran."""
    result = await run(PACKAGE, locate=True)
    assert result.facts["outcome"] == "failed"
    lines = [line.split()[1] for line in result.content.splitlines() if line.startswith("suspicious ")]
    assert "shop/prices.py:5" in lines
    assert "shop/prices.py:9" not in lines
    assert not [line for line in lines if line.startswith("tests/")]


async def test_passing_tests_are_passed_by_the_command_itself(run: Run) -> None:
    """All green: the outcome is that of the command as the user gave it, also with locate."""
    fixed = {**PACKAGE, "shop/prices.py": PACKAGE["shop/prices.py"].replace("amount + discount", "amount - discount")}
    result = await run(fixed, locate=True)
    assert (result.facts["outcome"], result.facts["passed"]) == ("passed", 3)
    assert result.content.startswith("passed: 3 passed, 0 failed")


async def test_the_users_options_stay_in_force(run: Run) -> None:
    """addopts, -p no:…, -x and PYTEST_ADDOPTS of the user's work on beside our plugin."""
    options = {"pytest.ini": "[pytest]\naddopts = -p no:cacheprovider --strict-markers -k discount\n"}
    result = await run({**PACKAGE, **options}, "env PYTEST_ADDOPTS= python -m pytest -q -p no:randomly -x")
    assert result.facts["failed"] == 1
    result = await run({**PACKAGE, **options}, "python -m pytest -q -p no:randomly -x")
    assert (result.facts["failed"], result.facts["passed"]) == (1, 0)


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("no-such-command --at-all", "127"),
        ("python -m no_such_module", "No module named no_such_module"),
        ("python no_such_file.py", "can't open file"),
        ("python -m pytest --no-such-option", "exit code 4"),
        ("python -m pytest no/such/test.py", "exit code 4"),
        ("cd nowhere && python -m pytest", "exit code 2, and no test ran"),
        ("false", "exit code 1, and no test ran"),
    ],
)
async def test_what_can_not_be_run_is_unreachable(run: Run, command: str, said: str) -> None:
    """No such command, module, file, option or test: unreachable, and why."""
    result = await run(PACKAGE, command)
    assert result.facts["outcome"] == "unreachable", result.content
    assert said in result.content


async def test_no_tests(run: Run) -> None:
    """A repository without tests has no failing ones, and no passing ones either."""
    assert (await run({"shop.py": "x = 1\n"})).facts["outcome"] == "no_tests"


async def test_an_error_at_import_of_the_project_is_a_defect(run: Run) -> None:
    """Collection fails since the project's own module fails: that is repairable, and the line is suspicious."""
    broken = {**PACKAGE, "shop/prices.py": "RATES = [1, 2]\nDEFAULT = RATES[2]\n\n\ndef total(prices):\n    return 1\n"}
    result = await run(broken, locate=True)
    assert result.facts["outcome"] == "failed"
    assert result.facts["failing"] == ["tests/test_prices.py"]
    assert "suspicious shop/prices.py:2 1.0" in result.content


async def test_an_error_in_a_test_file_is_unreachable(run: Run) -> None:
    """Collection fails in the tests' own file, or for a package that is not installed: nothing to repair here."""
    result = await run({**PACKAGE, "tests/test_more.py": "raise RuntimeError('no database')\n"})
    assert result.facts["outcome"] == "unreachable"
    assert "no database" in result.content
    result = await run({**PACKAGE, "shop/prices.py": "import surely_not_installed\n"})
    assert result.facts["outcome"] == "unreachable"
    assert "surely_not_installed" in result.content


async def test_a_broken_conftest_is_unreachable_and_a_broken_project_behind_it_is_not(run: Run) -> None:
    """pytest ends before it collects; the traceback tells whose error it is."""
    result = await run({**PACKAGE, "conftest.py": "raise RuntimeError('no database')\n"})
    assert result.facts["outcome"] == "unreachable"
    result = await run(
        {**PACKAGE, "conftest.py": "import shop.prices\n", "shop/prices.py": "x = [1][1]\n"}, locate=True
    )
    assert result.facts["outcome"] == "failed"
    assert "suspicious shop/prices.py:1" in result.content


async def test_a_module_from_outside_the_workspace_is_unreachable(run: Run) -> None:
    """The tests import a project module of another place: their result would be false, and the place is named."""
    files = {
        "pricing/__init__.py": "RATE = 1\n",
        "test_rate.py": "import pricing\n\n\ndef test_rate():\n    assert pricing.RATE == 2\n",
        "conftest.py": """
            import os, sys, tempfile
            elsewhere = tempfile.mkdtemp()
            os.mkdir(os.path.join(elsewhere, "pricing"))
            open(os.path.join(elsewhere, "pricing", "__init__.py"), "w").write("RATE = 2\\n")
            sys.path.insert(0, elsewhere)
            import pricing
            """,
    }
    result = await run(files)
    assert result.facts["outcome"] == "unreachable"
    assert "pricing was imported from /" in result.content


HANGS = {
    "forks": """
        import os, signal, time
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.fork()
        time.sleep(600)
        """,
    "prints": """
        import signal
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        while True:
            print("and on " * 1000)
        """,
}


@pytest.mark.parametrize("way", HANGS)
async def test_b104_a_command_that_never_ends_is_ended(run: Run, way: str) -> None:
    """It hangs, forks, ignores TERM, or prints for ever: ended within its limit, with what it printed, shortened."""
    began = time.monotonic()
    result = await run({"loop.py": HANGS[way]}, "python loop.py", timeout=2.0)
    assert result.facts["outcome"] == "timeout"
    assert "was stopped" in result.content
    assert len(result.content) < 32_000
    assert time.monotonic() - began < 30


async def test_an_endless_test_is_located(run: Run) -> None:
    """One test loops for ever, the others run; the loop's lines are suspicious, and the rest has its results."""
    files = {
        "count.py": "def down(n):\n    while n:\n        n -= 2\n    return n\n\n\ndef up(n):\n    return n + 1\n",
        "test_count.py": """
            from count import down, up

            def test_even(): assert down(4) == 0
            def test_odd(): assert down(3) == 0
            def test_up(): assert up(1) == 3
            """,
    }
    result = await run(files, locate=True)
    assert result.facts["outcome"] == "failed"
    assert result.facts["failing"] == ["test_count.py::test_odd", "test_count.py::test_up"]
    assert "Timeout at count.py:" in result.content
    assert "suspicious count.py:3" in result.content


@pytest.mark.parametrize("place", ["test_a.py", "test_z.py"])
async def test_a_test_that_ends_its_process_is_one_failure(run: Run, place: str) -> None:
    """Whether it is the first or the last: the others have their results, and all are counted."""
    files = {"leave.py": "import os\n\n\ndef leave():\n    os._exit(3)\n"}
    files[place] = "from leave import leave\n\n\ndef test_leave():\n    leave()\n"
    result = await run({**PACKAGE, **files}, locate=True)
    assert result.facts["outcome"] == "failed", result.content
    assert result.content.startswith("failed: 2 passed, 2 failed, 0 errors, 1 skipped of 5 tests")
    assert "Crash" in result.content


async def test_what_a_test_leaves_running_is_not_waited_for(run: Run) -> None:
    """A daemon that it forked holds all that was open; the tests have ended all the same."""
    files = {
        "test_daemon.py": """
            import os, time

            def test_daemon():
                if os.fork() == 0:
                    os.setsid()
                    time.sleep(600)

            def test_wrong(): assert False
            """,
    }
    began = time.monotonic()
    result = await run(files, locate=True, timeout=25.0)
    assert result.content.startswith("failed: 1 passed, 1 failed"), result.content
    assert time.monotonic() - began < 20


async def test_commands_that_are_not_pytest_are_judged_by_their_end(run: Run) -> None:
    """unittest and scripts: exit code and output count."""
    files = {
        "shop.py": "def total(xs):\n    return sum(xs) + 1\n",
        "test_shop.py": """
            import unittest
            from shop import total

            class TotalTest(unittest.TestCase):
                def test_total(self): self.assertEqual(total([1]), 1)
                def test_type(self): self.assertIsInstance(total([]), int)
            """,
    }
    result = await run(files, "python -m unittest -q")
    assert (result.facts["outcome"], result.facts["tests"], result.facts["passed"], result.facts["failed"]) == (
        "failed",
        2,
        1,
        1,
    )
    assert result.facts["failing"] == ["test_shop.TotalTest.test_total"]
    assert (await run(files, "python -c 'import shop'")).facts["outcome"] == "passed"
    for check in (
        "python -c 'from shop import total; assert total([1]) == 1'",
        "echo 'total: FAIL' && exit 1",
        "echo 'not ok 1 - total' && exit 1",
        "kill -SEGV $$",
        "python -m pytest -q test_exit.py",
    ):
        ending = {"test_exit.py": "import os\n\n\ndef test_exit():\n    os._exit(9)\n"}
        assert (await run({**files, **ending}, check)).facts["outcome"] == "failed", check


async def test_the_workspace_is_left_as_it_was(run: Run, tmp_path: Path) -> None:
    """What the tests write is gone afterwards."""
    files = {"test_write.py": "def test_write():\n    open('left.txt', 'w').write('x')\n"}
    result = await run(files)
    assert result.facts["outcome"] == "passed"
    assert sorted(path.name for path in (tmp_path / "workspace").iterdir()) == ["test_write.py"]


async def test_node_ids_can_be_selected(run: Run) -> None:
    """Only the named tests run; options are refused."""
    result = await run(PACKAGE, select=["tests/test_prices.py::test_label"])
    assert (result.facts["outcome"], result.facts["tests"]) == ("passed", 1)
    assert (await run(PACKAGE, select=["--collect-only"])).is_error


async def test_a_test_that_waits_for_ever_is_located(run: Run) -> None:
    """It takes no processor time; within the user's limit it is named, with the line where it waits."""
    files = {
        "wait.py": "import time\n\n\ndef ready(n):\n    while n:\n        time.sleep(0.05)\n        n += 1\n",
        "test_wait.py": """
            from wait import ready

            def test_now(): ready(0)
            def test_soon(): ready(1)
            def test_never(): ready(0)
            """,
    }
    result = await run(files, locate=True, timeout=4.0)
    assert result.content.startswith("failed: 2 passed, 1 failed"), result.content
    assert result.facts["failing"] == ["test_wait.py::test_soon"]
    assert "Timeout at wait.py:" in result.content
    assert "suspicious wait.py:6" in result.content


async def test_of_tests_that_all_hang_some_are_named_and_the_rest_counted(run: Run) -> None:
    """The user's limit is not spent on each of them."""
    files = {
        "work.py": "import time\n\n\ndef work():\n    time.sleep(600)\n",
        "test_work.py": "import pytest\nfrom work import work\n\n\n"
        "@pytest.mark.parametrize('n', range(20))\ndef test_work(n):\n    work()\n",
    }
    result = await run(files, locate=True, timeout=4.0)
    assert result.facts["outcome"] == "failed", result.content
    assert "test_work.py::test_work[0]" in result.facts["failing"]
    assert result.facts["tests"] == 20
    assert "tests were not run to their end" in result.content


@pytest.mark.parametrize("imported_by", ["test_slow.py", "conftest.py"])
async def test_a_hang_before_the_first_test_is_a_timeout(run: Run, imported_by: str) -> None:
    """At import, by a test file or by pytest's own start: a timeout, with the line where that can be seen."""
    files = {"slow.py": "import time\n\ntime.sleep(600)\n", "test_slow.py": "def test_slow():\n    pass\n"}
    files[imported_by] = "import slow\n\n\ndef test_slow():\n    pass\n"
    result = await run(files, locate=True, timeout=4.0)
    assert result.facts["outcome"] == "timeout", result.content
    assert "while the tests were collected" in result.content
    assert ("(at slow.py:3)" in result.content) == (imported_by == "test_slow.py")


async def test_a_suite_that_is_longer_than_the_limit_is_a_timeout(run: Run) -> None:
    """Each test ends: none is taken for one that hangs."""
    files = {"test_long.py": "import pytest, time\n\n\n@pytest.mark.parametrize('n', range(40))\n"
             "def test_long(n):\n    time.sleep(0.5)\n"}  # fmt: skip
    result = await run(files, locate=True, timeout=4.0)
    assert (result.facts["outcome"], result.facts["failing"]) == ("timeout", []), result.content


async def test_one_slow_test_is_not_taken_for_one_that_hangs(run: Run) -> None:
    """It computes for longer than most tests do, it is the only one, and it passes."""
    files = {
        "test_slow.py": """
            import time

            def test_slow():
                end = time.process_time() + 2
                while time.process_time() < end: pass
            """
    }
    result = await run(files, locate=True)
    assert (result.facts["outcome"], result.facts["passed"]) == ("passed", 1), result.content


async def test_a_command_without_pytest_that_never_ends_is_run_once(run: Run, tmp_path: Path) -> None:
    """Looking for the defect needs no second run of the same wait."""
    result = await run({"loop.py": "print('begun', flush=True)\nwhile True: pass\n"}, "python loop.py", locate=True,
                       timeout=2.0)  # fmt: skip
    assert result.facts["outcome"] == "timeout", result.content
    assert result.facts["output"] == "begun\n"
