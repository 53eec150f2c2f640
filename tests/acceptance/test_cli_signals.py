"""What happens to a run when its process is stopped, killed, or met by a second one; and at a terminal."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.helpers.cli import CALC, FIX, Cli, standing

pytestmark = pytest.mark.acceptance

TESTS_RUN = "call                 run_tests"


def test_a_killed_run_goes_on_at_once_in_another_process(cli: Cli) -> None:
    """SIGKILL in the middle of a tool: the run reads as crashed; resumed right away it ends, the patch applied once."""
    repository = cli.repository(seconds=1.5)
    with cli.running("run", repository, "--model", cli.script(FIX), "--yes") as running:
        running.until(TESTS_RUN)
        running.signal(signal.SIGKILL)
        assert running.end().code == -signal.SIGKILL
    crashed = cli.here("show", "last", "--json").facts
    assert standing(crashed) == "queued: crashed"

    ended = cli("resume", crashed["run_id"], "--yes", "--json")
    assert ended.code == 0, ended
    assert "return a + b" in (repository / "calc.py").read_text()
    assert [each["state"] for each in cli.here("effects", "last", "--json").facts] == ["settled"]
    steps = [each["step"] for each in cli.here("history", "last", "--json").facts]
    assert steps == list(range(1, ended.facts["step"] + 1))
    assert processes_in(cli.home) == []


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_puts_the_run_down_at_once(cli: Cli, number: signal.Signals, code: int) -> None:
    """Ctrl-C, SIGTERM or a closed terminal: the attempt settles as released, the process says how to come back."""
    repository = cli.repository(seconds=60)
    with cli.running("run", repository, "--model", cli.script(FIX), "--json") as running:
        running.until(TESTS_RUN)
        running.signal(number)
        ended = running.end()
    assert ended.code == code, ended
    assert standing(ended.facts) == "queued: released"
    assert f"devfix resume {ended.facts['run_id'][:8]}" in ended.err
    assert standing(cli.here("show", ended.facts["run_id"], "--json").facts) == "queued: released"
    assert processes_in(cli.home) == []


def test_a_second_signal_ends_the_process_at_once_with_a_word(cli: Cli) -> None:
    """Whether it is there before the run is put down or not: the way on is named, and the run goes on."""
    with cli.running("run", cli.repository(seconds=60), "--model", cli.script(FIX)) as running:
        running.until(TESTS_RUN)
        running.signal(signal.SIGTERM)
        running.signal(signal.SIGTERM)
        ended = running.end()
    assert ended.code == 143, ended
    assert "devfix resume" in ended.err
    assert standing(cli.here("show", "last", "--json").facts) in {"queued: released", "queued: crashed"}


def test_a_second_process_is_told_who_holds_the_run_and_changes_nothing(cli: Cli) -> None:
    """RunBusy, exit 4, for resume; a person's cancel reaches the holder, which ends with exit 5; resume takes it up."""
    repository = cli.repository(seconds=3)
    with cli.running("run", repository, "--model", cli.script(FIX), "--json") as running:
        running.until(TESTS_RUN)
        busy = cli.here("resume", "last")
        assert (busy.code, busy.out) == (4, ""), busy
        assert f"is held by command line {running.process.pid}" in busy.err
        assert "Traceback" not in busy.err

        cancelled = cli.here("cancel", "last", "--by", "ada", "--json")
        assert cancelled.code == 0
        assert standing(cancelled.facts) == "cancelled: by_person", cancelled
        ended = running.end()
    assert ended.code == 5, ended
    again = cli.here("resume", "last", "--yes", "--json")
    assert again.code == 0, again
    assert standing(again.facts) == "completed: done"


def test_a_run_that_nobody_holds_is_cancelled_and_taken_up_again(cli: Cli) -> None:
    """Cancelled while it waits: the report says by whom; resumed, it asks again; cancelled twice is refused."""
    run_id = cli.here("run", cli.repository(), "--model", cli.script(FIX), "--json").facts["run_id"]
    cancelled = cli.here("cancel", run_id, "--by", "ada", "--json").facts
    assert standing(cancelled) == "cancelled: by_person"
    assert "ada cancelled" in cancelled["report"]["summary"]
    assert cancelled["pending"] == []
    assert cli.here("cancel", run_id).code == 2
    assert cli.here("approve", run_id).code == 2

    again = cli.here("resume", run_id, "--json")
    assert (again.code, standing(again.facts)) == (3, "waiting: approval")
    assert cli.here("approve", run_id).code == 0


def test_an_answer_is_recorded_while_somebody_goes_on(cli: Cli) -> None:
    """Two people approve: one goes on, the other is told; in the end the patch is applied once."""
    repository = cli.repository()
    run_id = cli.here("run", repository, "--model", cli.script(FIX), "--json").facts["run_id"]
    assert cli.here("approve", run_id, "--detach", "--by", "ada", "--json").facts["pending"] == []
    late = cli.here("approve", run_id, "--by", "bob")
    assert late.code == 2
    assert "ada already decided" in late.err
    assert f"devfix resume {run_id[:8]}" in late.err
    report = cli.here("show", run_id, "--json").facts["report"]
    assert "is answered or has expired" in report["summary"]
    assert report["next"][0] == f"devfix resume {run_id[:8]}"
    assert cli.here("resume", run_id).code == 0
    assert len(cli.here("effects", run_id, "--json").facts) == 1


def test_a_person_at_a_terminal_sees_the_diff_and_decides_there(cli: Cli) -> None:
    """The question shows diff, evidence and sandbox level; Ctrl-C leaves it open (130); what is no answer
    decides nothing; answered, the run ends (0)."""
    repository = cli.repository()
    with cli.terminal("run", repository, "--model", cli.script(FIX)) as terminal:
        terminal.until("[y] approve")
        for shown in ("+    return a + b", "1 passed, 0 failed", "Sandbox level: 3"):
            assert shown in terminal.shown
        terminal.type("\x03")
        assert terminal.end() == 130, terminal.shown
    assert standing(cli.here("show", "last", "--json").facts) == "waiting: approval"
    assert (repository / "calc.py").read_text() == CALC

    with cli.terminal("resume", "last") as terminal:
        terminal.until("[y] approve")
        terminal.type("w\n")
        terminal.until("[y] approve")
        assert "ran the tests" in terminal.shown
        for typed, told in (("maybe", "'maybe' was not understood"), ("", "nothing was typed")):
            terminal.type(f"{typed}\n")
            terminal.until(f"{told}, so nothing was decided: type y, n, e, r, w or l")
        terminal.type("y\n")
        assert terminal.end() == 0, terminal.shown
    assert "return a + b" in (repository / "calc.py").read_text()


def test_ctrl_c_at_a_terminal_puts_the_run_down_though_it_reaches_the_tests_too(cli: Cli) -> None:
    """The whole foreground group gets the signal; what the tests make of it is not taken for a result."""
    with cli.terminal("run", cli.repository(seconds=60), "--model", cli.script(FIX)) as terminal:
        terminal.until(TESTS_RUN)
        terminal.until("left")
        terminal.type("\x03")
        assert terminal.end() == 130, terminal.shown
    facts = cli.here("show", "last", "--json").facts
    assert (standing(facts), facts["attempts"]) == ("queued: released", [])
    assert processes_in(cli.home) == []


def processes_in(home: Path) -> list[str]:
    """Processes whose command or folder lies in this home: sandboxes, test servers."""
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                line = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                folder = str((process / "cwd").readlink())
            except OSError:
                continue
            if str(home) in line or folder.startswith(str(home)):
                found.append(line)
    return found
