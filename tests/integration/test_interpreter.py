"""The user's code runs in the right Python, imports the workspace, and never anything of DevFix's."""

from __future__ import annotations

import asyncio
import os
import sys
import venv
from pathlib import Path

import pytest

from state.errors import Refused, SandboxUnavailable
from tools.interpreter import Interpreter, find_interpreter
from tools.sandbox import Completed, Limits, Sandbox, choose_sandbox
from tools.sandbox.local import Local
from tools.workspace import Workspace

CHECK = """
import importlib.util, os, package
def test_the_workspace_is_imported():
    assert package.WHERE == "workspace", package.__file__
def test_nothing_of_devfix_is_importable():
    for name in ("graph", "state", "scripts", "langgraph", "langchain_core", "pydantic", "psycopg"):
        spec = importlib.util.find_spec(name)  # the base interpreter may have its own
        assert spec is None or not spec.origin.startswith(os.environ["DEVFIX_PREFIX"]), spec
def test_own_packages_win():
    import tools
    assert tools.MINE
"""

FINDER = """
import sys
from importlib.machinery import PathFinder
from importlib.util import spec_from_file_location
from pathlib import Path
MAPPING: dict[str, str] = {mapping!r}
class _EditableFinder:
    @classmethod
    def find_spec(cls, fullname, path=None, target=None):
        for name, place in MAPPING.items():
            if fullname == name or fullname.startswith(name + "."):
                parts = fullname[len(name):].strip(".").split(".")
                base = Path(place, *[part for part in parts if part])
                if (base / "__init__.py").is_file():
                    return spec_from_file_location(fullname, base / "__init__.py")
        return None
def install():
    sys.meta_path.append(_EditableFinder)
"""
"""What setuptools writes for an editable install of a flat or mapped layout, shortened."""


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
    root, repository = tmp_path / "attempt" / "workspace", tmp_path / 'the "repository" isn\'t plain'
    for place, where in ((root, "workspace"), (repository, "original")):
        for package, text in (("src/package", f"WHERE = {where!r}\n"), ("tools", "MINE = True\n")):
            (place / package).mkdir(parents=True)
            (place / package / "__init__.py").write_text(text)
        (place / "test_check.py").write_text(CHECK)
    return Workspace(root, repository)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


def make_venv(folder: Path, **files: str) -> Path:
    """An environment without pip, with files in its site-packages; the name's `__` stands for a dot."""
    venv.create(folder, symlinks=True)
    (packages,) = folder.glob("lib/python3*/site-packages")
    for name, text in files.items():
        place = packages / name.replace("__", ".")
        place.write_text(text)
    return packages


async def run(sandbox: Sandbox, workspace: Workspace, interpreter: Interpreter, *command: str, **env: str) -> Completed:
    return await sandbox.run(
        command,
        workspace=workspace,
        limits=Limits(timeout=60),
        env={**interpreter.environment(), "DEVFIX_PREFIX": sys.prefix, **env},
        mounts=interpreter.mounts,
    )


async def found(workspace: Workspace, cache: Path, *, python: str | None = None, **environ: str) -> Interpreter:
    return await asyncio.to_thread(
        lambda: find_interpreter(workspace.repository, python=python, cache=cache, environ=environ)
    )


@pytest.mark.parametrize(
    ("bare", "command"),
    [
        (True, ["pytest", "-q"]),
        (True, ["python", "-m", "pytest", "-q"]),
        (True, ["python3", "-m", "pytest"]),
        (False, ["pytest", "-q"]),
    ],
)
async def test_a_machine_with_nothing_has_pytest(
    sandbox: Sandbox, workspace: Workspace, cache: Path, tmp_path: Path, command: list[str], bare: bool
) -> None:
    """The base interpreter, or a bare environment, runs the tests, with pytest and none of our packages."""
    (workspace.root / "conftest.py").write_text(
        "import sys, pathlib\nhere = pathlib.Path(__file__).parent\nsys.path[:0] = [str(here), str(here / 'src')]\n"
    )
    if bare:
        make_venv(tmp_path / "bare")
    interpreter = await found(workspace, cache, python=str(tmp_path / "bare") if bare else None)
    done = await run(sandbox, workspace, interpreter, *command)
    assert "3 passed" in done.output, done.output
    assert done.exit_code == 0


async def test_an_editable_install_by_path_leads_to_the_workspace(
    sandbox: Sandbox, workspace: Workspace, cache: Path
) -> None:
    """`pip install -e` wrote the original's path into a .pth file of the repository's own environment."""
    make_venv(workspace.repository / ".venv", package__pth=f"{workspace.repository / 'src'}\n")
    interpreter = await found(workspace, cache)
    assert interpreter.python == workspace.repository / ".venv/bin/python"
    done = await run(sandbox, workspace, interpreter, "python", "-m", "pytest", "-q")
    assert "3 passed" in done.output, done.output


@pytest.mark.parametrize("kind", ["str", "path"])
async def test_an_editable_install_by_finder_leads_to_the_workspace(
    sandbox: Sandbox, workspace: Workspace, cache: Path, kind: str
) -> None:
    """Newer setuptools installs an import finder with a table of paths."""
    finder = FINDER.format(mapping={"package": str(workspace.repository / "src" / "package")})
    if kind == "path":
        finder = finder.replace("def install", "MAPPING = {k: Path(v) for k, v in MAPPING.items()}\ndef install")
    make_venv(
        workspace.repository / ".venv",
        editable_finder__py=finder,
        package__pth="import editable_finder; editable_finder.install()\n",
    )
    interpreter = await found(workspace, cache)
    done = await run(sandbox, workspace, interpreter, "python", "-m", "pytest", "-q")
    assert "3 passed" in done.output, done.output


async def test_what_still_leads_to_the_original_is_refused(sandbox: Sandbox, workspace: Workspace, cache: Path) -> None:
    """A path to the original that appears later is the workspace (level 3) or an error (level 1), never the
    original's code."""
    interpreter = await found(workspace, cache)
    script = (
        f"import sys; sys.path.insert(0, {str(workspace.repository / 'src')!r}); import package; print(package.WHERE)"
    )
    done = await run(sandbox, workspace, interpreter, "python", "-c", script)
    if sandbox.level == 3:
        assert done.output == "workspace\n"
    else:
        assert "ImportError: package leads to the original repository" in done.output
        assert done.exit_code == 1


async def test_the_repositorys_own_pytest_wins(sandbox: Sandbox, workspace: Workspace, cache: Path) -> None:
    """Ours is only offered where there is none, and after everything else."""
    packages = make_venv(workspace.repository / "venv")
    (packages / "pytest").mkdir()
    (packages / "pytest" / "__init__.py").write_text("")
    (packages / "pytest" / "__main__.py").write_text("print('theirs')")
    interpreter = await found(workspace, cache)
    assert interpreter.env["VIRTUAL_ENV"] == str(workspace.repository / "venv")
    done = await run(sandbox, workspace, interpreter, "python", "-m", "pytest")
    assert done.output == "theirs\n"


async def test_the_users_own_sitecustomize_still_runs(sandbox: Sandbox, workspace: Workspace, cache: Path) -> None:
    """The hook makes way for it."""
    make_venv(workspace.repository / ".venv", sitecustomize__py="print('theirs')\n")
    interpreter = await found(workspace, cache)
    done = await run(
        sandbox, workspace, interpreter, "python", "-c", "import sitecustomize; print(sitecustomize.__file__)"
    )
    assert str(cache) not in done.output
    # some systems have one beside the standard library, which comes first
    assert ".venv" in done.output or f"{Path(os.__file__).parent}/sitecustomize.py" in done.output


async def test_the_environment_is_the_same_each_time(sandbox: Sandbox, workspace: Workspace, cache: Path) -> None:
    """No bytecode, fixed hashes, no user site; subprocesses of tests get the same Python."""
    interpreter = await found(workspace, cache)
    script = (
        "import subprocess, sys; f = sys.flags;"
        "print(f.dont_write_bytecode, f.hash_randomization, f.no_user_site, flush=True);"
        "subprocess.run([sys.executable, '-c', 'import pytest; print(pytest.__name__)'], check=True)"
    )
    done = await run(sandbox, workspace, interpreter, "python", "-c", script)
    assert done.output == "1 0 1\npytest\n"


async def test_devfix_in_the_users_own_environment_is_hidden(
    sandbox: Sandbox, workspace: Workspace, cache: Path
) -> None:
    """Somebody may install DevFix beside the project's own packages; they must not meet."""
    packages = make_venv(workspace.repository / ".venv", devfix__pth=f"{Path(__file__).parents[2]}\n")
    interpreter = await found(workspace, cache)
    for name in ("graph", "state"):
        done = await run(sandbox, workspace, interpreter, "python", "-c", f"import {name}")
        assert f"No module named '{name}'" in done.output
    (packages / "graph").mkdir()
    (packages / "graph" / "__init__.py").write_text("print('theirs')")
    done = await run(sandbox, workspace, interpreter, "python", "-c", "import graph")
    assert done.output == "theirs\n"


async def test_devfix_working_on_itself_imports_the_workspaces_packages(sandbox: Sandbox, tmp_path: Path) -> None:
    """Our own names are hidden only where they mean this installation."""
    # the workspace may lie in the original's folder, where DEVFIX_HOME does
    root = tmp_path / "attempt" / "workspace"
    (root / "graph").mkdir(parents=True)
    (root / "graph" / "__init__.py").write_text("WHERE = 'workspace'\n")
    workspace = Workspace(root, Path(__file__).parents[2])
    interpreter = await found(workspace, tmp_path / "cache", python=sys._base_executable)  # type: ignore[attr-defined]
    done = await run(sandbox, workspace, interpreter, "python", "-c", "import graph; print(graph.WHERE)")
    assert done.output == "workspace\n"


async def test_an_active_environment_is_used_unless_it_is_ours(
    workspace: Workspace, cache: Path, tmp_path: Path
) -> None:
    """After the repository's own, before the base interpreter."""
    make_venv(tmp_path / "active")
    assert (
        await found(workspace, cache, VIRTUAL_ENV=str(tmp_path / "active"))
    ).python == tmp_path / "active/bin/python"
    base = await found(workspace, cache, VIRTUAL_ENV=sys.prefix)
    assert base.python == Path(sys._base_executable)  # type: ignore[attr-defined]
    (workspace.repository / ".venv" / "bin").mkdir(parents=True)
    (workspace.repository / ".venv" / "bin" / "python").symlink_to("/gone/python")
    assert (await found(workspace, cache)).python == base.python


async def test_the_python_option_names_a_program_or_an_environment(
    workspace: Workspace, cache: Path, tmp_path: Path
) -> None:
    """Nothing else; the sentence says what is wanted."""
    make_venv(tmp_path / "chosen")
    for name in (tmp_path / "chosen", tmp_path / "chosen/bin/python"):
        interpreter = await found(workspace, cache, python=str(name))
        assert interpreter.python == tmp_path / "chosen/bin/python"
    wrapper = tmp_path / "wrapper"
    wrapper.write_text("#!/bin/sh\nexec python\n")
    wrapper.chmod(0o755)
    for name in ("no-such-python", str(wrapper), str(tmp_path)):
        with pytest.raises(Refused, match="names no interpreter"):
            await found(workspace, cache, python=name)


async def test_a_python_that_is_too_old_is_refused(workspace: Workspace, cache: Path) -> None:
    """It could not take the hook, so it might import the original."""
    make_venv(workspace.repository / ".venv")
    (workspace.repository / ".venv" / "pyvenv.cfg").write_text("version = 3.6.15\n")
    with pytest.raises(Refused, match=r"Python 3\.6"):
        await found(workspace, cache)


async def test_nothing_private_is_mounted(
    workspace: Workspace, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An interpreter in the user's home brings its library, not the home."""
    home = tmp_path / "home"
    (home / "bin").mkdir(parents=True)
    (home / "lib" / "python3.11").mkdir(parents=True)
    (home / "bin" / "python3.11").write_bytes(b"\x7fELF")
    (home / "bin" / "python3.11").chmod(0o755)
    monkeypatch.setenv("HOME", str(home))
    interpreter = await found(workspace, cache, python=str(home / "bin" / "python3.11"))
    assert home not in interpreter.mounts
    assert {home / "bin" / "python3.11", home / "lib" / "python3.11"} <= set(interpreter.mounts)


async def test_an_environment_around_the_repository_works_and_stays_private(
    sandbox: Sandbox, workspace: Workspace, cache: Path
) -> None:
    """`python -m venv .` one folder above the code: it is used, and what lies beside it is not shown."""
    around = workspace.repository.parent
    make_venv(around, package__pth=f"{workspace.repository / 'src'}\n")
    (around / "private").write_text("private")
    interpreter = await found(workspace, cache, VIRTUAL_ENV=str(around))
    done = await run(sandbox, workspace, interpreter, "python", "-m", "pytest", "-q")
    assert "3 passed" in done.output, done.output
    done = await run(sandbox, workspace, interpreter, "cat", str(around / "private"))
    assert (done.exit_code == 0) is (sandbox.level == 1)


async def test_two_processes_can_make_the_cache_at_once(workspace: Workspace, tmp_path: Path) -> None:
    """Each folder is made whole or not at all, and nothing half-made is left."""
    both = await asyncio.gather(*(found(workspace, tmp_path / "cache") for _ in range(4)))
    assert all(each == both[0] for each in both)
    assert not [name for name in os.listdir(tmp_path / "cache") if name.startswith(".")]
