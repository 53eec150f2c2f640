"""Fixtures: one embedded server per test session, one freshly migrated database per test."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import tempfile
import venv
from collections.abc import AsyncIterator, Iterator
from itertools import count
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest

from state import embedded
from state.database import Database
from state.settings import Settings
from tools.interpreter import find_interpreter

TEMPLATE = "devfix_template"
NUMBERS = count(1)


def pytest_xdist_auto_num_workers() -> int:
    """One more than there are processors: with as many, they were idle for a fifth of the acceptance tests' time."""
    return (os.cpu_count() or 1) + 1


def database_named(server_url: str, name: str) -> str:
    return urlunsplit(urlsplit(server_url)._replace(path=f"/{name}"))


@pytest.fixture(scope="session", autouse=True)
def own_home() -> Iterator[Path]:
    """No test sees, or touches, the developer's own DevFix: its home and settings are the session's."""
    home = Path(tempfile.mkdtemp(prefix="devfix-test-"))
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("DEVFIX_")]:
            patch.delenv(name)
        patch.setenv("DEVFIX_HOME", str(home))
        yield home
    asyncio.run(embedded.stop(home))
    shutil.rmtree(home, ignore_errors=True)


@pytest.fixture(scope="session", autouse=True)
def own_python(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """What a repository without an environment is tested with: pytest and nothing else, whatever the machine's Python
    has. Plugins found there would run in each of some hundred test commands."""
    folder = tmp_path_factory.mktemp("python")
    environment = folder / "environment"
    venv.create(environment, symlinks=True)
    interpreter = find_interpreter(folder, python=str(environment), cache=folder / "home" / "interpreters")
    (offer,) = [place for place in interpreter.mounts if place.name.startswith("offer-")]
    (packages,) = environment.glob("lib/python3*/site-packages")
    shutil.copytree(offer, packages, dirs_exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VIRTUAL_ENV", str(environment))
        yield environment


@pytest.fixture(scope="session", autouse=True)
def interruptible() -> None:
    """A shell starts what runs in its background with SIGINT ignored, and `nohup` with SIGHUP; children would inherit
    that, but not a handler."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
        signal.signal(signal.SIGHUP, lambda *_: None)


@pytest.fixture(scope="session")
def server_url() -> Iterator[str]:
    """The URL of an embedded PostgreSQL of this session. It may lose data in a power cut, so that tests are fast."""
    home = Path(tempfile.mkdtemp(prefix="devfix-test-"))
    try:
        url = asyncio.run(embedded.start(home))
        with psycopg.connect(url, autocommit=True) as connection:
            for setting in ("fsync", "synchronous_commit", "full_page_writes"):
                connection.execute(f"alter system set {setting} = off")
            connection.execute("select pg_reload_conf()")
        yield url
    finally:
        asyncio.run(embedded.stop(home))
        shutil.rmtree(home)


@pytest.fixture(scope="session")
def template(server_url: str) -> str:
    """The name of a migrated database, to be copied."""

    async def migrated(url: str) -> None:
        database = Database(Settings(database_url=url))
        await database.open()
        await database.close()

    with psycopg.connect(server_url, autocommit=True) as connection:
        connection.execute(f"create database {TEMPLATE}")
    asyncio.run(migrated(database_named(server_url, TEMPLATE)))
    return TEMPLATE


@pytest.fixture
def empty_database_url(server_url: str) -> Iterator[str]:
    """The URL of a new database with nothing in it."""
    yield from _new_database(server_url, "template1")


@pytest.fixture
def database_url(server_url: str, template: str) -> Iterator[str]:
    """The URL of a new, migrated database."""
    yield from _new_database(server_url, template)


@pytest.fixture
async def database(database_url: str, tmp_path: Path) -> AsyncIterator[Database]:
    """A new, migrated database, open."""
    database = Database(Settings(database_url=database_url, home=tmp_path / "home"))
    await database.open()
    yield database
    await database.close()


def _new_database(server_url: str, template: str) -> Iterator[str]:
    name = f"test_{next(NUMBERS)}"
    with psycopg.connect(server_url, autocommit=True) as connection:
        connection.execute(f"create database {name} template {template}")
        yield database_named(server_url, name)
        connection.execute(f"drop database {name} with (force)")
