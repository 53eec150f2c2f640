"""A real IMAP server (pymap) with one mailbox, behind STARTTLS, in a process of its own."""

from __future__ import annotations

import imaplib
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import trustme

USER = "ada"
PASSWORD = "right-word"  # noqa: S105
SECONDS = 60.0


class ImapServer:
    def __init__(self, port: int, authority: Path) -> None:
        self.url = f"imap://127.0.0.1:{port}/INBOX"
        self.authority = authority
        """The certificate that vouches for it."""
        self._port = port

    def deliver(self, message: bytes) -> None:
        client = imaplib.IMAP4("127.0.0.1", self._port, timeout=SECONDS)
        with client:
            client.starttls(ssl_context=ssl.create_default_context(cafile=self.authority))
            client.login(USER, PASSWORD)
            status, _ = client.append("INBOX", "", "", message.replace(b"\n", b"\r\n"))
            assert status == "OK"


@contextmanager
def imap_server(folder: Path, port: int) -> Iterator[ImapServer]:
    """The server, once it answers."""
    folder.mkdir()
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    authority.cert_pem.write_to_path(folder / "ca.pem")
    certificate.private_key_and_cert_chain_pem.write_to_path(folder / "own.pem")
    program = "import sys; from pymap.main import main; sys.exit(main())"
    given = ["--host", "127.0.0.1", "--port", port, "--cert", folder / "own.pem", "--no-service", "admin"]
    login = ["dict", "--demo-data", "--demo-user", USER, "--demo-password", PASSWORD]
    command = [sys.executable, "-W", "ignore", "-c", program, *map(str, given), *login]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            _wait_for(port)
            yield ImapServer(port, folder / "ca.pem")
        finally:
            process.kill()


def _wait_for(port: int) -> None:
    deadline = time.monotonic() + SECONDS
    while True:
        try:
            imaplib.IMAP4("127.0.0.1", port, timeout=SECONDS).logout()
        except OSError:
            assert time.monotonic() < deadline, "the IMAP server does not answer"
            time.sleep(0.1)
        else:
            return
