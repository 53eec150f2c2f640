"""A database of the user's own: by an ordinary user, beside others' tables, through a pooler, or one clear sentence."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from urllib.parse import parse_qs, urlsplit

import psycopg
import pytest
from langgraph.checkpoint.postgres import PostgresSaver

from state.database import Database
from state.errors import DatabaseUnavailable
from state.postgres import run_as
from state.settings import Settings

PASSWORD = "s3cr3t-word"  # noqa: S105 (of a server of our own)


def as_user(url: str, user: str) -> str:
    return url.replace("//devfix@", f"//{user}@")


@pytest.fixture
def ordinary_user(server_url: str) -> Iterator[str]:
    """A role without any right of its own."""
    with psycopg.connect(server_url, autocommit=True) as connection:
        connection.execute("create role ordinary login nosuperuser")
        yield "ordinary"
        connection.execute("drop owned by ordinary")
        connection.execute("drop role ordinary")


async def refused(url: str) -> str:
    """The sentence with which a database is refused."""
    database = Database(Settings(database_url=url))
    with pytest.raises(DatabaseUnavailable) as caught:
        await database.open()
    chain = f"{caught.value!r} {caught.value.__cause__!r}"
    assert PASSWORD not in chain
    assert "\n" not in str(caught.value)
    return str(caught.value)


async def test_an_ordinary_user_makes_the_schema_and_leaves_others_tables_alone(
    empty_database_url: str, ordinary_user: str
) -> None:
    with PostgresSaver.from_conn_string(empty_database_url) as saver:
        saver.setup()
    with psycopg.connect(empty_database_url, autocommit=True) as owner:
        owner.execute("insert into checkpoint_blobs values ('t', '', 'c', '1', 'bytes', 'theirs')")
        owner.execute(f'grant create on database "{owner.info.dbname}" to {ordinary_user}')
        database = Database(Settings(database_url=as_user(empty_database_url, ordinary_user)))
        async with database.transaction() as connection:
            await connection.execute("insert into checkpoint_blobs values ('t', '', 'c', '1', 'bytes', 'ours')")
        await database.close()
        blobs = owner.execute(
            "select p.blob, d.blob from public.checkpoint_blobs p, devfix.checkpoint_blobs d"
        ).fetchall()
        assert blobs == [(b"theirs", b"ours")]
        owner.execute("drop schema devfix cascade")


async def test_a_schema_made_beforehand_needs_no_right_on_the_database(
    empty_database_url: str, ordinary_user: str
) -> None:
    url = as_user(empty_database_url, ordinary_user)
    assert "create schema mine authorization ordinary" in await refused_schema(url, "mine")
    with psycopg.connect(empty_database_url, autocommit=True) as owner:
        owner.execute(f"create schema mine authorization {ordinary_user}")
        database = Database(Settings(database_url=url, database_schema="mine"))
        async with database.transaction() as connection:
            cursor = await connection.execute("select current_schema() as schema")
            assert await cursor.fetchone() == {"schema": "mine"}
        await database.close()
        owner.execute("drop schema mine cascade")


async def refused_schema(url: str, schema: str) -> str:
    with pytest.raises(DatabaseUnavailable) as caught:
        await Database(Settings(database_url=url, database_schema=schema)).open()
    return str(caught.value)


async def test_a_database_that_is_down_is_named_with_the_reason(tmp_path: Path) -> None:
    url = f"postgresql://me:{PASSWORD}@127.0.0.1:1/work"
    assert await refused(url) == (
        "The database work at me@127.0.0.1:1 can't be used: nothing listens there; start it, or correct the URL."
    )
    missing = await refused(f"postgresql://me:{PASSWORD}@/work?host={tmp_path}")
    assert "no server has its socket there" in missing


async def test_an_unknown_host_is_named(tmp_path: Path) -> None:
    assert "host's name is not known" in await refused(f"postgresql://me:{PASSWORD}@nowhere.invalid/work")


async def test_an_unknown_database_or_user_is_named(server_url: str) -> None:
    assert "has no such database" in await refused(server_url.replace("/postgres?", "/missing?"))
    assert "knows no such user" in await refused(as_user(server_url, "stranger"))


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://me:{PASSWORD}/rest@localhost/work",
        f"postgresql://me:{PASSWORD}@rest@localhost/work",
        f"postgresql://me:{PASSWORD}#x@localhost:{PASSWORD}/work",
        f"mysql://me:{PASSWORD}@localhost/work",
        f"postgresql://me:{PASSWORD}@localhost/work?colour={PASSWORD}",
        f"postgresql://me:12/{PASSWORD}:x@localhost/work",
    ],
)
async def test_a_malformed_url_is_refused_without_showing_any_of_it(url: str) -> None:
    assert (await refused(url)).startswith("DEVFIX_DATABASE_URL is not a PostgreSQL URL")


@contextmanager
def greeter(*answers: bytes) -> Iterator[str]:
    """The URL of a server that speaks just enough to greet: refuses a client, or says that it is old."""

    def greet() -> None:
        client, _ = server.accept()
        with client:
            client.recv(1000)
            client.sendall(b"".join(answers))
            client.recv(1000)

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = Thread(target=greet)
        thread.start()
        port = server.getsockname()[1]
        yield f"postgresql://me:{PASSWORD}@127.0.0.1:{port}/work?sslmode=disable&gssencmode=disable"
        thread.join(30)


def message(kind: bytes, body: bytes) -> bytes:
    return kind + (len(body) + 4).to_bytes(4, "big") + body


ACCEPTED = message(b"R", bytes(4))
READY = message(b"Z", b"I")


def parameter(name: bytes, value: bytes) -> bytes:
    return message(b"S", name + b"\0" + value + b"\0")


async def test_an_old_major_version_is_refused() -> None:
    with greeter(ACCEPTED, parameter(b"server_version", b"13.4"), READY) as url:
        assert await refused(url) == ("The database is PostgreSQL 13, DevFix needs 14 or newer; nothing was changed.")


async def test_a_database_with_another_encoding_is_refused() -> None:
    greeting = parameter(b"server_version", b"16.2"), parameter(b"server_encoding", b"SQL_ASCII")
    with greeter(ACCEPTED, *greeting, READY) as url:
        assert "keeps its text as SQL_ASCII, DevFix needs UTF8" in await refused(url)


async def test_an_odd_refusal_is_shown_without_the_password() -> None:
    fields = f"SFATAL\0C28000\0Mthe word {PASSWORD} is weak\0\0".encode()
    with greeter(message(b"E", fields)) as url:
        assert "the word … is weak" in await refused(url)


# Behind a pooler


@pytest.fixture
def pooler_url(database_url: str, tmp_path: Path) -> Iterator[str]:
    """The test's database through a transaction-mode PgBouncer with two server connections and a password."""
    program = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
    if not program:
        pytest.skip("pgbouncer is not installed (Debian: apt-get install pgbouncer)")
    parts = urlsplit(database_url)
    host, name = parse_qs(parts.query)["host"][0], parts.path.lstrip("/")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    (tmp_path / "users.txt").write_text(f'"devfix" "{PASSWORD}"\n')
    (tmp_path / "pgbouncer.ini").write_text(
        f"[databases]\n{name} = host={host} port=5432 dbname={name} user=devfix\n"
        f"[pgbouncer]\nlisten_addr=127.0.0.1\nlisten_port={port}\nunix_socket_dir=\nauth_type=plain\n"
        f"auth_file={tmp_path}/users.txt\npool_mode=transaction\ndefault_pool_size=2\nmax_client_conn=50\n"
    )
    # It refuses to run as root, and has to read its files and reach the server's socket: as for the server.
    prefix = as_somebody(tmp_path)
    process = subprocess.Popen([*prefix, program, "-q", str(tmp_path / "pgbouncer.ini")], start_new_session=True)
    try:
        wait_for(port)
        yield f"postgresql://devfix:{PASSWORD}@127.0.0.1:{port}/{name}"
    finally:
        os.killpg(process.pid, signal.SIGKILL)  # the prefix may leave a process of its own in between
        process.wait(30)


def as_somebody(folder: Path) -> list[str]:
    return [] if os.geteuid() else run_as(0, folder / "no data")


def wait_for(port: int) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    pytest.fail("pgbouncer did not start")


async def test_a_transaction_mode_pooler_stands_in_between(pooler_url: str, database_url: str) -> None:
    """Twice as many clients as server connections; migrating, transactions, savepoints, and the direct connection."""
    settings = Settings(database_url=pooler_url, database_direct_url=database_url, database_schema="pooled")
    databases = [Database(settings) for _ in range(4)]
    await asyncio.gather(*(d.open() for d in databases))

    async def work(database: Database, number: int) -> None:
        for i in range(20):
            async with database.transaction() as connection:
                await connection.execute("insert into checkpoint_migrations values (%s)", [1000 + number * 100 + i])
                async with connection.transaction():
                    await connection.execute("select %s::int", [i])

    await asyncio.gather(*(work(d, n) for n, d in enumerate(databases)))
    async with databases[0].transaction() as connection:
        cursor = await connection.execute("select count(*) as n from checkpoint_migrations where v >= 1000")
        assert await cursor.fetchone() == {"n": 80}
    async with databases[0].direct() as connection:
        cursor = await connection.execute("select pg_advisory_lock(1), pg_backend_pid() as pid")
        row = await cursor.fetchone()
        assert row
        assert row["pid"] == connection.info.backend_pid
    await asyncio.gather(*(d.close() for d in databases))


async def test_locks_through_a_pooler_are_refused(pooler_url: str) -> None:
    database = Database(Settings(database_url=pooler_url))
    with pytest.raises(DatabaseUnavailable, match="set DEVFIX_DATABASE_DIRECT_URL"):
        async with database.direct():
            pass
    await database.close()


async def test_a_wrong_password_is_named_and_not_shown(pooler_url: str) -> None:
    wrong = pooler_url.replace(PASSWORD, f"{PASSWORD}-wrong")
    assert (await refused(wrong)).endswith("user or password is wrong.")
