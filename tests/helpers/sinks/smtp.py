"""A mail server (aiosmtpd) that delivers into a Maildir, and fails in the way that it is told to."""

from __future__ import annotations

import asyncio
import mailbox
import ssl
import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session


class MailServer:
    """Ways, one for each message to come, then `ok`: `451` and other codes (not taken), `refuse` (the recipient),
    `act close` (delivered, and the connection cut without an answer), `act hang`, `hang`, `close`, `late` (delivered
    two seconds later, and never confirmed), `slow` (delivered and confirmed after half a second).
    """

    def __init__(self, maildir: Path) -> None:
        self.ways: list[str] = []
        self.port = 0
        self.taking_in = asyncio.Event()
        self.begun = 0
        """How many messages were taken in, delivered or not."""
        self.logins: list[tuple[str, str]] = []
        self.maildir = maildir
        self._box = mailbox.Maildir(maildir)
        self._released = asyncio.Event()
        self._late: list[asyncio.Task[None]] = []

    @property
    def subjects(self) -> list[str]:
        return sorted(str(message["Subject"]) for message in self._box)

    @property
    def messages(self) -> list[Any]:
        return list(self._box)

    async def handle_RCPT(  # noqa: N802 - aiosmtpd's name for it
        self, server: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        if self.ways[:1] == ["refuse"]:
            self.ways.pop(0)
            return "550 no such person"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:  # noqa: N802
        way = self.ways.pop(0) if self.ways else "ok"
        self.taking_in.set()
        if way == "slow":
            await asyncio.sleep(0.5)
        if way.isdigit():
            return f"{way} told so"
        if way == "late":
            self._late.append(asyncio.create_task(self._deliver_late(bytes(envelope.content or b""))))
        if way in {"ok", "slow", "act close", "act hang"}:
            self._box.add(bytes(envelope.content or b""))
        self.begun += 1
        if way in {"act close", "close"}:
            server.transport.abort()
        if way in {"act hang", "hang", "late"}:
            await self._released.wait()
        return "250 taken"

    async def _deliver_late(self, content: bytes) -> None:
        await asyncio.sleep(2.0)
        self._box.add(content)

    def authenticate(self, server: Any, session: Any, envelope: Any, mechanism: str, data: LoginPassword) -> AuthResult:
        login = (data.login.decode(), data.password.decode())
        self.logins.append(login)
        return AuthResult(success=login[1] == "right")

    def release(self) -> None:
        self._released.set()
        for each in self._late:
            each.cancel()


@asynccontextmanager
async def mail_server(
    folder: Path, *ways: str, tls: ssl.SSLContext | None = None, asks_password: bool = False
) -> AsyncIterator[MailServer]:
    """The server, at `port` of 127.0.0.1, for as long as the block runs."""
    made = MailServer(folder)
    made.ways = list(ways)

    def protocol() -> SMTP:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # that a password without TLS is not safe
            return SMTP(
                made,
                hostname="mail.example",
                tls_context=tls,
                require_starttls=tls is not None,
                authenticator=made.authenticate,
                auth_required=asks_password,
                auth_require_tls=False,
            )

    server = await asyncio.get_running_loop().create_server(protocol, "127.0.0.1")
    made.port = server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        made.release()
        server.close()
        await server.wait_closed()
