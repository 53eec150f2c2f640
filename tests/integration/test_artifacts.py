"""One contract, three stores: immutable bytes by their hash."""

from __future__ import annotations

import asyncio
import hashlib
import os
from pathlib import Path

import pytest

from state.artifacts import Artifacts, FsspecArtifacts, PostgresArtifacts, open_artifacts
from state.database import Database
from state.errors import ArtifactMissing, ArtifactsUnavailable
from state.settings import Settings
from tests.helpers.memory_stores import MemoryArtifacts

ABSENT = hashlib.sha256(b"absent").hexdigest()


@pytest.fixture(params=["postgres", "folder", "fsspec", "memory"])
def artifacts(request: pytest.FixtureRequest, tmp_path: Path) -> Artifacts:
    match request.param:
        case "postgres":
            return PostgresArtifacts(request.getfixturevalue("database"))
        case "folder":
            return FsspecArtifacts(str(tmp_path / "store"))
        case "fsspec":
            return FsspecArtifacts(f"memory://{tmp_path}")
        case _:
            return MemoryArtifacts()


@pytest.mark.parametrize("data", [b"", b"\0\xff" * 10, b"text " * 1000, bytes(range(256)) * 300])
async def test_what_is_put_comes_back_under_its_hash(artifacts: Artifacts, data: bytes) -> None:
    digest = await artifacts.put(data)
    assert digest == hashlib.sha256(data).hexdigest()
    assert await artifacts.get(digest) == data


async def test_putting_twice_and_at_once_keeps_one(artifacts: Artifacts) -> None:
    digests = await asyncio.gather(*(artifacts.put(b"same") for _ in range(8)))
    assert len(set(digests)) == 1
    assert await artifacts.put(b"same") == digests[0]
    assert await artifacts.get(digests[0]) == b"same"


async def test_many_go_in_order_with_doubles_and_come_back(artifacts: Artifacts) -> None:
    items = [b"%d" % (i % 900) * (i % 50) for i in range(2000)]
    digests = await artifacts.put_many(items)
    assert digests == [hashlib.sha256(item).hexdigest() for item in items]
    assert await artifacts.get_many(digests) == dict(zip(digests, items, strict=True))
    assert await artifacts.put_many([]) == []
    assert await artifacts.get_many([]) == {}


async def test_missing_names_what_is_not_there(artifacts: Artifacts) -> None:
    digest = await artifacts.put(b"there")
    assert await artifacts.missing([digest, ABSENT]) == {ABSENT}
    assert await artifacts.missing([]) == set()


async def test_what_is_absent_is_said_by_its_name(artifacts: Artifacts) -> None:
    digest = await artifacts.put(b"there")
    with pytest.raises(ArtifactMissing, match=ABSENT):
        await artifacts.get(ABSENT)
    with pytest.raises(ArtifactMissing, match=ABSENT):
        await artifacts.get_many([digest, ABSENT])


async def test_64_mb_are_no_trouble(artifacts: Artifacts) -> None:
    half = os.urandom(1_000_000) * 32
    digests = await artifacts.put_many([half + half, b"small", half])
    assert await artifacts.get(digests[0]) == half + half
    assert (await artifacts.get_many(digests))[digests[2]] == half


async def test_damage_in_the_database_is_noticed(database: Database) -> None:
    artifacts = PostgresArtifacts(database)
    damaged, broken = await artifacts.put_many([b"short", b"long " * 100])
    async with database.transaction() as connection:
        await connection.execute("update artifacts set data = 'other'")
    for digest in (damaged, broken):
        with pytest.raises(ArtifactMissing, match=digest):
            await artifacts.get(digest)


async def test_damage_in_a_folder_is_noticed(tmp_path: Path) -> None:
    artifacts = FsspecArtifacts(f"file://{tmp_path}")
    digest = await artifacts.put(b"bytes")
    (file,) = (path for path in tmp_path.rglob("*") if path.is_file())
    file.write_bytes(b"other")
    with pytest.raises(ArtifactMissing, match=digest):
        await artifacts.get(digest)


async def test_text_is_kept_compressed(database: Database) -> None:
    text = Path(__file__).read_bytes()
    await PostgresArtifacts(database).put(text)
    async with database.transaction() as connection:
        cursor = await connection.execute("select size, length(data) as kept from artifacts")
        row = await cursor.fetchone()
    assert row
    assert row["size"] == len(text)
    assert row["kept"] < 0.5 * len(text)


async def test_a_store_that_can_t_be_used_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(ArtifactsUnavailable, match=r"can't be used: .*Not a directory"):
        await FsspecArtifacts(str(tmp_path / "file")).put(b"bytes")
    with pytest.raises(ArtifactsUnavailable, match="Protocol not known: unheard"):
        FsspecArtifacts("unheard://of")


async def test_the_settings_choose_the_store(database: Database, tmp_path: Path) -> None:
    elsewhere = Settings(artifacts_url=f"file://{tmp_path}")
    assert isinstance(open_artifacts(settings=elsewhere, database=database), FsspecArtifacts)
    assert isinstance(open_artifacts(settings=Settings(), database=database), PostgresArtifacts)
