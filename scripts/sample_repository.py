"""The sample repository that `devfix demo` works on: a small invoicing package with a real defect."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from state.errors import Refused
from tools.git import git_program

_SAMPLE = Path(__file__).parent / "sample"
_IGNORED = "__pycache__/\n*.egg-info/\n.pytest_cache/\n"
_WHEN = "2024-03-01T09:00:00+00:00"


def copy_sample(to: Path) -> Path:
    """Copy the sample to a folder that is empty or not there yet; a git repository with one commit, where git is.

    The commit's id is the same each time.

    Raises:
        Refused: the folder holds something, or can't be written, or git fails there.
    """
    try:
        to.mkdir(parents=True, exist_ok=True)
        if any(to.iterdir()):
            raise Refused(f"{to} is not empty; nothing was copied: name another folder")
        _copy_files(to)
        # Written here, because packaging passes files by whose names begin with a dot.
        (to / ".gitignore").write_text(_IGNORED)
    except OSError as problem:
        raise Refused(f"the sample can't be copied to {to}: {problem.strerror or problem}") from problem
    if program := git_program():
        _commit_all(program, to)
    return to


def _copy_files(to: Path) -> None:
    skipped = shutil.ignore_patterns("__pycache__", ".*")
    # Content alone: where DevFix is installed read-only, the copy must be writable all the same.
    shutil.copytree(_SAMPLE, to, dirs_exist_ok=True, ignore=skipped, copy_function=shutil.copyfile)


def _commit_all(program: str, folder: Path) -> None:
    who = {"NAME": "invoicekit", "EMAIL": "invoicekit@example.org", "DATE": _WHEN}
    identity = {f"GIT_{role}_{fact}": value for role in ("AUTHOR", "COMMITTER") for fact, value in who.items()}
    # Neither the caller's repository nor anybody's settings, templates or hooks have a part in this.
    environment = {
        "PATH": os.environ.get("PATH", os.defpath),
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        **identity,
    }
    for arguments in (
        ("init", "--quiet", "--template=", "--initial-branch=main"),
        ("add", "--all"),
        ("commit", "--quiet", "--message=Invoices, taxes, terms and statements"),
    ):
        done = subprocess.run(
            [program, *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise Refused(f"`git {arguments[0]}` failed in {folder}: {done.stderr.strip()}")
