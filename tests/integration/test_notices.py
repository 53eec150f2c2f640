"""What DevFix tells people of runs: once an event, through deaths of those who tell it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
import pytest

from graph.notices import send_due
from scripts.bootstrap import Application
from state.approvals import Decision
from state.outbox import Letter
from tests.helpers.app import Driver, application_on, calls
from tests.helpers.sinks.http import Receiver, receiver
from tests.helpers.sinks.smtp import MailServer, mail_server

SCRIPT = [calls(("post", {"to": "ada", "text": "hello"}))]
WORD = "a-secret-word"


class People(NamedTuple):
    """Those who are told, and a maker of processes that tell them."""

    mail: MailServer
    hook: Receiver
    process: Callable[..., Application]


@pytest.fixture
async def people(database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[People]:
    monkeypatch.setenv("HOOK_SECRET", WORD)
    monkeypatch.setenv("MAIL_PASSWORD", WORD)
    async with AsyncExitStack() as stack:
        mail = await stack.enter_async_context(mail_server(tmp_path / "mail"))
        hook = await stack.enter_async_context(receiver(refuses=True))

        def process(**settings: Any) -> Application:
            usual: dict[str, Any] = {
                "notify": ["email", "webhook"],
                "notify_email": "team@example.org",
                "smtp_host": "127.0.0.1",
                "smtp_port": mail.port,
                "smtp_security": "none",
                "smtp_from": "bot@example.org",
                "mailbox": f"maildir:{mail.maildir}",
                "webhook_url": hook.url,
                "webhook_secret_env": "HOOK_SECRET",
                "webhook_refuses_doubled_keys": True,
                "outward_timeout_seconds": 2.0,
                "outward_settle_seconds": 0.5,
            }
            made = application_on(database_url, tmp_path, **{**usual, **settings})
            stack.push_async_callback(made.services.close)
            return made

        yield People(mail, hook, process)


async def waiting(people: People, folder: Path, **settings: Any) -> Driver:
    driver = Driver(people.process(**settings), folder)
    assert str((await driver.start(SCRIPT)).standing) == "waiting: approval"
    return driver


async def letters(driver: Driver) -> list[Letter]:
    return await driver.services.outbox.of(driver.run_id)


def events(people: People) -> list[str]:
    return [json.loads(call.body)["event"] for call in people.hook.acted]


async def test_a_run_that_waits_and_then_ends_is_told_once_each(people: People, tmp_path: Path) -> None:
    """By each channel, with what a person needs to go on; sending again sends nothing."""
    driver = await waiting(people, tmp_path)
    assert await send_due(driver.services) == 2
    assert await send_due(driver.services) == 0
    (message,) = people.mail.messages
    assert message["To"] == "team@example.org"
    assert message["Subject"] == f"DevFix run {driver.run_id[:8]} waits for an approval: post the letters"
    text = message.get_payload(decode=True).decode()
    assert f"devfix approve {driver.run_id[:8]}" in text
    (call,) = people.hook.acted
    told = json.loads(call.body)
    assert (told["event"], told["data"]["run_id"], told["data"]["reason"]) == ("run.waiting", driver.run_id, "approval")

    (row,) = await driver.services.approvals.of(driver.run_id)
    await driver.services.approvals.decide(driver.run_id, row.question.call_id, Decision(type="approve"), by="ada")
    assert str((await driver.go_on()).standing) == "completed: done"
    assert await send_due(driver.services) == 2
    assert events(people) == ["run.waiting", "run.completed"]
    assert len(people.mail.messages) == 2
    assert {letter.state for letter in await letters(driver)} == {"settled"}


async def test_a_run_that_has_failed_is_told(people: People, tmp_path: Path) -> None:
    """The run's own machinery is not needed for it; coming back to the ended run tells nothing new."""
    driver = Driver(people.process(), tmp_path)
    run = await driver.start([calls(("look", {"what": "x"}))] * 9, budgets=None, step_limit=3)
    assert run.status == "failed", run
    assert await send_due(driver.services) == 2
    await driver.go_on()
    assert await send_due(driver.services) == 0
    assert events(people) == ["run.failed"]
    assert "has failed" in people.mail.subjects[0]


async def test_a_question_that_was_answered_before_it_was_told_is_not_told(people: People, tmp_path: Path) -> None:
    """Nobody is called to a run that waits for nobody."""
    driver = await waiting(people, tmp_path)
    (row,) = await driver.services.approvals.of(driver.run_id)
    await driver.services.approvals.decide(driver.run_id, row.question.call_id, Decision(type="approve"), by="ada")
    await driver.go_on()
    assert await send_due(driver.services) == 2
    assert events(people) == ["run.completed"]
    assert sorted(letter.state for letter in await letters(driver)) == ["settled", "settled", "stale", "stale"]


async def test_looking_at_a_waiting_run_again_is_no_new_event(people: People, tmp_path: Path) -> None:
    """An attempt that finds nothing answered waits at the same step."""
    driver = await waiting(people, tmp_path)
    for _ in range(2):
        await driver.go_on()
    assert len(await letters(driver)) == 2


async def test_many_processes_send_each_letter_once(people: People, tmp_path: Path) -> None:
    """All at once, without knowing of each other."""
    drivers = [await waiting(people, tmp_path) for _ in range(3)]
    processes = [people.process() for _ in range(4)]
    sent = await asyncio.gather(*(send_due(each.services) for each in processes))
    assert sum(sent) == 6
    assert len(people.mail.messages) == 3
    assert sorted(people.hook.keys) == sorted({*people.hook.keys})
    assert len(people.hook.calls) == 3
    assert {letter.state for driver in drivers for letter in await letters(driver)} == {"settled"}


@asynccontextmanager
async def died_sending(driver: Driver, channel: str, database_url: str) -> AsyncIterator[None]:
    """A process took the letter of this channel and is gone without a word."""
    taken = await driver.services.outbox.take("test", [channel], lease_seconds=60)
    assert taken is not None
    yield
    with psycopg.connect(database_url, autocommit=True) as connection:
        gone = (
            "json_build_object('host', holder->>'host', 'boot', holder->>'boot', 'pid', 2, 'started', '1', 'label', '')"
        )
        connection.execute(f"UPDATE devfix.outbox SET holder = {gone} WHERE state = 'sending'")


@pytest.mark.parametrize("delivered", [True, False])
async def test_a_letter_whose_sender_died_is_looked_for_in_the_mailbox(
    people: People, tmp_path: Path, database_url: str, delivered: bool
) -> None:
    """Found: settled. Not found: sent. One message either way."""
    driver = await waiting(people, tmp_path, notify=["email"])
    async with died_sending(driver, "send_email", database_url):
        if delivered:
            (letter,) = await letters(driver)
            people.mail._box.add(f"Message-ID: <{letter.key}@example.org>\n\nhello\n".encode())
    assert await send_due(people.process().services) == 1
    assert len(people.mail.messages) == 1


async def test_without_a_mailbox_the_outcome_is_unknown_and_told(
    people: People, tmp_path: Path, database_url: str
) -> None:
    """At most once."""
    driver = await waiting(people, tmp_path, notify=["email"], mailbox=None)
    async with died_sending(driver, "send_email", database_url):
        pass
    for _ in range(2):
        assert await send_due(people.process(mailbox=None).services) == 0
    (letter,) = await letters(driver)
    assert letter.state == "unknown"
    assert "unknown" in (letter.trouble or "")
    assert people.mail.messages == []


async def test_who_is_overtaken_while_sending_writes_nothing(people: People, tmp_path: Path, database_url: str) -> None:
    """The receipt is that of the process that went on."""
    driver = await waiting(people, tmp_path, notify=["webhook"])
    taken = await driver.services.outbox.take("test", ["call_webhook"], lease_seconds=60)
    assert taken is not None
    with psycopg.connect(database_url, autocommit=True) as connection:
        gone = "json_build_object('host', 'elsewhere', 'boot', 'b', 'pid', 2, 'started', '1', 'label', '')"
        connection.execute(f"UPDATE devfix.outbox SET holder = {gone}, claimed_at = now() - interval '1 hour'")
    assert await send_due(people.process().services) == 1
    with pytest.raises(Exception, match="another process"):
        await driver.services.outbox.settle(taken.letter, {"content": "late"})
    (letter,) = await letters(driver)
    assert letter.receipt is not None
    assert letter.receipt["content"] != "late"


async def test_a_server_that_is_away_is_tried_again_later(people: People, tmp_path: Path, database_url: str) -> None:
    """Certainly not sent: due again after a pause, with the reason; a process without the settings leaves it alone."""
    driver = await waiting(people, tmp_path, notify=["email"])
    people.mail.ways = ["451"]
    assert await send_due(driver.services) == 0
    (letter,) = await letters(driver)
    assert (letter.state, letter.tries) == ("due", 1)
    assert "451" in (letter.trouble or "")
    assert await send_due(driver.services) == 0
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("UPDATE devfix.outbox SET due_at = now()")
    assert await send_due(people.process(notify=[], smtp_host=None).services) == 0
    assert await send_due(people.process().services) == 1
    assert len(people.mail.messages) == 1


async def test_a_letter_that_can_not_be_read_keeps_no_other_from_being_sent(
    people: People, tmp_path: Path, database_url: str
) -> None:
    """It is given up, and told with its reason; of another run's nothing is late."""
    damaged = await waiting(people, tmp_path, notify=["email"])
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("UPDATE devfix.outbox SET arguments = '\\x28b52ffd00', due_at = now() - interval '1 hour'")
    whole = await waiting(people, tmp_path, notify=["email"])
    assert await send_due(damaged.services) == 1
    assert await send_due(damaged.services) == 0
    (letter,) = await letters(damaged)
    assert letter.state == "given_up"
    assert letter in await damaged.services.outbox.troubled()
    assert f"message {letter.call_id} of run {damaged.run_id[:8]}" in (letter.trouble or "")
    assert [letter.state for letter in await letters(whole)] == ["settled"]


async def test_a_message_that_arrives_after_it_was_missed_is_not_sent_again(
    people: People, tmp_path: Path, database_url: str
) -> None:
    """Before the next try, the mailbox is looked into once more."""
    driver = await waiting(people, tmp_path, notify=["email"])
    people.mail.ways = ["close"]
    assert await send_due(driver.services) == 0
    (letter,) = await letters(driver)
    assert (letter.state, letter.missed) == ("due", True)
    people.mail._box.add(f"Message-ID: <{letter.key}@example.org>\n\nhello\n".encode())
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("UPDATE devfix.outbox SET due_at = now()")
    assert await send_due(driver.services) == 1
    assert len(people.mail.messages) == 1


async def test_a_sender_that_is_asked_to_stop_lets_the_letter_out(people: People, tmp_path: Path) -> None:
    """Without a mailbox, a letter that was cut off would be of unknown outcome."""
    driver = await waiting(people, tmp_path, notify=["email"], mailbox=None)
    people.mail.ways = ["slow"]
    sending = asyncio.create_task(send_due(driver.services))
    await people.mail.taking_in.wait()
    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending
    assert [letter.state for letter in await letters(driver)] == ["settled"]
    assert len(people.mail.messages) == 1


async def test_a_ticket_is_for_what_a_person_has_to_see_to(people: People, tmp_path: Path) -> None:
    """None for a run that is completed."""
    tickets = {"ticket_url": f"{people.hook.url}/issues", "ticket_shape": "plain"}
    driver = await waiting(people, tmp_path, notify=["ticket"], **tickets)
    (letter,) = await letters(driver)
    assert letter.tool == "create_ticket"
    (row,) = await driver.services.approvals.of(driver.run_id)
    await driver.services.approvals.decide(driver.run_id, row.question.call_id, Decision(type="approve"), by="ada")
    await driver.go_on()
    assert len(await letters(driver)) == 1


async def test_no_secret_is_in_the_database(people: People, tmp_path: Path, database_url: str) -> None:
    """Neither of what was sent, nor of what was refused."""
    driver = await waiting(people, tmp_path, smtp_password_env="MAIL_PASSWORD")
    people.hook.ways = ["401"]
    assert await send_due(driver.services) == 0
    assert [letter.state for letter in await letters(driver)] == ["due", "due"]
    with psycopg.connect(database_url) as connection:
        tables = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'devfix'").fetchall()
        for (table,) in tables:
            for (row,) in connection.execute(f"SELECT t::text FROM devfix.{table} t"):
                assert WORD not in row
                assert WORD.encode().hex() not in row
