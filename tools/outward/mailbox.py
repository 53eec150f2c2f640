"""Whether a message has arrived: by its id, in a Maildir or an IMAP folder. Nothing is marked, moved or opened."""

from __future__ import annotations

import asyncio
import imaplib
import ssl
from email.parser import BytesHeaderParser
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from state.errors import Unanswered
from tools.outward.secrets import hidden, secret

if TYPE_CHECKING:
    from state.settings import Settings


async def find_message(settings: Settings, message_id: str) -> bool:
    """Raises Unanswered where the mailbox can't be read."""
    mailbox = settings.mailbox or ""
    if mailbox.startswith("maildir:"):
        return await asyncio.to_thread(_in_maildir, Path(mailbox.removeprefix("maildir:")), message_id)
    password = secret(settings.mailbox_password_env) if settings.mailbox_password_env else ""
    try:
        return await asyncio.to_thread(_in_imap, settings, password, message_id)
    except (imaplib.IMAP4.error, OSError, ValueError) as error:
        why = hidden(str(error) or type(error).__name__, [password])
        raise Unanswered(f"the mailbox {mailbox} can't be read: {why}") from None


def _in_maildir(folder: Path, message_id: str) -> bool:
    try:
        files = [file for part in ("new", "cur") for file in (folder / part).iterdir()]
    except OSError as error:
        raise Unanswered(f"the mailbox {folder} can't be read: {error.strerror}") from None
    return any(_id_of(file) == message_id for file in files)


def _id_of(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            return str(BytesHeaderParser().parse(opened).get("Message-ID", "")).strip()
    except FileNotFoundError:
        return ""  # read, moved or deleted by its owner meanwhile


def _in_imap(settings: Settings, password: str, message_id: str) -> bool:
    parts = urlsplit(settings.mailbox or "")
    host, seconds = parts.hostname or "", settings.outward_timeout_seconds
    folder = unquote(parts.path.strip("/")) or "INBOX"
    checked = ssl.create_default_context()  # imaplib's own takes any certificate
    if parts.scheme == "imaps":
        client: imaplib.IMAP4 = imaplib.IMAP4_SSL(host, parts.port or 993, timeout=seconds, ssl_context=checked)
    else:
        client = imaplib.IMAP4(host, parts.port or 143, timeout=seconds)
        client.starttls(ssl_context=checked)
    with client:
        client.login(settings.mailbox_user or "", password)
        status, _ = client.select(f'"{folder}"', readonly=True)
        if status != "OK":
            raise ValueError(f"there is no folder {folder}")
        status, found = client.search(None, "HEADER", "Message-ID", f'"{message_id}"')
        return status == "OK" and bool(found and found[0])
