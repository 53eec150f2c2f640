"""What a person can get wrong, and what can be wrong around them: one clear line, the right exit code, no run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.cli import PROGRAM, Cli

pytestmark = pytest.mark.acceptance


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("run", "no-such-folder"), "there is no folder"),
        (("run", "a-file"), "is a file"),
        (("run", "empty"), "is empty"),
        (("run", "/"), "is the root of the whole file system"),
        (("run", "plain", "--commit"), "is none"),
        (("run", "plain", "--patch-out", "no/such/folder"), "does not exist"),
        (("run", "plain", "--model", "oracle"), "there is no model 'oracle'"),
        (("run", "plain", "--model", "scripted:nowhere"), "can't be used"),
        (("run", "plain", "--model", "openai:x"), "OPENAI_API_KEY"),
        (("run", "plain", "--python", "no-python"), "names no interpreter"),
        (("run", "plain", "--env", "A=B"), "the variable's name alone"),
        (("run", "plain", "--budget-usd", "-1"), "Invalid value for '--budget-usd'"),
        (("run",), "no repository was given"),
        (("show", "0000"), "there is no run '0000'"),
        (("show", "last"), "there is no run 'last'"),
        (("approve", "last", "--edit", "{"), "JSON object"),
        (("approve", "last", "--reject", "no", "--respond", "yes"), "give one of"),
        (("approve", "last", "--respond", " "), "--respond takes the words"),
        (("branch", "last", "--at", "1"), "there is no run"),
        (("diff", "last"), "two of its steps"),
        (("nonsense",), "No such command 'nonsense'"),
    ],
)
def test_one_line_exit_2_and_no_run(cli: Cli, arguments: tuple[str, ...], sentence: str) -> None:
    """The last line on stderr says what is wrong; stdout stays empty; the registry too."""
    (cli.folder / "empty").mkdir(exist_ok=True)
    (cli.folder / "a-file").touch()
    (cli.folder / "plain").mkdir(exist_ok=True)
    (cli.folder / "plain" / "module.py").touch()
    refused = cli.here(*arguments)
    assert (refused.code, refused.out) == (2, ""), refused
    assert refused.err.splitlines()[-1].startswith("devfix: ")
    assert sentence in refused.err.splitlines()[-1]
    assert cli.here("runs", "--json").facts == []


def test_a_database_that_is_down_is_told_without_its_password(cli: Cli) -> None:
    """Exit 4 and one line, from a real process."""
    url = "postgresql://somebody:hunter2@127.0.0.1:1/nothing"
    for command in (("runs",), ("run", str(cli.repository()), "--model", cli.script([]))):
        down = cli(*command, DEVFIX_DATABASE_URL=url)
        assert (down.code, down.out, down.err.count("\n")) == (4, "", 1), down
        assert "nothing listens there" in down.err
        assert "hunter2" not in down.err


def test_a_setting_that_does_not_fit_is_named(cli: Cli) -> None:
    """Exit 2; its value, which may be a secret, is not shown."""
    refused = cli("runs", DEVFIX_STEP_LIMIT="hunter2")
    assert (refused.code, refused.err.count("\n")) == (2, 1)
    assert "DEVFIX_STEP_LIMIT" in refused.err
    assert "hunter2" not in refused.err


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('step_limit = "hunter2"', "the setting step_limit in {file} is not valid"),
        ("steplimit = 5", "the setting steplimit in {file} does not exist"),
        ("step_limit = hunter2", "the settings in {file} can't be read"),
    ],
)
def test_a_settings_file_that_does_not_fit_is_named_and_blocks_only_what_needs_it(
    cli: Cli, tmp_path: Path, text: str, sentence: str
) -> None:
    """Exit 2 with file and key, never the value; doctor reports it, db status and db stop work all the same."""
    file = tmp_path / "settings.toml"
    sentence = sentence.format(file=file)
    assert cli("db", "start", DEVFIX_HOME=str(tmp_path)).code == 0
    try:
        file.write_text(text)
        refused = cli("runs", DEVFIX_HOME=str(tmp_path))
        assert (refused.code, refused.out, refused.err.count("\n")) == (2, "", 1), refused
        assert sentence in refused.err
        assert "DEVFIX_STEP_LIMIT" not in refused.err
        assert "hunter2" not in refused.err

        status = cli("db", "status", "--json", DEVFIX_HOME=str(tmp_path))
        assert (status.code, status.facts["state"], sentence in status.err) == (0, "running", True), status

        doctor = cli("doctor", "--json", DEVFIX_HOME=str(tmp_path))
        assert (doctor.code, doctor.facts["ok"], doctor.facts["settings"]["ok"]) == (4, False, False), doctor
        assert sentence in doctor.facts["settings"]["why"]
        assert doctor.facts["database"]["ok"]
    finally:
        stopped = cli("db", "stop", "--json", DEVFIX_HOME=str(tmp_path))
    assert (stopped.code, stopped.facts["state"]) == (0, "stopped"), stopped


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_folder_that_can_not_be_read_is_told(cli: Cli) -> None:
    """Exit 2 and the reason."""
    closed = cli.folder / "closed"
    closed.mkdir(mode=0)
    refused = cli.here("run", closed)
    assert (refused.code, "can't be read" in refused.err) == (2, True)


def test_whoever_reads_may_leave_early(cli: Cli) -> None:
    """`devfix … | head` ends quietly: no trace, nothing on stderr."""
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [*PROGRAM, "runs", "--json"], env=cli.environment, stdout=writing, stderr=subprocess.PIPE, check=False
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (141, b"")


def test_doctor_says_what_there_is(cli: Cli) -> None:
    """Exit 0 where DevFix can work, with each part's findings; exit 4 with the reason when the database is down."""
    well = cli.here("doctor", "--json")
    assert well.code == 0, well
    assert well.facts["ok"]
    assert well.facts.keys() >= {
        "python",
        "platform",
        "settings",
        "database",
        "sandbox",
        "git",
        "interpreter",
        "disk",
        "models",
    }
    assert well.facts["database"]["version"]
    assert well.facts["sandbox"]["level"] == 3
    assert "user_namespaces" in well.facts["sandbox"]

    cli.environment["DEVFIX_DATABASE_URL"], url = "postgresql://127.0.0.1:1/x", cli.environment["DEVFIX_DATABASE_URL"]
    try:
        ill = cli.here("doctor", "--json")
    finally:
        cli.environment["DEVFIX_DATABASE_URL"] = url
    assert (ill.code, ill.facts["ok"], ill.facts["database"]["ok"]) == (4, False, False)


def test_the_embedded_database_is_started_looked_at_and_stopped(cli: Cli, tmp_path: Path) -> None:
    """absent, running with its pid, stopped: what `devfix db` says is so."""
    home = str(tmp_path / "home")
    absent = cli("db", "status", "--json", DEVFIX_HOME=home)
    assert (absent.code, absent.facts["state"]) == (0, "absent"), absent
    try:
        started = cli("db", "start", "--json", DEVFIX_HOME=home)
        assert started.facts["state"] == "running", started
        os.kill(started.facts["pid"], 0)
    finally:
        stopped = cli("db", "stop", "--json", DEVFIX_HOME=home)
    assert (stopped.code, stopped.facts["state"]) == (0, "stopped"), stopped


def test_a_bug_is_one_line_and_a_file_with_the_trace(cli: Cli) -> None:
    """What nobody foresaw ends the command with exit 1, says so, and says where the whole trace is."""
    broken = (
        "import scripts.registers as r; r.read_settings = lambda: 1 / 0; from scripts.cli import main; main(['runs'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", broken], env=cli.environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1), done.stderr
    assert "a bug in DevFix" in done.stderr
    (trace,) = (cli.home / "logs").glob("bug-*.txt")
    assert str(trace) in done.stderr
    assert "ZeroDivisionError" in trace.read_text()


def test_a_heartbeat_that_is_longer_than_the_lease_is_refused(cli: Cli) -> None:
    """Every run would be taken for frozen between two beats."""
    ended = cli("runs", DEVFIX_HEARTBEAT_SECONDS="5", DEVFIX_LEASE_SECONDS="5")
    assert ended.code == 2, ended
    assert "heartbeat_seconds (5) must be less than lease_seconds (5)" in ended.err


@pytest.mark.parametrize("name", ["LEASE_SECONDS", "APPROVAL_TTL_SECONDS", "TEST_TIMEOUT_SECONDS"])
@pytest.mark.parametrize("given", ["1e12", "inf"])
def test_a_time_that_fits_nowhere_is_refused(cli: Cli, name: str, given: str) -> None:
    """PostgreSQL has no such date, and no process such a limit; a run would find out at its question."""
    ended = cli("runs", **{f"DEVFIX_{name}": given})
    assert ended.code == 2, ended
    assert f"the setting DEVFIX_{name} is not valid: Input should be less than or equal to" in ended.err


def test_doctor_tells_of_variables_that_are_no_settings(cli: Cli) -> None:
    """A mistyped one would do nothing, without a word; one that a setting names is meant."""
    given = {"DEVFIX_STEPLIMIT": "5", "DEVFIX_MY_KEY": "x", "DEVFIX_MODEL_KEY_ENV": "DEVFIX_MY_KEY"}
    ended = cli("doctor", "--json", **given)
    assert ended.facts["settings"]["unknown_variables"] == ["DEVFIX_STEPLIMIT"], ended
    begun = cli("run", cli.repository(), "--model", cli.script([]), "--json", "--step-limit", "1", **given)
    assert begun.err.count("DEVFIX_STEPLIMIT is no setting of DevFix") == 1, begun
