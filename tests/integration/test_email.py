"""send_email against a mail server that fails in each way, with and without a mailbox to look into."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from typing import Any

import pytest
import trustme

from state.database import Database
from state.errors import Unanswered
from tests.helpers.outside import Outside
from tests.helpers.sinks.http import closed_port
from tests.helpers.sinks.imap import PASSWORD, imap_server
from tests.helpers.sinks.smtp import MailServer, mail_server
from tools.outward.email import message_id

ARGS = {"to": "ada@example.org", "subject": "It is fixed", "body": "The sign was wrong.\n.\nBye — Devfix"}


def settings(server: MailServer, *, mailbox: bool = True, **more: Any) -> dict[str, Any]:
    plain = {
        "smtp_host": "127.0.0.1",
        "smtp_port": server.port,
        "smtp_security": "none",
        "smtp_from": "bot@example.org",
    }
    return {**plain, "mailbox": f"maildir:{server.maildir}" if mailbox else None, **more}


async def test_a_message_arrives_as_it_was_approved(database: Database, tmp_path: Path) -> None:
    """Sender, recipient, subject and text, with an id that is the same at each try."""
    async with mail_server(tmp_path / "mail") as server:
        outside = Outside(database, tmp_path, **settings(server))
        bound = await outside.bound("send_email", **ARGS)
        assert (bound["sender"], bound["server"]) == ("bot@example.org", f"127.0.0.1:{server.port}")
        performed = await outside.do("send_email", **ARGS)
        (message,) = server.messages
    assert performed.failure is None, performed
    assert (message["From"], message["To"], message["Subject"]) == ("bot@example.org", ARGS["to"], ARGS["subject"])
    assert message["Message-ID"] == f"<{outside.context().key}@example.org>"
    assert message.get_payload(decode=True).decode().replace("\r\n", "\n").strip() == ARGS["body"]


async def test_done_twice_there_is_one_message(database: Database, tmp_path: Path) -> None:
    """The second call gets the first one's receipt."""
    async with mail_server(tmp_path / "mail") as server:
        outside = Outside(database, tmp_path, **settings(server))
        first, second = [await outside.do("send_email", **ARGS) for _ in range(2)]
        assert second.result.facts == first.result.facts
        assert len(server.messages) == 1


@pytest.mark.parametrize("way", ["act close", "act hang", "late"])
async def test_what_was_not_confirmed_is_found_in_the_mailbox(database: Database, tmp_path: Path, way: str) -> None:
    """Delivered without an answer, at once or a while later: it is found, settled, and not sent again."""
    async with mail_server(tmp_path / "mail", way) as server:
        outside = Outside(database, tmp_path, **settings(server, outward_settle_seconds=10.0))
        assert (await outside.do("send_email", **ARGS)).failure is None
        assert await outside.states() == ["settled"]
        assert (await outside.do("send_email", **ARGS)).failure is None
        assert len(server.messages) == 1


async def test_what_is_not_in_the_mailbox_may_be_sent_again(database: Database, tmp_path: Path) -> None:
    """The connection broke before the message was delivered."""
    async with mail_server(tmp_path / "mail", "close") as server:
        outside = Outside(database, tmp_path, **settings(server))
        assert (await outside.do("send_email", **ARGS)).failure == "tool_unavailable"
        assert await outside.states() == ["absent"]
        assert (await outside.do("send_email", **ARGS)).failure is None
        assert len(server.messages) == 1


@pytest.mark.parametrize("way", ["act close", "act hang", "close"])
async def test_without_a_mailbox_a_person_is_told_and_nothing_is_repeated(
    database: Database, tmp_path: Path, way: str
) -> None:
    """At most once."""
    async with mail_server(tmp_path / "mail", way) as server:
        outside = Outside(database, tmp_path, **settings(server, mailbox=False))
        for _ in range(2):
            assert (await outside.do("send_email", **ARGS)).failure == "outcome_unknown"
        assert len(server.messages) == way.startswith("act")
    assert await outside.states() == ["unknown"]


async def test_a_mailbox_that_cannot_be_read_says_nothing(database: Database, tmp_path: Path) -> None:
    """So the outcome is unknown, not absent."""
    async with mail_server(tmp_path / "mail", "act close") as server:
        outside = Outside(database, tmp_path, **{**settings(server), "mailbox": f"maildir:{tmp_path}/no"})
        assert (await outside.do("send_email", **ARGS)).failure == "outcome_unknown"


@pytest.mark.parametrize("way", ["451", "554", "refuse"])
@pytest.mark.parametrize("mailbox", [True, False])
async def test_what_the_server_did_not_take_was_certainly_not_sent(
    database: Database, tmp_path: Path, way: str, mailbox: bool
) -> None:
    """Told at once, and free to be tried again."""
    async with mail_server(tmp_path / "mail", way) as server:
        outside = Outside(database, tmp_path, **settings(server, mailbox=mailbox))
        performed = await outside.do("send_email", **ARGS)
        assert performed.failure == "effect_refused"
        assert "nothing was sent" in performed.result.content
        assert await outside.states() == []
        assert (await outside.do("send_email", **ARGS)).failure is None
        assert len(server.messages) == 1


async def test_no_server_there_is_certain(database: Database, tmp_path: Path) -> None:
    """Also without a mailbox."""
    async with mail_server(tmp_path / "mail") as server:
        outside = Outside(database, tmp_path, **settings(server, mailbox=False, smtp_port=await closed_port()))
    assert (await outside.do("send_email", **ARGS)).failure == "effect_refused"
    assert await outside.states() == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"to": "ada@example.org, eve@example.org"},
        {"to": "Ada <ada@example.org>"},
        {"to": "ada@example.org\nBcc: eve@example.org"},
        {"to": ""},
    ],
)
async def test_one_plain_address_gets_it_and_nobody_else(
    database: Database, tmp_path: Path, wrong: dict[str, str]
) -> None:
    """Refused before a person is asked."""
    async with mail_server(tmp_path / "mail") as server:
        outside = Outside(database, tmp_path, **settings(server))
        with pytest.raises(Exception, match="not one plain e-mail address"):
            await outside.do("send_email", **{**ARGS, **wrong})
        assert server.messages == []


async def test_a_subject_is_one_line(database: Database, tmp_path: Path) -> None:
    """It can't begin a header of its own; undecodable text is sent as far as it goes."""
    odd = {**ARGS, "subject": "one\r\nBcc: eve@example.org", "body": "a\udc80\0b"}
    async with mail_server(tmp_path / "mail") as server:
        outside = Outside(database, tmp_path, **settings(server))
        assert (await outside.do("send_email", **odd)).failure is None
        (message,) = server.messages
    assert (message["Subject"], message["Bcc"]) == ("one Bcc: eve@example.org", None)


async def test_a_password_is_used_and_told_to_nobody(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Named by its variable; a wrong one is a refusal whose text does not hold it."""
    secrets = {"smtp_user": "bot", "smtp_password_env": "MAIL_PASSWORD"}
    async with mail_server(tmp_path / "mail", asks_password=True) as server:
        outside = Outside(database, tmp_path, **settings(server, **secrets))
        monkeypatch.setenv("MAIL_PASSWORD", "wrong-word")
        refused = await outside.do("send_email", **ARGS)
        assert refused.failure == "effect_refused"
        assert "wrong-word" not in str(refused)
        monkeypatch.setenv("MAIL_PASSWORD", "right")
        assert (await outside.do("send_email", **ARGS)).failure is None
        assert server.logins[-1] == ("bot", "right")
        monkeypatch.delenv("MAIL_PASSWORD")
        unset = await outside.do("send_email", call="another", **{**ARGS, "subject": "Another"})
        assert "MAIL_PASSWORD" in unset.result.content


async def test_a_password_is_not_sent_in_the_clear(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To another host than this one, TLS is a must."""
    monkeypatch.setenv("MAIL_PASSWORD", "right")
    clear = {"smtp_host": "mail.invalid", "smtp_security": "none", "smtp_from": "bot@example.org"}
    outside = Outside(database, tmp_path, smtp_password_env="MAIL_PASSWORD", **clear)
    assert "without TLS" in (await outside.do("send_email", **ARGS)).result.content


@pytest.mark.parametrize("trusted", [True, False])
async def test_starttls_is_checked(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trusted: bool
) -> None:
    """A certificate that nobody vouches for: certainly not sent."""
    authority, context = trustme.CA(), ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    if trusted:
        authority.cert_pem.write_to_path(tmp_path / "ca.pem")
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    async with mail_server(tmp_path / "mail", tls=context) as server:
        outside = Outside(database, tmp_path, **settings(server, smtp_security="starttls", outward_timeout_seconds=5.0))
        performed = await outside.do("send_email", **ARGS)
        assert (performed.failure is None) is trusted, performed
        assert len(server.messages) == trusted


async def test_an_imap_mailbox_is_looked_into(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By STARTTLS with a certificate that is checked; what can't be read says nothing, and tells no password."""
    monkeypatch.setenv("MAILBOX_PASSWORD", "wrong-word")
    async with mail_server(tmp_path / "mail") as server:
        with imap_server(tmp_path / "imap", await closed_port()) as imap:
            access = {"mailbox": imap.url, "mailbox_user": "ada", "mailbox_password_env": "MAILBOX_PASSWORD"}
            outside = Outside(database, tmp_path, **{**settings(server), **access, "outward_timeout_seconds": 20.0})
            with pytest.raises(Unanswered, match="certificate"):
                await outside.found("send_email", **ARGS)
            monkeypatch.setenv("SSL_CERT_FILE", str(imap.authority))
            with pytest.raises(Unanswered, match="can't be read") as refused:
                await outside.found("send_email", **ARGS)
            assert "wrong-word" not in str(refused.value)
            monkeypatch.setenv("MAILBOX_PASSWORD", PASSWORD)
            assert await outside.found("send_email", **ARGS) is None
            await asyncio.to_thread(imap.deliver, f"Message-ID: {message_id(outside.context())}\n\nhello\n".encode())
            assert await outside.found("send_email", **ARGS) is not None
