"""The sandbox, on real processes: what cannot be done inside, and that a tree always ends whole.

Every claim is tried at level 3 and, where level 1 makes it too, at level 1.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from state.errors import SandboxUnavailable
from tools.sandbox import Completed, Limits, ProcessEnded, Sandbox, choose_sandbox, probe
from tools.sandbox.bubblewrap import Bubblewrap, end_forsaken
from tools.sandbox.local import Local
from tools.sandbox.processes import holders
from tools.sandbox.selftest import self_test
from tools.workspace import Workspace

ENDED = 1.0
"""Seconds: a tree is dead that long after its timeout."""
SLACK = 4.0
"""Seconds that a loaded machine may add before a test calls it a failure."""


@pytest.fixture
async def walled() -> Sandbox:
    try:
        return await choose_sandbox(unsafe_local=False)
    except SandboxUnavailable as error:
        pytest.skip(str(error))


@pytest.fixture(params=[3, 1])
async def sandbox(request: pytest.FixtureRequest) -> Sandbox:
    if request.param == 1:
        return Local()
    try:
        return await choose_sandbox(unsafe_local=False)
    except SandboxUnavailable as error:
        pytest.skip(str(error))


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    root, repository = tmp_path / "attempt" / "workspace", tmp_path / 'it\'s a "repository"'
    root.mkdir(parents=True)
    (repository / ".git").mkdir(parents=True)
    (repository / ".git" / "config").write_text("config")
    (repository / "node_modules").mkdir()
    (repository / "node_modules" / "library").write_text("library")
    (root / "file").write_text("workspace")
    (repository / "file").write_text("original")
    return Workspace(root, repository)


async def shell(sandbox: Sandbox, workspace: Workspace, script: str, **limits: float) -> Completed:
    return await sandbox.run(["sh", "-c", script], workspace=workspace, limits=Limits(**{"timeout": 20, **limits}))  # type: ignore[arg-type]


async def test_output_exit_code_and_input(sandbox: Sandbox, workspace: Workspace) -> None:
    """stdout and stderr come merged in order; stdin is what was given; the environment is clean."""
    os.environ["DEVFIX_TEST_SECRET"] = "leak"  # noqa: S105
    try:
        done = await sandbox.run(
            ["sh", "-c", "cat; echo b >&2; echo c; echo $ASKED$DEVFIX_TEST_SECRET; exit 7"],
            workspace=workspace,
            limits=Limits(timeout=20),
            stdin=b"a\n",
            env={"ASKED": "asked"},
        )
    finally:
        del os.environ["DEVFIX_TEST_SECRET"]
    assert (done.exit_code, done.output, done.reason) == (7, "a\nb\nc\nasked\n", None)
    assert not done.timed_out
    assert not done.truncated


async def test_a_command_that_does_not_exist(sandbox: Sandbox, workspace: Workspace) -> None:
    """Exit code 127 and a reason, not an exception."""
    done = await sandbox.run(["no-such-command"], workspace=workspace, limits=Limits(timeout=20))
    assert done.exit_code == 127
    assert done.reason is not None
    assert "no-such-command" in done.reason


async def test_death_by_a_signal_is_told(sandbox: Sandbox, workspace: Workspace) -> None:
    """As shells do."""
    assert (await shell(sandbox, workspace, "kill -SEGV $$")).exit_code == 128 + signal.SIGSEGV


async def test_a_throw_away_view_leaves_nothing(sandbox: Sandbox, workspace: Workspace) -> None:
    """Writes, deletions and renames are seen by the command alone; the next one starts anew."""
    script = "echo new > made; mkdir d; rm file; ls; chmod 000 d"
    first, second = await shell(sandbox, workspace, script), await shell(sandbox, workspace, script)
    assert first.output == second.output
    assert "made" in first.output.split()
    assert "file" not in first.output.split()
    assert sorted(os.listdir(workspace.root)) == ["file"]
    assert os.listdir(workspace.root.parent) == ["workspace"]


async def test_keep_writes_to_the_workspace(sandbox: Sandbox, workspace: Workspace) -> None:
    """Only what the command wrote stays: no empty folder where something was mounted or linked."""
    done = await sandbox.run(
        ["sh", "-c", "cat node_modules/library; echo kept > made"],
        workspace=workspace,
        limits=Limits(timeout=20),
        keep=True,
    )
    assert done.output == "library"
    assert sorted(os.listdir(workspace.root)) == ["file", "made"]
    assert os.listdir(workspace.root.parent) == ["workspace"]


async def test_no_git_folder_can_be_planted(walled: Sandbox, workspace: Workspace) -> None:
    """Hooks and configuration that a command leaves would wait for a git outside the sandbox."""
    shutil.rmtree(workspace.repository / ".git")
    done = await walled.run(
        ["sh", "-c", "mkdir .git; echo x > .git/config; echo kept > made"],
        workspace=workspace,
        limits=Limits(timeout=20),
        keep=True,
    )
    assert "Read-only file system" in done.output
    assert sorted(os.listdir(workspace.root)) == ["file", "made"]


async def test_trouble_before_the_command_is_one_sentence(sandbox: Sandbox, workspace: Workspace) -> None:
    """A workspace that is gone, a command that can't be one: nothing ran, and nothing is left."""
    gone = Workspace(workspace.root.parent / "gone", workspace.repository)
    for place, command in ((gone, ["true"]), (workspace, []), (workspace, ["a\0b"]), (workspace, ["x" * 10_000_000])):
        with pytest.raises(SandboxUnavailable) as caught:
            await sandbox.run(command, workspace=place, limits=Limits(timeout=20))
        assert "\n" not in str(caught.value)
    assert os.listdir(workspace.root.parent) == ["workspace"]


async def test_paths_given_by_the_sandbox_reach_the_view(sandbox: Sandbox, workspace: Workspace) -> None:
    """`path` is right for arguments, environment and output, at each level; undecodable output is replaced."""
    done = await sandbox.run(
        ["sh", "-c", 'cat "$1" "$PLACE"; pwd; printf "\\377"', "sh", sandbox.path(workspace, "file")],
        workspace=workspace,
        limits=Limits(timeout=20),
        env={"PLACE": sandbox.path(workspace, "file")},
    )
    assert done.output == f"workspaceworkspace{sandbox.path(workspace)}\n\ufffd"


async def test_the_workspace_is_seen_where_the_original_lies(walled: Sandbox, workspace: Workspace) -> None:
    """The original is not there; its .git and dependency folders are, read-only."""
    done = await shell(
        walled,
        workspace,
        'pwd; cat file .git/config node_modules/library; touch .git/x; touch node_modules/x; ls "$OLDPWD/.."',
    )
    assert done.output.splitlines()[0] == str(workspace.repository)
    assert "workspaceconfiglibrary" in done.output
    assert done.output.count("Read-only file system") == 2
    assert "original" not in done.output


async def test_a_repository_behind_a_link_is_seen_at_both_paths(sandbox: Sandbox, workspace: Workspace) -> None:
    """The path that the user gave, and the real one that tools wrote down."""
    link = workspace.repository.with_name("link")
    link.symlink_to(workspace.repository)
    behind = Workspace(workspace.root, link)
    done = await sandbox.run(
        ["sh", "-c", 'cat "$1"; pwd -P', "sh", sandbox.path(behind, "file")],
        workspace=behind,
        limits=Limits(timeout=20),
    )
    real = workspace.root if sandbox.level == 1 else workspace.repository
    assert done.output == f"workspace{real}\n"


@pytest.mark.parametrize(
    "script", ["while :; do echo y; done", "sleep 60", "trap '' TERM INT HUP; while :; do sleep 1; done"]
)
async def test_b104_a_hanging_command_ends_within_its_limit(
    sandbox: Sandbox, workspace: Workspace, script: str
) -> None:
    """Printing for ever, sleeping, ignoring every signal: the tool returns, and says why."""
    began = time.monotonic()
    done = await shell(sandbox, workspace, script, timeout=1, output_bytes=1000)
    assert time.monotonic() - began < 1 + ENDED + SLACK
    assert done.timed_out
    assert done.exit_code is None
    assert done.reason == "it ran longer than 1 s and was stopped"
    assert len(done.output) < 1200


DAEMONS = """
trap '' TERM HUP INT
(sh -c 'trap "" TERM; sleep 600' &)
setsid sh -c 'trap "" TERM HUP; (setsid sleep 600 &) ; sleep 600' &
"""


@pytest.mark.parametrize("ending", ["sleep 600", "exit 0"])
async def test_b104_no_child_outlives_its_command(sandbox: Sandbox, workspace: Workspace, ending: str) -> None:
    """Children that ignore TERM, fork twice and leave the session are dead when `run` returns."""
    mark = secrets.token_hex(8)
    await sandbox.run(
        ["sh", "-c", DAEMONS + ending], workspace=workspace, limits=Limits(timeout=1), env={"TEST_MARK": mark}
    )
    assert holders(f"TEST_MARK={mark}") == []


async def test_b104_killing_the_supervisor_frees_nobody(workspace: Workspace) -> None:
    """At level 1 the command can kill what watches it; what it leaves behind is found by its mark."""
    for script in ("kill -KILL $PPID", "kill -STOP $PPID"):
        mark = secrets.token_hex(8)
        done = await Local().run(
            ["sh", "-c", f"(setsid sleep 600 &) ; {script}; sleep 600"],
            workspace=workspace,
            limits=Limits(timeout=1),
            env={"TEST_MARK": mark},
        )
        assert done.exit_code is None
        assert holders(f"TEST_MARK={mark}") == []


async def test_cancelling_ends_the_tree(sandbox: Sandbox, workspace: Workspace) -> None:
    """The cancellation comes out when nothing of the tree lives, and the view is gone."""
    mark = secrets.token_hex(8)
    task = asyncio.create_task(
        sandbox.run(
            ["sh", "-c", DAEMONS + "sleep 600"],
            workspace=workspace,
            limits=Limits(timeout=60),
            env={"TEST_MARK": mark},
        )
    )
    await _until(lambda: len(holders(f"TEST_MARK={mark}")) >= 5)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert holders(f"TEST_MARK={mark}") == []
    assert os.listdir(workspace.root.parent) == ["workspace"]


@pytest.mark.parametrize("delay", [0.0, 0.001, 0.005, 0.01, 0.02, 0.05])
async def test_cancelling_at_any_moment_leaves_nothing(sandbox: Sandbox, workspace: Workspace, delay: float) -> None:
    """Not a process, not a folder, not a descriptor, also in the middle of the set-up."""
    await shell(sandbox, workspace, "true")
    descriptors = len(os.listdir("/proc/self/fd"))
    mark = secrets.token_hex(8)
    task = asyncio.create_task(
        sandbox.run(["sleep", "600"], workspace=workspace, limits=Limits(timeout=60), env={"TEST_MARK": mark})
    )
    await asyncio.sleep(delay)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.sleep(0)
    assert holders(f"TEST_MARK={mark}") == []
    assert os.listdir(workspace.root.parent) == ["workspace"]
    assert len(os.listdir("/proc/self/fd")) <= descriptors


HOST = """
import asyncio, sys
from pathlib import Path
from tools.sandbox import Limits, choose_sandbox
from tools.sandbox.local import Local
from tools.workspace import Workspace

async def main():
    sandbox = Local() if sys.argv[1] == "1" else await choose_sandbox(unsafe_local=False)
    workspace = Workspace(Path(sys.argv[2]), Path(sys.argv[3]))
    limits, env = Limits(timeout=60), {"TEST_MARK": sys.argv[4]}
    await sandbox.run(["sh", "-c", sys.argv[5]], workspace=workspace, limits=limits, env=env)

asyncio.run(main())
"""


async def test_the_tree_dies_with_devfix(sandbox: Sandbox, workspace: Workspace) -> None:
    """SIGKILL to the process that started it ends the sandboxed tree; the next run removes the view."""
    mark = secrets.token_hex(8)
    host = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", HOST, str(sandbox.level)),
        *(str(workspace.root), str(workspace.repository), mark, DAEMONS + "sleep 600"),
        cwd=Path(__file__).parents[2],
    )
    await _until(lambda: len(holders(f"TEST_MARK={mark}")) >= 5)
    host.kill()
    await host.wait()
    await _until(lambda: not holders(f"TEST_MARK={mark}"))
    (left,) = [path for path in workspace.root.parent.iterdir() if path != workspace.root]
    os.utime(left, (0, 0))
    await shell(sandbox, workspace, "true")
    assert os.listdir(workspace.root.parent) == ["workspace"]


async def test_a_sandbox_without_its_launcher_is_ended(walled: Sandbox, tmp_path: Path) -> None:
    """Killed before it has asked the kernel to end its tree with it; a sandbox whose launcher lives is left alone."""
    assert isinstance(walled, Bubblewrap)
    program = tmp_path / "bwrap"
    program.symlink_to(walled.program)

    async def launched() -> tuple[asyncio.subprocess.Process, str]:
        mark = f"TEST_MARK={secrets.token_hex(8)}"
        command = [program, "--unshare-pid", "--unshare-user", "--ro-bind", "/", "/", "--dev", "/dev"]
        process = await asyncio.create_subprocess_exec(*command, "--", "env", mark, "sleep", "600")
        await _until(lambda: len(holders(mark)) == 1)
        return process, mark

    (living, its_mark), (dying, mark) = await launched(), await launched()
    dying.kill()
    await dying.wait()
    assert len(holders(mark)) == 1
    end_forsaken(program)
    await _until(lambda: not holders(mark))
    assert len(holders(its_mark)) == 1
    living.kill()
    await living.wait()
    end_forsaken(program)
    await _until(lambda: not holders(its_mark))


async def test_limits_of_disk(sandbox: Sandbox, workspace: Workspace) -> None:
    """Many files that are each small enough are stopped together."""
    script = "i=0; while :; do i=$((i+1)); head -c 5000000 /dev/zero > f$i; done"
    done = await shell(sandbox, workspace, script, disk_mb=40)
    assert done.reason == "it wrote more than 40 MB and was stopped"
    assert done.exit_code is None
    assert not done.timed_out


async def test_limits_of_one_file(sandbox: Sandbox, workspace: Workspace) -> None:
    """The writer gets SIGXFSZ."""
    done = await shell(sandbox, workspace, "exec head -c 9000000 /dev/zero > big", file_mb=4)
    assert done.exit_code == 128 + signal.SIGXFSZ


async def test_limits_of_processes(sandbox: Sandbox, workspace: Workspace) -> None:
    """A fork bomb is held by the kernel, or, for root, stopped by the watch."""
    script = "for i in $(seq 300); do sleep 20 & done; wait"
    done = await shell(sandbox, workspace, script, processes=60)
    stopped = done.reason == "it ran more than 60 processes at once and was stopped"
    assert stopped or "fork" in done.output


async def test_limits_of_memory(sandbox: Sandbox, workspace: Workspace) -> None:
    """One process meets its own limit, many together are stopped by the watch."""
    one = "import sys; x = b'x' * (400 << 20)"
    done = await sandbox.run(
        *([[_python(), "-I", "-S", "-c", one]]),
        workspace=workspace,
        limits=Limits(timeout=20, memory_mb=200),
        mounts=_mounts(),
    )
    assert "MemoryError" in done.output
    many = "import os, time\nfor _ in range(4): os.fork()\nx = b'x' * (60 << 20)\ntime.sleep(20)"
    done = await sandbox.run(
        [_python(), "-I", "-S", "-c", many],
        workspace=workspace,
        limits=Limits(timeout=20, memory_mb=200),
        mounts=_mounts(),
    )
    assert done.reason == "its processes used more than 200 MB of memory and were stopped"


async def test_a_long_lived_child_is_spoken_to_in_lines(sandbox: Sandbox, workspace: Workspace) -> None:
    """It answers, complains apart from its answers, and is dead afterwards, with all of its children."""
    mark = secrets.token_hex(8)
    script = DAEMONS + "while read line; do echo got $line; echo heard >&2; done"
    child = sandbox.start(["sh", "-c", script], workspace=workspace, limits=Limits(timeout=30), env={"TEST_MARK": mark})
    async with child as process:
        for word in (b"one", b"two"):
            await process.write_line(word)
            assert await process.read_line(20) == b"got " + word
        await _until(lambda: process.output == "heard\nheard\n")
        with pytest.raises(TimeoutError):
            await process.read_line(0.05)
        await process.write_line(b"three")
        assert await process.read_line(20) == b"got three"
    assert holders(f"TEST_MARK={mark}") == []
    assert os.listdir(workspace.root.parent) == ["workspace"]


async def test_a_long_lived_child_that_ends_is_told(sandbox: Sandbox, workspace: Workspace) -> None:
    """By its own will with its exit code, at its limit with the reason."""
    async with sandbox.start(["sh", "-c", "exit 3"], workspace=workspace, limits=Limits(timeout=20)) as process:
        with pytest.raises(ProcessEnded, match="exit code 3"):
            await process.read_line(20)
    async with sandbox.start(["sleep", "600"], workspace=workspace, limits=Limits(timeout=0.5)) as process:
        with pytest.raises(ProcessEnded, match="it ran longer"):
            await process.read_line(20)
        assert process.reason == "it ran longer than 0.5 s and was stopped"
    async with sandbox.start(["no-such"], workspace=workspace, limits=Limits(timeout=20)) as process:
        with pytest.raises(ProcessEnded, match="no-such"):
            await process.read_line(20)


async def test_an_error_of_the_caller_ends_the_long_lived_child(sandbox: Sandbox, workspace: Workspace) -> None:
    """And comes out as it was."""
    mark = secrets.token_hex(8)
    with pytest.raises(ZeroDivisionError):
        async with sandbox.start(
            ["sleep", "600"], workspace=workspace, limits=Limits(timeout=30), env={"TEST_MARK": mark}
        ):
            raise ZeroDivisionError
    assert holders(f"TEST_MARK={mark}") == []


async def test_the_self_test_passes_and_is_reported(walled: Sandbox) -> None:
    """`doctor` names the program and its version."""
    report = await probe()
    assert (report.level, walled.level) == (3, 3)
    assert report.program is not None
    assert report.version is not None
    assert "max_user_namespaces" in report.user_namespaces


async def test_the_self_test_sees_a_hole(walled: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sandbox with the host's home, network and processes in it is not trusted, and each hole is named."""
    assert isinstance(walled, Bubblewrap)
    hole = Bubblewrap(program=walled.program, version=walled.version)
    profile = hole._profile

    def with_holes(*arguments: object) -> object:
        found = profile(*arguments)  # type: ignore[arg-type]
        found.arguments.remove("--remount-ro") if found.arguments[-30:].count("--remount-ro") > 1 else None
        found.add("--share-net", "--bind", str(Path.home()), str(Path.home()))
        found.arguments = [each for each in found.arguments if each != "--disable-userns"]
        return found

    monkeypatch.setattr(hole, "_profile", with_holes)
    found = await self_test(hole)
    assert not found.passed
    assert "read a file of the user's" in found.escaped
    assert "reach the host's network" in found.escaped
    assert "reach an abstract socket" in found.escaped


async def test_without_a_working_sandbox_nothing_runs(workspace: Workspace, tmp_path: Path) -> None:
    """A bwrap that can't make namespaces is one clear sentence, never a downgrade."""
    refusing = tmp_path / "bwrap"
    refusing.write_text("#!/bin/sh\necho 'bwrap: setting up uid map: Permission denied' >&2\nexit 1\n")
    refusing.chmod(0o755)
    broken = Bubblewrap(program=refusing, version=(0, 11, 0))
    assert "AppArmor" in ((await self_test(broken)).failure or "")
    with pytest.raises(SandboxUnavailable, match="AppArmor"):
        await shell(broken, workspace, "true")
    async with broken.start(["true"], workspace=workspace, limits=Limits(timeout=20)) as process:
        with pytest.raises(SandboxUnavailable, match="AppArmor"):
            await process.read_line(20)


async def test_an_old_bwrap_works_on_copies(walled: Sandbox, workspace: Workspace) -> None:
    """Without overlays a view is a copy, with the same promise."""
    assert isinstance(walled, Bubblewrap)
    old = Bubblewrap(program=walled.program, version=(0, 8, 0))
    os.mkfifo(workspace.root / "pipe")
    (workspace.root / "link").symlink_to("/nowhere")
    done = await shell(old, workspace, "cat file; rm file; echo new > made; ls -d link")
    assert done.output == "workspacelink\n"
    assert sorted(os.listdir(workspace.root)) == ["file", "link", "pipe"]


async def test_an_ordinary_user_gets_the_same(tmp_path: Path) -> None:
    """When the tests run as root: the self-test and a fork bomb once more without privileges."""
    if os.getuid() != 0:
        pytest.skip("the tests run as an ordinary user already")
    script = """
import asyncio
from pathlib import Path
from tools.sandbox import Limits, choose_sandbox, probe
from tools.workspace import Workspace

async def main():
    report = await probe()
    assert report.level == 3 and report.overlay, report
    sandbox = await choose_sandbox(unsafe_local=False)
    Path("w/ws").mkdir(parents=True); Path("w/orig").mkdir()
    workspace = Workspace(Path("w/ws").absolute(), Path("w/orig").absolute())
    bomb = "mkdir -m 000 closed; for i in $(seq 300); do sleep 2 & done; wait"
    done = await sandbox.run(["sh", "-c", bomb], workspace=workspace, limits=Limits(timeout=20, processes=50))
    assert done.timed_out is False and [p.name for p in Path("w").iterdir() if p.name[0] == "."] == [], done

asyncio.run(main())
"""
    # this user needs an interpreter, a source tree and a bwrap that are not closed to it
    python = shutil.which("python3", path="/usr/bin:/usr/local/bin")
    source = Path(__file__).parents[2]
    paths = [str(source), str(Path(pytest.__file__).parents[1])]
    home = tmp_path / "home"
    home.mkdir()
    os.chown(home, 65534, 65534)
    for folder in (tmp_path, *tmp_path.parents):
        if folder.is_relative_to(tempfile.gettempdir()) and folder.stat().st_uid == os.getuid():
            folder.chmod(folder.stat().st_mode | 0o055)
    user = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    env = {"PYTHONPATH": ":".join(paths), "HOME": str(home), "PATH": os.environ["PATH"]}
    able = "import sys, tools.sandbox; sys.exit(sys.version_info < (3, 11))"
    if python is None or await _status([*user, python, "-c", able], env) != 0:
        pytest.skip("no interpreter, or no source tree, that an ordinary user could use")
    done = await asyncio.to_thread(
        subprocess.run, [*user, python, "-c", script], cwd=home, env=env, capture_output=True, text=True, timeout=90
    )
    assert done.returncode == 0, done.stderr


async def _status(command: list[str], env: dict[str, str]) -> int:
    process = await asyncio.create_subprocess_exec(*command, env=env, cwd="/", stderr=subprocess.DEVNULL)
    return await process.wait()


async def test_the_network_is_reached_only_when_allowed(walled: Sandbox, workspace: Workspace) -> None:
    """And the sandbox says which it is."""
    open_one = await choose_sandbox(unsafe_local=False, allow_network=True)
    assert (open_one.allow_network, walled.allow_network) == (True, False)
    assert "network allowed" in open_one.description
    with socket.create_server(("127.0.0.1", 0)) as door:
        script = f"import socket; socket.create_connection(('127.0.0.1', {door.getsockname()[1]}), 5)"
        codes = [
            (
                await sandbox.run(
                    [_python(), "-I", "-S", "-c", script],
                    workspace=workspace,
                    limits=Limits(timeout=20),
                    mounts=_mounts(),
                )
            ).exit_code
            for sandbox in (open_one, walled)
        ]
    assert codes == [0, 1]


async def test_the_event_loop_is_never_blocked(sandbox: Sandbox, workspace: Workspace) -> None:
    """The dev server refuses blocking calls in async code."""
    blockbuster = pytest.importorskip("blockbuster", reason="comes with the dev server")
    with blockbuster.blockbuster_ctx():
        for keep in (False, True):
            done = await sandbox.run(["cat"], workspace=workspace, limits=Limits(timeout=20), stdin=b"x", keep=keep)
            assert done.output == "x"
        async with sandbox.start(["cat"], workspace=workspace, limits=Limits(timeout=20)) as process:
            await process.write_line(b"x")
            assert await process.read_line(20) == b"x"
        if sandbox.level == 3:
            assert isinstance(sandbox, Bubblewrap)
            assert (await self_test(sandbox)).passed


def _python() -> str:
    return str(Path(sys._base_executable).resolve())  # type: ignore[attr-defined]


def _mounts() -> dict[Path, Path]:
    prefix = Path(sys.base_prefix).resolve()
    return {} if prefix.is_relative_to("/usr") else {prefix: prefix}


async def _until(true: object, *, seconds: float = 20.0) -> None:
    assert callable(true)
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "it did not come about in time"
        await asyncio.sleep(0.02)
