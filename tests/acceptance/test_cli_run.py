"""A run at the command line: started, asked about, approved, looked at; and what each command prints."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.apart import apart, instead
from tests.helpers.cli import CALC, FIELDS, FIX, Cli, Ended, standing

pytestmark = pytest.mark.acceptance


def test_a_run_waits_for_approval_and_then_applies_its_patch_once(cli: Cli) -> None:
    """Exit 3 with the folder untouched; approved, exit 0, the patch applied once; every command shows it as it was."""
    repository = cli.repository('it\'s a "folder" with spaces')
    waiting = cli("run", repository, "--model", cli.script(FIX), "--json")
    assert waiting.code == 3, waiting
    assert waiting.facts.keys() >= FIELDS
    assert standing(waiting.facts) == "waiting: approval"
    assert waiting.facts["sandbox_level"] == 3
    assert (repository / "calc.py").read_text() == CALC
    (pending,) = waiting.facts["pending"]
    assert "+    return a + b" in pending["diff"]
    assert "1 passed, 0 failed" in pending["description"]
    assert "Sandbox level: 3." in pending["description"]

    shown = cli.here("show", waiting.facts["run_id"][:8], "--json")
    assert shown.code == 0
    assert shown.facts == waiting.facts

    ended = cli("approve", "last", pending["call_id"][:6], "--by", "ada", "--json")
    assert ended.code == 0, ended
    assert standing(ended.facts) == "completed: done"
    assert "return a + b" in (repository / "calc.py").read_text()

    _every_command_tells_of_it(cli, ended.facts)


def _every_command_tells_of_it(cli: Cli, facts: dict[str, Any]) -> None:
    run_id = facts["run_id"]
    assert [each["run_id"] for each in cli.here("runs", "--json", "--limit", 1).facts] == [run_id]
    assert "failing tests of it's a" in cli.here("runs").out

    steps = cli.here("history", run_id, "--json").facts
    assert all(step.keys() >= {"step", "nodes", "checkpoint_id", "status", "snapshot", "at"} for step in steps)
    assert [step["step"] for step in steps] == list(range(1, facts["step"] + 1))

    (effect,) = cli.here("effects", run_id, "--json").facts
    assert effect.keys() >= {"call_id", "tool", "state", "receipt", "at"}
    assert (effect["tool"], effect["state"]) == ("apply_patch_to_repository", "settled")

    calls = cli.here("trace", run_id, "--json").facts
    assert {call["kind"] for call in calls} == {"model", "tool"}
    assert all(call["seconds"] >= 0 for call in calls)

    edited = next(step["step"] for step in steps if step["snapshot"] not in {None, steps[2]["snapshot"]})
    then = cli.here("show", run_id, "--step", edited - 1, "--json").facts
    assert then.keys() >= FIELDS
    assert (then["step"], then["status"], then["state"]["snapshot"]) == (edited - 1, "running", steps[2]["snapshot"])
    assert then["state"]["messages"][-1]["content"] == "The sign is wrong."

    found = cli.here("diff", run_id, edited - 1, edited, "--json").facts
    assert "-    return a - b\n+    return a + b" in found["files"]
    assert found["state"]["messages"]["removed"] == []

    again = cli.here("resume", run_id, "--json")
    assert again.code == 0
    assert again.facts == facts


def test_the_text_form_names_every_field_and_has_no_colours_without_a_terminal(cli: Cli) -> None:
    """What --json has, the text has too; nothing in it moves a cursor."""
    run_id = cli.here("run", cli.repository(), "--model", cli.script(FIX), "--json").facts["run_id"]
    shown = cli.here("show", run_id)
    assert not [field for field in FIELDS if f"{field}:" not in shown.out]
    for command in (("runs",), ("history", run_id), ("trace", run_id), ("effects", run_id), ("diff", run_id, 1, 9)):
        assert "\x1b" not in cli.here(*command).out + shown.out


def test_a_rejected_patch_is_never_applied_and_an_escalation_can_be_ended(cli: Cli) -> None:
    """The model is told why; with nothing more to say it escalates; a person's rejection of that cancels: exit 5."""
    repository = cli.repository()
    run_id = cli.here("run", repository, "--model", cli.script(FIX), "--json").facts["run_id"]
    rejected = cli.here("approve", run_id, "--reject", "wrong file", "--json")
    assert rejected.code == 3, rejected
    assert standing(rejected.facts) == "waiting: escalation"
    assert [each["expires_at"] for each in rejected.facts["pending"]] == [None]
    assert "(escalation), for as long as it takes" in cli.here("show", run_id).out
    assert (repository / "calc.py").read_text() == CALC
    state = cli.here("show", run_id, "--step", rejected.facts["step"], "--json").facts["state"]
    assert any("wrong file" in str(message.get("content")) for message in state["messages"])

    assert cli.here("resume", run_id, "--yes").code == 3, "--yes never answers an escalation"

    ended = cli.here("approve", run_id, "--reject", "never mind", "--json")
    assert ended.code == 5, ended
    assert standing(ended.facts) == "cancelled: by_person"
    late = cli.here("approve", run_id)
    assert (late.code, late.err.count("\n")) == (2, 1)
    assert "does not wait" in late.err


def test_an_edit_is_what_is_applied(cli: Cli) -> None:
    """The arguments that the person wrote are those of the effect; ones that the tool does not take are refused."""
    run_id = cli.here("run", cli.repository(), "--model", cli.script(FIX), "--json").facts["run_id"]
    refused = cli.here("approve", run_id, "--edit", '{"nonsense": 1}')
    assert refused.code == 2
    assert "takes no argument nonsense" in refused.err
    ended = cli.here("approve", run_id, "--edit", '{"summary": "plus, not minus"}', "--json")
    assert ended.code == 0, ended
    applied = [
        call for call in cli.here("trace", run_id, "--json").facts if call["name"] == "apply_patch_to_repository"
    ]
    assert [call["request"]["args"] for call in applied] == [{"summary": "plus, not minus"}]


def test_of_two_answers_at_once_one_wins_and_the_other_is_told(cli: Cli) -> None:
    """Both are real processes; the loser hears who decided what and when, and exits 2."""
    run_id = cli.here("run", cli.repository(), "--model", cli.script(FIX), "--json").facts["run_id"]

    def answer(who: str, *more: str) -> Ended:
        return cli("approve", run_id, "--by", who, "--detach", "--json", *more)

    with ThreadPoolExecutor() as pool:
        answers = {"ada": pool.submit(answer, "ada"), "bob": pool.submit(answer, "bob", "--reject", "no")}
        ended = {who: future.result() for who, future in answers.items()}
    winner, loser = sorted(ended, key=lambda who: ended[who].code)
    assert (ended[winner].code, ended[loser].code) == (0, 2), ended
    assert f"{winner} already decided" in ended[loser].err

    assert cli.here("resume", run_id, "--json").code == (0 if winner == "ada" else 3)


def test_a_home_that_devfix_makes_is_for_its_user_alone(cli: Cli, tmp_path: Path) -> None:
    """Copies of the repository lie in it."""
    home = tmp_path / "new" / "home"
    ended = cli("run", cli.repository(), "--model", cli.script(FIX), "--json", DEVFIX_HOME=str(home))
    assert ended.code == 3, ended
    assert home.stat().st_mode & 0o077 == 0
    assert any(home.rglob("calc.py"))


def test_yes_approves_and_shows_what_it_approved(cli: Cli) -> None:
    """The whole way in one command, with the patch in a file and the folder as it was."""
    repository, patch = cli.repository(), cli.folder / "fix.patch"
    ended = cli.here("run", repository, "--model", cli.script(FIX), "--yes", "--patch-out", patch.name, "--json")
    assert ended.code == 0, ended
    assert "+    return a + b" in ended.err
    assert "by --yes" in ended.err
    assert (repository / "calc.py").read_text() == CALC
    assert "+    return a + b" in patch.read_text()


def test_tests_that_pass_already_are_nothing_to_do(cli: Cli) -> None:
    """completed: nothing_to_do, exit 0, though nobody approved anything."""
    repository = cli.repository()
    (repository / "calc.py").write_text("def add(a, b):\n    return a + b\n")
    ended = cli.here("run", repository, "--model", cli.script([]), "--json")
    assert (ended.code, standing(ended.facts)) == (0, "completed: nothing_to_do"), ended


def test_a_test_command_that_does_not_exist_is_told_with_its_output(cli: Cli) -> None:
    """failed: tests_unreachable, exit 4; the report holds what the shell said."""
    ended = cli.here("run", cli.repository(), "--test", "no-such-runner -x", "--model", cli.script([]), "--json")
    assert (ended.code, standing(ended.facts)) == (4, "failed: tests_unreachable"), ended
    assert "no-such-runner" in ended.facts["report"]["details"]


def test_the_sandbox_level_shown_is_the_one_that_the_tests_ran_at(cli: Cli) -> None:
    """Run where no sandbox works, a run says level 1 wherever it is looked at; before its tests ran it says none."""
    refusing = cli.folder / "bwrap"
    refusing.write_text("#!/bin/sh\necho 'bwrap: no' >&2\nexit 1\n")
    refusing.chmod(0o755)
    program = Path(cli.here("doctor", "--json").facts["sandbox"]["program"])
    with apart(cli, instead(program, refusing)) as there:
        assert there("run", cli.repository()).code == 4
        options = ("--model", cli.script(FIX), "--unsafe-local", "--env", "LANG", "--json")
        waiting = there("run", cli.repository(), *options)
    assert (waiting.code, waiting.facts["sandbox_level"]) == (3, 1), waiting
    shown = cli.here("show", "last", "--json").facts
    assert shown["sandbox_level"] == 1
    assert "Sandbox level: 1, with the variables LANG." in shown["pending"][0]["description"]
    assert cli.here("show", "last", "--step", 1, "--json").facts["sandbox_level"] is None
    ended = cli.here("approve", "last", "--json")
    assert (ended.code, ended.facts["sandbox_level"]) == (0, 1), ended


def test_undecodable_names_and_carriage_returns_come_through(cli: Cli) -> None:
    """A repository with a file name that is no text, CRLF ends and a surrogate in the goal is repaired as any other."""
    repository = cli.repository()
    (repository / os.fsdecode(b"caf\xe9.txt")).write_bytes(b"\xff\r\n")
    (repository / "calc.py").write_bytes(CALC.replace("\n", "\r\n").encode())
    ended = cli.here("run", repository, "--goal", "fix caf\udce9", "--model", cli.script(FIX), "--yes", "--json")
    assert ended.code == 0, ended
    assert ended.facts["goal"] == "fix caf\udce9"
    assert (repository / "calc.py").read_bytes() == b"def add(a, b):\r\n    return a + b\r\n"
    assert cli.here("show", "last").code == cli.here("runs").code == 0


@pytest.mark.parametrize(
    ("module", "forbidden"),
    [
        ("scripts.cli.app", "langgraph langchain_core psycopg rich.console pydantic procrastinate"),
        ("scripts.registers", "langgraph langchain_core rich.console procrastinate"),
    ],
)
def test_what_must_answer_at_once_loads_little(module: str, forbidden: str) -> None:
    """`devfix --help` and `devfix runs` load no graph and no model: that alone would take a second."""
    code = f"import sys, {module}; print(*(set(sys.modules) & set({forbidden.split()!r})))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
