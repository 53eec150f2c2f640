"""send_email: one message to one address, by the mail server that the user has set up.

SMTP refuses nothing twice, so the message carries an id made of the effect's key, and what became of it is looked up
in a mailbox that gets it. The promise: exactly once where such a `mailbox` is set up and gets the mail within
`outward_settle_seconds`; else at most once, and a person is told where the outcome is not known.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any

import aiosmtplib
from pydantic import JsonValue, TypeAdapter, ValidationError

from state.errors import EffectRefused, NotReached, Unanswered
from state.outward import Address
from tools.outward.mailbox import find_message
from tools.outward.secrets import hidden, secret
from tools.outward.settling import found_within
from tools.registry import Found, Tool, ToolContext, ToolResult, tool

if TYPE_CHECKING:
    from state.settings import Settings

_ADDRESS = TypeAdapter(Address)
_TOLD = 300


def email_tool(settings: Settings) -> Tool | None:
    """None where no mail server is set up."""
    if not settings.mails:
        return None
    verify = _verify if settings.mailbox else None
    timeout = settings.outward_timeout_seconds * 3 + settings.outward_settle_seconds
    return tool(kind="effect", timeout=timeout, verify=verify, uncheckable=verify is None, bind=_bind)(send_email)


async def send_email(to: str, subject: str, body: str, *, context: ToolContext) -> ToolResult:
    """Send a plain-text e-mail to one address.

    Exactly once where a mailbox is set up in which it can be found; else at most once, with a person told.
    """
    message = _message(to, subject, body, context)
    settings = context.settings
    recipients = [to, *([settings.smtp_copy_to] if settings.smtp_copy_to else [])]
    async with _session(settings) as session:
        await session.deliver(str(settings.smtp_from), recipients, message.as_bytes())
    return ToolResult(content=f"Sent to {to}: {subject}", facts=_receipt(to, context))


async def _bind(arguments: Mapping[str, Any], context: ToolContext) -> Mapping[str, JsonValue]:
    """From whom and by which server; the rest is in the arguments. Raises EffectRefused for what can't be sent."""
    settings = context.settings
    _message(str(arguments.get("to")), str(arguments.get("subject")), str(arguments.get("body")), context)
    server = f"{settings.smtp_host}:{settings.smtp_port}"
    return {"sender": settings.smtp_from, "server": server, "copy_to": settings.smtp_copy_to}


async def _verify(arguments: Mapping[str, Any], context: ToolContext) -> Found:
    """Raises DevfixError where the mailbox can't be read."""
    settings, wanted = context.settings, message_id(context)

    async def look() -> Found:
        return _receipt(str(arguments.get("to")), context) if await find_message(settings, wanted) else None

    return await found_within(settings.outward_settle_seconds, look)


def message_id(context: ToolContext) -> str:
    """The same at each try, so that the message can be found and told apart."""
    return f"<{context.key}@{str(context.settings.smtp_from).rpartition('@')[2]}>"


def _receipt(to: str, context: ToolContext) -> dict[str, JsonValue]:
    return {"to": to, "message_id": message_id(context)}


def _message(to: str, subject: str, body: str, context: ToolContext) -> EmailMessage:
    try:
        _ADDRESS.validate_python(to)
    except ValidationError:
        raise EffectRefused(f"{to!r} is not one plain e-mail address; nothing was sent") from None
    message = EmailMessage(policy=SMTP)
    message["From"] = str(context.settings.smtp_from)
    message["To"] = to
    # What no line can carry would begin a header of its own.
    message["Subject"] = " ".join(_sendable(subject).split())
    message["Date"] = format_datetime(datetime.now(UTC))
    message["Message-ID"] = message_id(context)
    message["Auto-Submitted"] = "auto-generated"
    message["DevFix-Run"] = context.run_id
    message.set_content(_sendable(body))
    return message


def _sendable(text: str) -> str:
    return text.encode("utf-8", "replace").decode().replace("\0", "\ufffd")


class _Session:
    """A connection to the mail server, greeted and logged in."""

    def __init__(self, client: aiosmtplib.SMTP, told: str, secrets: list[str]) -> None:
        self._client = client
        self._told = told
        self._secrets = secrets

    async def deliver(self, sender: str, recipients: list[str], message: bytes) -> None:
        """Raises NotReached and EffectRefused for what the server did not take, Unanswered where that is open."""
        try:
            await self._client.mail(sender)
            for each in recipients:
                await self._client.rcpt(each)
        except (aiosmtplib.SMTPException, OSError) as error:
            raise self.refusal(error) from None
        try:
            await self._client.data(message)
        except aiosmtplib.SMTPDataError as error:
            raise self.refusal(error) from None
        except (aiosmtplib.SMTPException, OSError) as error:
            raise Unanswered(f"{self._told} took the message and did not confirm it ({self._why(error)})") from None

    def refusal(self, error: Exception) -> EffectRefused:
        """Before the message was taken: certainly not sent. A code of 4xx, or none, may go later."""
        code = getattr(error, "code", None)
        lasting = (isinstance(code, int) and code >= 500) or isinstance(error, aiosmtplib.SMTPNotSupported)
        text = f"{self._told} did not take the message ({self._why(error)}); nothing was sent"
        return EffectRefused(text) if lasting else NotReached(text)

    def _why(self, error: Exception) -> str:
        text = hidden(" ".join(str(error).split()) or type(error).__name__, self._secrets)
        return text[:_TOLD]


@asynccontextmanager
async def _session(settings: Settings) -> AsyncIterator[_Session]:
    """Raises NotReached, and EffectRefused where the server does not let us in."""
    host = str(settings.smtp_host)
    told = f"the mail server {host}:{settings.smtp_port}"
    password = secret(settings.smtp_password_env) if settings.smtp_password_env else None
    if password is not None and settings.smtp_security == "none" and not _is_here(host):
        raise EffectRefused(f"the password for {told} is not sent without TLS; set smtp_security; nothing was sent")
    client = aiosmtplib.SMTP(
        hostname=host,
        port=settings.smtp_port,
        use_tls=settings.smtp_security == "tls",
        start_tls=settings.smtp_security == "starttls",
        timeout=settings.outward_timeout_seconds,
        tls_context=await asyncio.to_thread(ssl.create_default_context),
    )
    session = _Session(client, told, [password] if password else [])
    try:
        try:
            await client.connect()
            if password is not None:
                await client.login(settings.smtp_user or str(settings.smtp_from), password)
        except (aiosmtplib.SMTPException, OSError) as error:
            raise session.refusal(error) from None
        yield session
    except BaseException:
        # What is still in the buffer must not go out after a timeout.
        if isinstance(client.transport, asyncio.WriteTransport):
            client.transport.abort()
        raise
    finally:
        client.close()


def _is_here(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
