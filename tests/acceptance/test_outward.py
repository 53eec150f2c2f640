"""The world outside as people meet it: real servers, real processes, SIGKILL in the middle of what happens once."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
import pytest

from tests.helpers.cli import FIX, SECONDS, Cli, standing
from tests.helpers.sinks.beside import beside
from tests.helpers.sinks.http import Receiver, receiver
from tests.helpers.sinks.smtp import MailServer, mail_server

pytestmark = pytest.mark.acceptance

WORD = "a-secret-word"
MAIL = {"to": "ada@example.org", "subject": "A defect", "body": "The sign is wrong."}


class Outside(NamedTuple):
    cli: Cli
    mail: MailServer
    hook: Receiver

    @property
    def events(self) -> list[str]:
        """What the webhook acted on, in order."""
        return [json.loads(call.body)["event"] for call in self.hook.acted]

    def effects(self, run_id: str) -> dict[str, str]:
        return {each["call_id"]: each["state"] for each in self.cli.here("effects", run_id, "--json").facts}


@pytest.fixture
def outside(database_url: str, tmp_path: Path) -> Iterator[Outside]:
    """A command line that is set up to tell a webhook, then a mailbox; what is left to tell is no other test's."""
    with beside(mail_server(tmp_path / "mail")) as mail, beside(receiver(refuses=True)) as hook:
        own = Cli(tmp_path, database_url)
        own.environment |= {
            "DEVFIX_NOTIFY": "webhook,email",
            "DEVFIX_NOTIFY_EMAIL": "team@example.org",
            "DEVFIX_SMTP_HOST": "127.0.0.1",
            "DEVFIX_SMTP_PORT": str(mail.port),
            "DEVFIX_SMTP_SECURITY": "none",
            "DEVFIX_SMTP_FROM": "bot@example.org",
            "DEVFIX_MAILBOX": f"maildir:{mail.maildir}",
            "DEVFIX_WEBHOOK_URL": hook.url,
            "DEVFIX_WEBHOOK_SECRET_ENV": "HOOK_SECRET",
            "DEVFIX_WEBHOOK_REFUSES_DOUBLED_KEYS": "true",
            "DEVFIX_OUTWARD_SETTLE_SECONDS": "1",
            "HOOK_SECRET": WORD,
        }
        yield Outside(own, mail, hook)


def until(condition: Any) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.05)


def test_people_are_told_by_whoever_drives_the_run(outside: Outside) -> None:
    """Waiting, then completed: one message each by each channel, with the command that goes on; --yes tells the end."""
    cli = outside.cli
    waiting = cli("run", cli.repository(), "--model", cli.script(FIX), "--json")
    assert waiting.code == 3, waiting
    run_id = waiting.facts["run_id"]
    (message,) = outside.mail.messages
    assert f"devfix approve {run_id[:8]}" in message.get_payload(decode=True).decode()
    assert cli("approve", run_id).code == 0
    assert outside.events == ["run.waiting", "run.completed"]
    assert len(outside.mail.messages) == 2

    assert cli("run", cli.repository(), "--model", cli.script(FIX), "--yes").code == 0
    assert outside.events == ["run.waiting", "run.completed", "run.completed"]
    assert len(outside.mail.messages) == 3


def test_a_run_that_has_failed_is_told(outside: Outside) -> None:
    """And the one whose servers are away is told later, by the next process; the command ends all the same."""
    outside.hook.ways = ["503"] * 9
    outside.mail.ways = ["451"] * 9
    failed = outside.cli(
        "run", outside.cli.repository(), "--model", outside.cli.script(FIX), "--step-limit", "2", "--json"
    )
    assert (failed.code, standing(failed.facts)) == (4, "failed: step_limit"), failed
    assert "notify-email-failed" in failed.err
    assert outside.mail.messages == []


@pytest.mark.parametrize("way", ["hang", "act hang"])
def test_a_kill_while_people_are_told_loses_and_doubles_nothing(outside: Outside, way: str) -> None:
    """One letter is under way, acted on or not, the other not begun: the next process sees to both."""
    cli = outside.cli
    outside.hook.ways = [way]
    with cli.running("run", cli.repository(), "--model", cli.script(FIX), "--json") as running:
        until(lambda: outside.hook.calls)
        running.signal(signal.SIGKILL)
        running.end()
    assert outside.mail.messages == []
    run_id = cli.here("show", "last", "--json").facts["run_id"]
    again = cli("resume", run_id, "--json")
    assert (again.code, standing(again.facts)) == (3, "waiting: approval"), again
    assert outside.events == ["run.waiting"]
    assert len(outside.mail.messages) == 1
    assert set(outside.effects(run_id).values()) == {"settled"}


@pytest.mark.parametrize(("way", "mailbox"), [("act hang", True), ("hang", True), ("act hang", False)])
def test_a_kill_while_the_agent_sends_a_message(outside: Outside, way: str, mailbox: bool) -> None:
    """Looked up in the mailbox: one message, whether the first had arrived or not. Without a mailbox nothing is sent
    again, and a person is asked."""
    cli = outside.cli
    cli.environment["DEVFIX_NOTIFY"] = ""
    if not mailbox:
        del cli.environment["DEVFIX_MAILBOX"]
    turn = {"content": "First I tell Ada.", "tool_calls": [{"name": "send_email", "args": MAIL}]}
    outside.mail.ways = [way]
    with cli.running("run", cli.repository(), "--model", cli.script([turn, *FIX]), "--yes") as running:
        until(lambda: outside.mail.begun)
        running.signal(signal.SIGKILL)
        running.end()
    run_id = cli.here("show", "last", "--json").facts["run_id"]
    ended = cli("resume", run_id, "--yes", "--json")
    states = [state for call, state in outside.effects(run_id).items()]
    assert len(outside.mail.messages) == 1
    if mailbox:
        assert (ended.code, states) == (0, ["settled", "settled"]), ended
    else:
        assert (ended.code, states) == (3, ["unknown"]), ended


def test_a_person_sees_where_a_call_goes_and_no_secret_is_kept(outside: Outside) -> None:
    """The description has what the model asked for and what DevFix fixed; the secret is in no table and no output."""
    cli = outside.cli
    call = {"name": "call_webhook", "args": {"event": "looked", "data": {"n": 1}}}
    turn = {"content": "", "tool_calls": [call]}
    waiting = cli("run", cli.repository(), "--model", cli.script([turn, *FIX]), "--json")
    (pending,) = waiting.facts["pending"]
    assert f"url: {outside.hook.url}" in pending["description"]
    assert "event: looked" in pending["description"]
    outside.hook.ways = ["401"]
    done = cli("approve", waiting.facts["run_id"], "--json")
    doctor = cli("doctor", "--json")
    for each in (waiting, done, doctor):
        assert WORD not in each.out + each.err
    with psycopg.connect(cli.environment["DEVFIX_DATABASE_URL"]) as connection:
        tables = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'devfix'").fetchall()
        for (table,) in tables:
            for (row,) in connection.execute(f"SELECT t::text FROM devfix.{table} t"):
                assert WORD not in row
                assert WORD.encode().hex() not in row
