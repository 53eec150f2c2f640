"""The repair job with a scripted model, in the real sandbox: nothing is put to a person that the evidence denies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from state.approvals import Decision
from state.runs import Run
from tests.helpers.app import Driver, calls

RIGHT = ("edit_file", {"path": "sums.py", "old": "a - b", "new": "a + b"})
WRONG = ("edit_file", {"path": "sums.py", "old": "a - b", "new": "a - b - 1"})
BACK = ("edit_file", {"path": "sums.py", "old": "a - b - 1", "new": "a - b"})
APPLY = ("apply_patch_to_repository", {"summary": "add, not subtract"})


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A function, its test, and a defect."""
    folder = tmp_path / "a repository's folder"
    folder.mkdir()
    (folder / "sums.py").write_text("def add(a, b):\n    return a - b\n")
    (folder / "test_sums.py").write_text("from sums import add\n\n\ndef test_add():\n    assert add(2, 3) == 5\n")
    return folder


async def repair(driver: Driver, repository: Path, *turns: Any, **given: Any) -> Run:
    model = driver.script(turns)
    await driver.agent.ainvoke({"repository": str(repository), "model": model, **given}, driver.config)
    return await driver.run()


async def answer(driver: Driver, kind: str = "approve", message: str | None = None) -> Run:
    row = (await driver.services.approvals.of(driver.run_id))[-1]
    decision = Decision.model_validate({"type": kind, "message": message})
    await driver.services.approvals.decide(driver.run_id, row.question.call_id, decision, by="eve")
    return await driver.go_on()


async def test_a_patch_is_proved_in_a_fresh_copy_before_a_person_is_asked(driver: Driver, repository: Path) -> None:
    """The evidence is of just the files that are applied, and the folder is not touched before."""
    waiting = await repair(driver, repository, calls(RIGHT), calls(APPLY))
    assert str(waiting.standing) == "waiting: approval"
    assert "a - b" in (repository / "sums.py").read_text()
    state = await driver.state()
    assert (state["work"]["evidence"]["outcome"], state["work"]["evidence"]["snapshot"]) == (
        "passed",
        state["snapshot"],
    )
    ended = await answer(driver)
    assert str(ended.standing) == "completed: done"
    assert "a + b" in (repository / "sums.py").read_text()


async def test_a_patch_that_the_evidence_denies_is_never_put_to_a_person(driver: Driver, repository: Path) -> None:
    """The model reads why, and may do better."""
    turns = [calls(WRONG), calls(APPLY), calls(BACK), calls(RIGHT), calls(APPLY)]
    waiting = await repair(driver, repository, *turns)
    assert str(waiting.standing) == "waiting: approval"
    assert len(await driver.services.approvals.of(driver.run_id)) == 1
    told = [record["content"] for record in (await driver.state())["messages"] if record["type"] == "tool"]
    assert any("do not pass in a fresh copy" in text for text in told)
    assert str((await answer(driver)).standing) == "completed: done"


CHEATS = {
    "the process ends as it begins": ("sums.py", "import os\n\nos._exit(0)\n"),
    "the process ends in the test": ("sums.py", "import os\n\n\ndef add(a, b):\n    os._exit(0)\n"),
    "a file stands in for pytest": ("pytest.py", "print('2 passed in 0.1s')\n"),
    "the test is left out": ("pytest.ini", "[pytest]\naddopts = -k other\n"),
    "the test is skipped": ("sums.py", "import pytest\n\n\ndef add(a, b):\n    pytest.skip()\n"),
    "the test may fail": ("sums.py", "import pytest\n\n\ndef add(a, b):\n    pytest.xfail()\n"),
}


@pytest.mark.parametrize("cheat", CHEATS)
async def test_what_failed_has_to_be_seen_to_pass(driver: Driver, repository: Path, cheat: str) -> None:
    """A command that ends well is no evidence where the failing test did not run, or is gone: nobody is asked, and the
    run is not completed."""
    (repository / "test_other.py").write_text("def test_other():\n    pass\n")
    path, content = CHEATS[cheat]
    ended = await repair(driver, repository, calls(("write_file", {"path": path, "content": content})), calls(APPLY))
    assert str(ended.standing) == "waiting: escalation"
    told = [record["content"] for record in (await driver.state())["messages"] if record["type"] == "tool"]
    assert "he call was not made" in told[-1]
    assert await driver.services.ledger.of(driver.run_id) == []


async def test_a_patch_that_changes_how_tests_are_run_is_pointed_out(driver: Driver, repository: Path) -> None:
    """The person who approves reads of it."""
    options = ("write_file", {"path": "pytest.ini", "content": "[pytest]\naddopts = -q\n"})
    await repair(driver, repository, calls(RIGHT), calls(options), calls(APPLY))
    (asked,) = (await driver.agent.aget_state(driver.config)).interrupts
    assert "Look closely: the patch changes how the tests are run (pytest.ini)." in str(asked.value)


async def test_an_answer_in_the_place_of_the_patch_applies_nothing(driver: Driver, repository: Path) -> None:
    """`respond` is a word to the model: the run is not done, and does not say that it is."""
    await repair(driver, repository, calls(RIGHT), calls(APPLY), calls(APPLY))
    asked_again = await answer(driver, "respond", "say more in the summary")
    assert str(asked_again.standing) == "waiting: approval"
    assert "a - b" in (repository / "sums.py").read_text()
    assert await driver.services.ledger.of(driver.run_id) == []
    assert str((await answer(driver)).standing) == "completed: done"
    assert "a + b" in (repository / "sums.py").read_text()


async def test_a_file_that_the_user_changed_meanwhile_is_a_conflict(driver: Driver, repository: Path) -> None:
    """Nothing is written, the conflict is told, and a person decides how to go on."""
    await repair(driver, repository, calls(RIGHT), calls(APPLY))
    theirs = "def add(a, b):\n    return sum([a, b])\n"
    (repository / "sums.py").write_text(theirs)
    waiting = await answer(driver)
    assert str(waiting.standing) == "waiting: escalation"
    assert (repository / "sums.py").read_text() == theirs
    assert waiting.report is not None
    assert "sums.py" in str(waiting.report["summary"])


async def test_already_green_is_nothing_to_do(driver: Driver, repository: Path) -> None:
    """On evidence of DevFix's own, before any model is asked."""
    (repository / "sums.py").write_text("def add(a, b):\n    return a + b\n")
    ended = await repair(driver, repository, "hm")
    assert str(ended.standing) == "completed: nothing_to_do"
    assert [call.kind for call in await driver.services.trace.of(driver.run_id)] == ["tool"]
    assert ended.report is not None
    assert ended.report["done"] == []


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("no-such-program --at-all", "not found"),
        ("python -m pytest no_such_folder", "no_such_folder"),
        ("cd no_such_folder && python -m pytest", "cd to no_such_folder"),
        ("false", "no test ran"),
        ("true", "0 tests"),
    ],
)
async def test_tests_that_cant_be_run_end_with_their_output(
    driver: Driver, repository: Path, command: str, said: str
) -> None:
    """failed: tests_unreachable; nobody asks a model to guess, and nobody takes it for tests that pass."""
    ended = await repair(driver, repository, "hm", test_command=command)
    assert str(ended.standing) == "failed: tests_unreachable"
    assert ended.report is not None
    assert said in str(ended.report["details"])
    assert ended.report["done"] == []


async def test_test_files_are_read_only_unless_allowed(driver: Driver, repository: Path) -> None:
    """An agent that bends the tests is told no; with --allow-test-edits it may."""
    bend = ("edit_file", {"path": "test_sums.py", "old": "== 5", "new": "== -1"})
    await repair(driver, repository, calls(bend), calls(RIGHT), calls(APPLY))
    told = [record["content"] for record in (await driver.state())["messages"] if record["type"] == "tool"]
    assert "read-only" in told[0]
    assert str((await answer(driver)).standing) == "completed: done"
    assert "== 5" in (repository / "test_sums.py").read_text()


async def test_the_same_files_are_proved_anew_when_they_come_back(driver: Driver, repository: Path) -> None:
    """Wrong, back, another wrong one, and the first wrong one again: each turn goes on, none waits for a result that
    is there already."""
    other = ("edit_file", {"path": "sums.py", "old": "a - b", "new": "b - a"})
    undo = ("edit_file", {"path": "sums.py", "old": "b - a", "new": "a - b"})
    turns = [calls(each) for each in (WRONG, APPLY, BACK, other, APPLY, undo, WRONG, APPLY, BACK, RIGHT, APPLY)]
    waiting = await repair(driver, repository, *turns, step_limit=100)
    assert str(waiting.standing) == "waiting: approval"


async def test_a_run_whose_tests_could_not_be_run_is_resumed_with_a_new_look(driver: Driver, repository: Path) -> None:
    """The opening is made again, and what came of it counts."""
    ended = await repair(driver, repository, calls(RIGHT), calls(APPLY), test_command="no-such-program", step_limit=100)
    assert str(ended.standing) == "failed: tests_unreachable"
    rules = driver.services.job("repair").rules
    work = {**rules.again((await driver.state())["work"]), "test_command": "python -m pytest"}
    again = {"work": work, "status": "running", "reason": None, "report": None, "decision": "continue"}
    await driver.agent.aupdate_state(driver.config, again, as_node="review")
    assert str((await driver.go_on()).standing) == "waiting: approval"


async def test_a_defect_behind_a_link_is_repaired_in_the_file_itself(driver: Driver, repository: Path) -> None:
    """The tests import the link; the patch changes what it leads to, and the link stays a link."""
    real = repository / "impl" / "sums.py"
    real.parent.mkdir()
    (repository / "sums.py").rename(real)
    (repository / "sums.py").symlink_to("impl/sums.py")
    await driver.agent.ainvoke({"repository": str(repository), "model": "search-repair"}, driver.config)
    assert str((await driver.run()).standing) == "waiting: approval"
    assert str((await answer(driver)).standing) == "completed: done"
    assert "a + b" in real.read_text()
    assert (repository / "sums.py").is_symlink()
