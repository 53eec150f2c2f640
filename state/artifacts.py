"""Artifacts: immutable bytes, named by their SHA-256, stored once.

Two stores keep one contract (`Artifacts`): PostgreSQL, and any fsspec location.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import uuid
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from typing import Any, NamedTuple, Protocol, TypeVar

from state.database import Database
from state.errors import ArtifactMissing, ArtifactsUnavailable
from state.patience import patient
from state.settings import Settings

T = TypeVar("T")
R = TypeVar("R")

BATCH_BYTES = 8_000_000
"""About as much goes to, or comes from, a store at once; a single artifact may be larger."""
BATCH_ROWS = 500
SMALL_BYTES = 256_000
"""Up to here it is cheaper to send bytes that may be there already than to ask first."""
PARALLEL = 8


class Artifacts(Protocol):
    """Each method is all that it says or raises: ArtifactsUnavailable or DatabaseUnavailable when the store is out
    of reach."""

    async def put(self, data: bytes) -> str:
        """Keep the bytes, for good when this returns; their digest. Keeping them twice costs nothing."""
        ...

    async def put_many(self, items: Iterable[bytes]) -> list[str]:
        """As `put`, in few round trips; the digests in the items' order."""
        ...

    async def get(self, digest: str) -> bytes:
        """The bytes, verified. Raises ArtifactMissing when they are gone or damaged."""
        ...

    async def get_many(self, digests: Iterable[str]) -> dict[str, bytes]:
        """As `get`, in few round trips."""
        ...

    async def missing(self, digests: Iterable[str]) -> set[str]:
        """Those that are not in the store."""
        ...


def open_artifacts(*, settings: Settings, database: Database) -> Artifacts:
    """The store that the settings name: an fsspec location, else the database."""
    if settings.artifacts_url:
        return FsspecArtifacts(settings.artifacts_url)
    return PostgresArtifacts(database)


def digest_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


# PostgreSQL


class _Row(NamedTuple):
    digest: str
    size: int
    compressed: bool
    data: bytes


class PostgresArtifacts:
    """In table `artifacts`. Text is compressed: zlib 1 took 0.39 of Python sources, the server's own pglz 0.44 and
    thrice the time."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def put(self, data: bytes) -> str:
        return (await self.put_many([data]))[0]

    async def put_many(self, items: Iterable[bytes]) -> list[str]:
        contents = list(items)
        digests = await _digests(contents)
        new = dict(zip(digests, contents, strict=True))
        if sum(map(len, new.values())) > SMALL_BYTES:
            absent = await self.missing(new)
            await self._renew(new.keys() - absent)
            new = {digest: data for digest, data in new.items() if digest in absent}
        for batch in _batches(list(new.items())):
            await self._insert(await _aside(_rows, batch, size=sum(len(data) for _, data in batch)))
        return digests

    async def get(self, digest: str) -> bytes:
        return (await self.get_many([digest]))[digest]

    async def get_many(self, digests: Iterable[str]) -> dict[str, bytes]:
        wanted = sorted(set(digests))
        if len(wanted) == 1:
            rows = await self._select(wanted)
            found = await _aside(_unpack, rows, size=sum(row.size for row in rows))
            return {wanted[0]: verified(wanted[0], found.get(wanted[0]))}
        lengths = await self._lengths(wanted)
        found = {}
        for names in chunks([(digest, lengths[digest]) for digest in wanted]):
            found |= await asyncio.to_thread(_unpack, await self._select(names))
        return found

    @patient
    async def _lengths(self, wanted: list[str]) -> dict[str, int]:
        """How many bytes each will take on its way, so that a batch fits in memory."""
        async with self._database.transaction() as connection:
            cursor = await connection.execute(
                "select digest, octet_length(data) as length from artifacts where digest = any(%s)", [wanted]
            )
            lengths = {row["digest"]: row["length"] for row in await cursor.fetchall()}
        for digest in wanted:
            if digest not in lengths:
                raise _gone(digest)
        return lengths

    @patient
    async def missing(self, digests: Iterable[str]) -> set[str]:
        asked = set(digests)
        async with self._database.transaction() as connection:
            cursor = await connection.execute("select digest from artifacts where digest = any(%s)", [sorted(asked)])
            return asked - {row["digest"] for row in await cursor.fetchall()}

    @patient
    async def _renew(self, digests: Iterable[str]) -> None:
        """They are kept anew, so that no sweep takes them before what refers to them is saved."""
        async with self._database.transaction() as connection:
            await connection.execute(
                "update artifacts set created_at = now()"
                " where digest = any(%s) and created_at < now() - interval '1 h'",
                [sorted(digests)],
            )

    @patient
    async def _insert(self, rows: list[_Row]) -> None:
        columns = [list(column) for column in zip(*rows, strict=True)]
        async with self._database.transaction() as connection:
            await connection.execute(
                "insert into artifacts as kept (digest, size, compressed, data)"
                " select * from unnest(%b::text[], %b::bigint[], %b::boolean[], %b::bytea[])"
                " on conflict (digest) do update set created_at = now() where kept.created_at < now() - interval '1 h'",
                columns,
            )

    @patient
    async def _select(self, digests: list[str]) -> list[_Row]:
        async with self._database.transaction() as connection, connection.cursor(binary=True) as cursor:
            await cursor.execute(
                "select digest, size, compressed, data from artifacts where digest = any(%s)", [digests]
            )
            return [_Row(**row) for row in await cursor.fetchall()]


def _rows(items: Sequence[tuple[str, bytes]]) -> list[_Row]:
    return [_row(digest, data) for digest, data in items]


def _row(digest: str, data: bytes) -> _Row:
    packed = zlib.compress(data, 1)
    smaller = len(packed) < 0.9 * len(data)
    return _Row(digest, len(data), smaller, packed if smaller else data)


def _unpack(rows: Iterable[_Row]) -> dict[str, bytes]:
    return {row.digest: verified(row.digest, _content(row)) for row in rows}


def _content(row: _Row) -> bytes | None:
    try:
        return zlib.decompress(row.data) if row.compressed else row.data
    except zlib.error:
        return None


# fsspec


class FsspecArtifacts:
    """One file an artifact, below `url`, which any fsspec file system may serve. Credentials come from fsspec's own
    configuration or the provider's environment."""

    def __init__(self, url: str) -> None:
        try:
            core = import_module("fsspec.core")
        except ImportError as error:
            raise ArtifactsUnavailable(
                "Artifacts outside the database need fsspec; install it with `pip install devfix[fsspec]`."
            ) from error
        try:
            self._files, self._root = core.url_to_fs(url)
        except (ImportError, ValueError) as error:
            raise ArtifactsUnavailable(f"The artifact store can't be used: {error}") from error
        self._local = "file" in _protocols(self._files)

    async def put(self, data: bytes) -> str:
        return (await self.put_many([data]))[0]

    async def put_many(self, items: Iterable[bytes]) -> list[str]:
        contents = list(items)
        digests = await _digests(contents)
        await asyncio.to_thread(self._each, self._write, dict(zip(digests, contents, strict=True)).items())
        return digests

    async def get(self, digest: str) -> bytes:
        return (await self.get_many([digest]))[digest]

    async def get_many(self, digests: Iterable[str]) -> dict[str, bytes]:
        return dict(await asyncio.to_thread(self._each, self._read, set(digests)))

    async def missing(self, digests: Iterable[str]) -> set[str]:
        asked = list(set(digests))
        there = await asyncio.to_thread(self._each, self._exists, asked)
        return {digest for digest, exists in zip(asked, there, strict=True) if not exists}

    def _each(self, work: Any, items: Iterable[Any]) -> list[Any]:
        try:
            with ThreadPoolExecutor(PARALLEL) as threads:
                return list(threads.map(work, items))
        except OSError as error:
            raise ArtifactsUnavailable(f"The artifact store {self._root} can't be used: {error}") from error

    def _path(self, digest: str) -> str:
        return f"{self._root}/{digest[:2]}/{digest}"

    def _exists(self, digest: str) -> bool:
        return bool(self._files.exists(self._path(digest)))

    def _read(self, digest: str) -> tuple[str, bytes]:
        try:
            data = self._files.cat_file(self._path(digest))
        except FileNotFoundError:
            raise _gone(digest) from None
        return digest, verified(digest, data)

    def _write(self, item: tuple[str, bytes]) -> None:
        digest, data = item
        path = self._path(digest)
        if self._files.exists(path):
            return
        if self._local:
            _write_local(path, data)
            return
        self._files.makedirs(path.rpartition("/")[0], exist_ok=True)
        self._files.pipe_file(path, data)


def _write_local(path: str, data: bytes) -> None:
    """Under its name the file is whole, also after a power cut."""
    folder = os.path.dirname(path)
    os.makedirs(folder, exist_ok=True)
    draft = f"{path}.{uuid.uuid4().hex}"
    try:
        with open(draft, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
    except BaseException:
        if os.path.exists(draft):
            os.unlink(draft)
        raise
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _protocols(files: Any) -> tuple[str, ...]:
    return (files.protocol,) if isinstance(files.protocol, str) else tuple(files.protocol)


# Shared


async def _aside(work: Callable[[T], R], argument: T, *, size: int) -> R:
    """In a thread if it takes long: handing over costs more than a few kilobytes do."""
    return work(argument) if size < SMALL_BYTES else await asyncio.to_thread(work, argument)


async def _digests(contents: list[bytes]) -> list[str]:
    return await _aside(lambda items: [digest_of(data) for data in items], contents, size=sum(map(len, contents)))


def _batches(items: list[tuple[str, bytes]]) -> Iterator[list[tuple[str, bytes]]]:
    contents = dict(items)
    for names in chunks([(digest, len(data)) for digest, data in items]):
        yield [(digest, contents[digest]) for digest in names]


def chunks(sizes: Iterable[tuple[str, int]]) -> Iterator[list[str]]:
    """Names in groups of about BATCH_BYTES, at least one a group."""
    names: list[str] = []
    total = 0
    for name, size in sizes:
        if names and (total + size > BATCH_BYTES or len(names) >= BATCH_ROWS):
            yield names
            names, total = [], 0
        names.append(name)
        total += size
    if names:
        yield names


def verified(digest: str, data: bytes | None) -> bytes:
    """The bytes, if they are those that the digest names. Raises ArtifactMissing."""
    if data is None or digest_of(data) != digest:
        raise _gone(digest)
    return data


def _gone(digest: str) -> ArtifactMissing:
    return ArtifactMissing(
        f"Artifact {digest} is not in the store, or damaged there; what refers to it can't be restored."
    )
