"""A snapshot brings back a folder exactly, says what it left out, and never leaves the folder."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import stat
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from state.artifacts import Artifacts, FsspecArtifacts, PostgresArtifacts
from state.errors import ArtifactMissing, NotInSnapshot, SnapshotFailed
from state.folders import Beneath
from state.postgres import user_namespace
from state.snapshots import Change, Entry, SnapshotCache, Snapshots
from tests.helpers.memory_stores import MemoryArtifacts
from tools.workspaces import Workspaces

Contents = dict[bytes, tuple[object, ...]]


def contents(root: Path) -> Contents:
    """Everything below a folder, read in a way of its own: kind, mode, and bytes or target by path."""
    found: Contents = {}
    for folder, names, files in os.walk(os.fsencode(root)):
        for name in (*names, *files):
            path = os.path.join(folder, name)
            status = os.lstat(path)
            mode = stat.S_IMODE(status.st_mode)
            key = os.path.relpath(path, os.fsencode(root))
            if stat.S_ISLNK(status.st_mode):
                found[key] = ("link", os.readlink(path))
            elif stat.S_ISDIR(status.st_mode):
                found[key] = ("folder", mode)
            elif stat.S_ISREG(status.st_mode):
                with open(path, "rb") as file:
                    found[key] = ("file", mode, file.read())
            else:
                found[key] = ("special", mode)
    return found


class Counting(MemoryArtifacts):
    """Counts what is sent."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[bytes] = []

    async def put(self, data: bytes) -> str:
        self.sent.append(data)
        return await super().put(data)


@pytest.fixture
def store() -> Counting:
    return Counting()


@pytest.fixture
def snapshots(store: Counting) -> Snapshots:
    return Snapshots(artifacts=store)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder with all that is odd in it."""
    root = tmp_path / "a folder with 'quotes' and \"more\""
    (root / "package" / "deep").mkdir(parents=True)
    (root / "package" / "crlf.py").write_bytes(b"a = 1\r\nb = 2\r\n")
    (root / "package" / "deep" / "binary").write_bytes(bytes(range(256)))
    (root / "run.sh").write_text("#!/bin/sh\n")
    (root / "run.sh").chmod(0o755)
    (root / "private").write_text("mine")
    (root / "private").chmod(0o600)
    (root / "empty file").touch()
    (root / "empty folder" / "inner").mkdir(parents=True)
    (root / "closed").mkdir()
    (root / "closed" / "file").write_text("read-only folder")
    (root / "closed").chmod(0o555)
    (root / "vendor" / "lib" / ".git").mkdir(parents=True)
    (root / "vendor" / "lib" / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    (root / "dangling").symlink_to("nowhere")
    (root / "outside").symlink_to("/etc/passwd")
    (root / "up").symlink_to("..")
    (root / "package" / "link to folder").symlink_to("deep")
    if sys.platform == "linux":
        os.mkdir(os.fsencode(root) + b"/caf\xe9")
        Path(os.fsdecode(os.fsencode(root) + b"/caf\xe9/na\xefve\n.txt")).write_text("latin-1")
        os.symlink(b"caf\xe9", os.fsencode(root) + b"/lien-\xff")
    return root


@pytest.fixture(params=["postgres", "folder", "memory"])
def any_store(request: pytest.FixtureRequest, tmp_path: Path) -> Artifacts:
    match request.param:
        case "postgres":
            return PostgresArtifacts(request.getfixturevalue("database"))
        case "folder":
            return FsspecArtifacts(str(tmp_path / "store"))
        case _:
            return MemoryArtifacts()


async def test_everything_comes_back_exactly_elsewhere(any_store: Artifacts, root: Path, tmp_path: Path) -> None:
    snapshots = Snapshots(artifacts=any_store)
    digest = await snapshots.take(root)
    await snapshots.restore(digest, tmp_path / "elsewhere")
    assert contents(tmp_path / "elsewhere") == contents(root)
    assert await snapshots.take(tmp_path / "elsewhere") == digest
    assert (await snapshots.manifest(digest)).not_covered == {}


async def test_everything_comes_back_exactly_in_place(snapshots: Snapshots, root: Path) -> None:
    """Whatever an agent did: edits, modes, additions, and each kind put in the place of each other."""
    before = contents(root)
    digest = await snapshots.take(root)
    (root / "package" / "crlf.py").write_bytes(b"a = 1\nb = 2\n")
    (root / "run.sh").chmod(0o644)
    (root / "extra" / "tree").mkdir(parents=True)
    (root / "extra" / "tree" / "file").touch()
    (root / "private").unlink()
    (root / "private").symlink_to("/etc/passwd")
    (root / "dangling").unlink()
    (root / "dangling").mkdir()
    (root / "dangling" / "file").touch()
    (root / "outside").unlink()
    (root / "outside").write_text("a file now")
    (root / "empty folder" / "inner").rmdir()
    (root / "empty folder").rmdir()
    (root / "empty folder").symlink_to("package")
    (root / "empty file").unlink()
    os.mkfifo(root / "empty file")
    (root / "closed").chmod(0o755)
    (root / "closed" / "file").unlink()
    (root / "closed").rmdir()
    (root / "closed").write_text("a file where a folder was")
    (root / "vendor" / "lib" / ".git" / "HEAD").write_text("changed")
    os.mkfifo(root / "new pipe")
    await snapshots.restore(digest, root)
    assert contents(root) == before
    assert await snapshots.take(root) == digest


async def test_a_folder_that_became_a_link_is_not_followed(snapshots: Snapshots, root: Path, tmp_path: Path) -> None:
    """The folder that a planted link names keeps its files, when the tree is snapshot and when it is restored."""
    before = contents(root)
    digest = await snapshots.take(root)
    other = tmp_path / "other"
    other.mkdir()
    (other / "crlf.py").write_text("not ours")
    (other / "precious").write_text("not ours")
    (root / "package").rename(tmp_path / "away")
    (root / "package").symlink_to(other)
    planted = await snapshots.manifest(await snapshots.take(root))
    assert planted.entries["package"] == Entry("link", target=str(other))
    assert not [path for path in planted.entries if path.startswith("package/")]
    await snapshots.restore(digest, root)
    assert contents(root) == before
    assert {p.name: p.read_text() for p in other.iterdir()} == {"crlf.py": "not ours", "precious": "not ours"}


def test_a_link_that_appears_on_the_way_is_refused(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "file").write_text("not ours")
    (tmp_path / "root" / "folder").symlink_to(tmp_path / "outside")
    (tmp_path / "root" / "file").symlink_to(tmp_path / "outside" / "file")
    with Beneath(tmp_path / "root") as folder:
        for path in ("folder/file", "file"):
            with pytest.raises(OSError, match=r"Not a directory|Too many levels"):
                folder.read(path)
        with pytest.raises(OSError, match=r"Not a directory|Too many levels"):
            folder.write("folder/new", b"", 0o644)
        with pytest.raises(OSError, match=r"Not a directory|Too many levels"):
            folder.remove("folder/file")
    assert [p.name for p in (tmp_path / "outside").iterdir()] == ["file"]


async def test_what_is_not_covered_is_listed_with_the_reason_and_left_alone(
    snapshots: Snapshots, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / ".git").mkdir()
    (root / ".git" / "HEAD").touch()
    (root / ".env").write_text("TOKEN=1")
    (root / ".env.example").write_text("TOKEN=")
    (root / "package" / "id_rsa").write_text("key")
    (root / "key.pem").write_text("-----BEGIN PRIVATE KEY-----\n")
    (root / "certificate.pem").write_text("-----BEGIN CERTIFICATE-----\n")
    (root / "node_modules").mkdir()
    (root / "env").mkdir()
    (root / "env" / "pyvenv.cfg").touch()
    (root / "package" / "venv").mkdir()
    (root / "package" / "__pycache__").mkdir()
    (root / "package" / "__pycache__" / "crlf.pyc").touch()
    with (root / "large").open("wb") as large:
        large.truncate(200 * 1024 * 1024)
    os.mkfifo(root / "pipe")
    with socket.socket(socket.AF_UNIX) as unix:
        monkeypatch.chdir(root)  # a socket's whole path would be too long an address
        unix.bind("socket")
    digest = await snapshots.take(root)
    manifest = await snapshots.manifest(digest)
    assert manifest.not_covered == {
        ".env": "may hold a secret",
        ".git": "the repository's own history",
        "env": "an environment: its installer makes it again",
        "key.pem": "may hold a secret",
        "large": "is larger than 32 MB",
        "node_modules": "installed packages: their installer makes them again",
        "package/id_rsa": "may hold a secret",
        "pipe": "is a named pipe",
        "socket": "is a socket",
    }
    assert {".env.example", "certificate.pem", "package/venv"} <= manifest.entries.keys()
    assert not [path for path in manifest.entries if "__pycache__" in path]

    (root / ".env").write_text("TOKEN=2")
    (root / "later.pem").write_text("-----BEGIN RSA PRIVATE KEY-----\n")
    (root / "run.sh").write_text("changed")
    await snapshots.restore(digest, root)
    assert (root / "run.sh").read_text() == "#!/bin/sh\n"
    assert (root / ".env").read_text() == "TOKEN=2"
    assert all((root / path).exists() for path in manifest.not_covered)
    assert (root / "later.pem").exists()
    assert not (root / "package" / "__pycache__").exists()


async def test_the_name_stays_the_same_through_caches_and_restores(
    snapshots: Snapshots, root: Path, tmp_path: Path
) -> None:
    """Running tests leaves caches, a workspace lacks the secrets of the original: neither is a change."""
    (root / ".env").write_text("TOKEN=1")
    digest = await snapshots.take(root)
    (root / "__pycache__").mkdir()
    (root / "package" / ".pytest_cache").mkdir()
    assert await snapshots.take(root) == digest
    cache = SnapshotCache()
    await snapshots.restore(digest, tmp_path / "workspace", cache=cache)
    assert not (tmp_path / "workspace" / ".env").exists()
    assert await snapshots.take(tmp_path / "workspace", cache=cache) == digest
    cache = SnapshotCache.load(cache.dump())
    assert await snapshots.take(tmp_path / "workspace", cache=cache) == digest


def test_what_can_t_be_read_is_listed_and_left_alone(root: Path) -> None:
    """Root reads everything, so an ordinary user takes the snapshot."""
    (root / "private").chmod(0)
    (root / "package" / "deep").chmod(0)
    (root / "vendor").chmod(0o600)
    prefix: list[str] = []
    if os.geteuid() == 0 and not (prefix := user_namespace() or []):
        pytest.skip("root can't become an ordinary user here: user namespaces are off")
    command = [*prefix, sys.executable, "-c", UNREADABLE, str(root)]
    done = subprocess.run(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True, check=True)
    assert done.stdout.splitlines() == [
        "package/deep: may not be read",
        "private: can't be read: Permission denied",
        "vendor/lib: may not be read",
    ]
    for path in ("private", "package/deep", "vendor"):
        (root / path).chmod(0o755)
    assert (root / "private").read_text() == "mine"
    assert (root / "package" / "deep" / "binary").exists()
    assert (root / "vendor" / "lib" / ".git" / "HEAD").exists()


REPOSITORY = Path(__file__).parents[2]
UNREADABLE = """
import asyncio, sys
from pathlib import Path
from state.snapshots import Snapshots
from tests.helpers.memory_stores import MemoryArtifacts

async def main(root):
    snapshots = Snapshots(artifacts=MemoryArtifacts())
    digest = await snapshots.take(root)
    for path, reason in (await snapshots.manifest(digest)).not_covered.items():
        print(f"{path}: {reason}")
    (root / "extra").touch()
    await snapshots.restore(digest, root)
    assert not (root / "extra").exists()

asyncio.run(main(Path(sys.argv[1])))
"""


async def test_an_unchanged_tree_is_not_read_again(
    snapshots: Snapshots, store: Counting, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[str] = []
    read = Beneath.read

    def counted(self: Beneath, path: str) -> tuple[bytes, os.stat_result]:
        reads.append(path)
        return read(self, path)

    monkeypatch.setattr(Beneath, "read", counted)
    cache = SnapshotCache()
    first = await snapshots.take(root, cache=cache)
    await asyncio.sleep(0.05)  # what is younger than a tick of the clock is read once more
    await snapshots.take(root, cache=cache)
    reads.clear()
    store.sent.clear()
    assert await snapshots.take(root, cache=cache) == first
    assert (reads, store.sent) == ([], [])
    (root / "package" / "crlf.py").write_bytes(b"a = 1\r\nb = 3\r\n")
    assert await snapshots.take(root, cache=cache) != first
    assert reads == ["package/crlf.py"]
    assert len(store.sent) == 4  # the file, its folder's listing, the root's, the manifest
    assert await snapshots.take(root) == await snapshots.take(root, cache=cache)


async def test_a_quick_change_of_the_same_size_is_seen(snapshots: Snapshots, tmp_path: Path) -> None:
    """Two writes within one tick of the clock leave the same times and size: the cache does not trust them."""
    root = tmp_path / "root"
    root.mkdir()
    cache = SnapshotCache()
    names = []
    for i in range(50):
        (root / "file").write_bytes(b"%02d" % i)
        names.append(await snapshots.take(root, cache=cache))
    assert len(set(names)) == 50


async def test_a_store_that_lost_everything_is_filled_again(root: Path) -> None:
    cache = SnapshotCache()
    first = await Snapshots(artifacts=MemoryArtifacts()).take(root, cache=cache)
    other = Snapshots(artifacts=MemoryArtifacts())
    assert await other.take(root, cache=cache) == first
    assert await other.read(first, "run.sh") == b"#!/bin/sh\n"


async def test_a_missing_artifact_stops_a_restore_before_it_begins(root: Path, tmp_path: Path) -> None:
    store = MemoryArtifacts()
    snapshots = Snapshots(artifacts=store)
    digest = await snapshots.take(root)
    entry = (await snapshots.manifest(digest)).entries["run.sh"]
    assert entry.digest
    del store._kept[entry.digest]
    (tmp_path / "target").mkdir()
    (tmp_path / "target" / "kept").touch()
    with pytest.raises(ArtifactMissing, match="was not changed"):
        await snapshots.restore(digest, tmp_path / "target")
    assert [p.name for p in (tmp_path / "target").iterdir()] == ["kept"]


async def test_reading_one_file(snapshots: Snapshots, root: Path) -> None:
    digest = await snapshots.take(root)
    assert await snapshots.read(digest, "package/crlf.py") == b"a = 1\r\nb = 2\r\n"
    for path in ("package", "missing", "package/crlf.py/x", "up", "", "../x", "up/x"):
        with pytest.raises(NotInSnapshot, match="has no file"):
            await snapshots.read(digest, path)
    with pytest.raises(ArtifactMissing, match="is not a snapshot"):
        await snapshots.read(await snapshots._artifacts.put(b"[]"), "x")


async def test_changes_are_named_by_path(snapshots: Snapshots, root: Path) -> None:
    old = await snapshots.take(root)
    (root / "run.sh").chmod(0o644)
    (root / "private").unlink()
    (root / "new" / "folder").mkdir(parents=True)
    (root / "new" / "file").touch()
    (root / "up").unlink()
    (root / "up").mkdir()
    new = await snapshots.take(root)
    changes = await snapshots.changed(old, new)
    assert [(c.path, c.kind) for c in changes] == [
        ("new/file", "added"),
        ("new/folder", "added"),
        ("private", "removed"),
        ("run.sh", "modified"),
        ("up", "modified"),
    ]
    assert changes[4] == Change("up", "modified", Entry("link", target=".."), Entry("folder", 0o755))
    assert await snapshots.changed(new, new) == []


async def test_trouble_with_the_folder_is_one_sentence(snapshots: Snapshots, root: Path, tmp_path: Path) -> None:
    digest = await snapshots.take(root)
    (tmp_path / "file").touch()
    with pytest.raises(SnapshotFailed, match=r"file can't be read: Not a directory; no snapshot was taken\."):
        await snapshots.take(tmp_path / "file")
    with pytest.raises(SnapshotFailed, match=r"nowhere can't be read: No such file"):
        await snapshots.take(tmp_path / "nowhere")
    with pytest.raises(SnapshotFailed, match="can't be made"):
        await snapshots.restore(digest, tmp_path / "file")


async def test_a_deep_tree_ends_somewhere(snapshots: Snapshots, tmp_path: Path) -> None:
    deepest = "/".join(["d"] * 300)
    (tmp_path / "root" / deepest).mkdir(parents=True)
    manifest = await snapshots.manifest(await snapshots.take(tmp_path / "root"))
    assert list(manifest.not_covered.values()) == ["is nested deeper than 200 folders"]


NAME = st.binary(min_size=1, max_size=3).filter(lambda name: not set(name) & set(b"/\0") and name not in (b".", b".."))
LEAF = st.one_of(
    st.tuples(st.just("file"), st.binary(max_size=20), st.sampled_from([0o644, 0o755, 0o600])),
    st.tuples(st.just("link"), st.binary(min_size=1, max_size=5).filter(lambda t: b"\0" not in t)),
)
TREE = st.recursive(
    st.dictionaries(NAME, LEAF, max_size=3),
    lambda below: st.dictionaries(NAME, st.one_of(LEAF, below), max_size=4),
    max_leaves=8,
)


def plant(folder: bytes, tree: dict[bytes, object]) -> None:
    os.mkdir(folder)
    for name, content in tree.items():
        path = os.path.join(folder, name)
        if isinstance(content, dict):
            plant(path, content)
        elif content[0] == "link":  # type: ignore[index]
            os.symlink(content[1], path)  # type: ignore[index]
        else:
            Path(os.fsdecode(path)).write_bytes(content[1])  # type: ignore[index]
            os.chmod(path, content[2])  # type: ignore[index]


@pytest.mark.skipif(sys.platform != "linux", reason="other systems refuse names that are not UTF-8")
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(first=TREE, second=TREE)
async def test_any_tree_comes_back_over_any_other(
    tmp_path_factory: pytest.TempPathFactory, first: dict[bytes, object], second: dict[bytes, object]
) -> None:
    folder = tmp_path_factory.mktemp("any")
    plant(os.fsencode(folder / "first"), first)
    plant(os.fsencode(folder / "second"), second)
    snapshots = Snapshots(artifacts=MemoryArtifacts())
    cache = SnapshotCache()
    one = await snapshots.take(folder / "first", cache=cache)
    two = await snapshots.take(folder / "second")
    changes = await snapshots.changed(one, two)
    assert bool(changes) == (one != two)
    await snapshots.restore(two, folder / "first", cache=cache)
    assert contents(folder / "first") == contents(folder / "second")
    assert await snapshots.take(folder / "first", cache=cache) == two


async def test_a_workspace_that_somebody_removed_is_made_anew(tmp_path: Path) -> None:
    """In mid-run: the next call finds the files of its snapshot, not an empty folder."""
    snapshots = Snapshots(artifacts=MemoryArtifacts())
    (tmp_path / "repository").mkdir()
    (tmp_path / "repository" / "code.py").write_text("x = 1\n")
    digest = await snapshots.take(tmp_path / "repository")
    workspaces = Workspaces(home=tmp_path / "home", snapshots=snapshots)
    first = await workspaces.at("run", 1, repository="", snapshot=digest)
    shutil.rmtree(tmp_path / "home")
    again = await workspaces.at("run", 1, repository="", snapshot=digest)
    assert again.root == first.root
    assert again.read("code.py") == b"x = 1\n"


def test_a_folder_that_opens_and_will_not_be_listed_is_named_like_one_that_does_not_open() -> None:
    """The kernel keeps such ones, for root too; the walk goes on behind it."""
    with suppress(OSError):
        os.listdir("/proc/1/map_files")
        pytest.skip("everything may be listed here")
    with Beneath(Path("/proc/1")) as folder:
        found = {each.path: each.uncovered for each in folder.walk() if "/" not in each.path}
    assert found["map_files"] == "may not be read"
    assert "status" in found
