"""What `devfix doctor` looks at: whether DevFix can work on this machine, and what is missing where it can't."""

from __future__ import annotations

import asyncio
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psycopg

from scripts.bootstrap import Application
from state import embedded
from state.errors import DevfixError
from state.ids import short
from state.outward import OutwardSettings
from state.settings import settings_file, unknown_variables
from tools.git import git_program
from tools.interpreter import find_interpreter
from tools.outward import outward_tools
from tools.sandbox import probe

LEAST_FREE_MB = 500
_ENDPOINT = ("OPENAI_API_KEY", "OPENAI_BASE_URL")


async def diagnose(application: Application, complaints: Sequence[str]) -> dict[str, Any]:
    """Each part with `ok` and what was found; `ok` of the whole says whether a run can work.

    The application is made of the settings that can be used; the complaints are about the others.
    """
    home = application.settings.home
    parts: dict[str, Any] = {
        "settings": {
            "ok": not complaints,
            "where": str(settings_file()),
            "why": "; ".join(complaints) or None,
            "unknown_variables": unknown_variables(application.settings),
        },
        "database": await _database(application),
        "sandbox": await _sandbox(),
        "interpreter": await asyncio.to_thread(_interpreter, home),
        "disk": await asyncio.to_thread(_disk, home),
        "models": await _models(application),
    }
    return {
        "ok": all(part["ok"] for part in parts.values()),
        "devfix": version("devfix"),
        "python": f"{platform.python_version()} ({sys.executable})",
        "platform": platform.platform(),
        "home": str(home),
        **parts,
        "git": await asyncio.to_thread(_git),
        "outside": await _outside(application),
    }


async def _database(application: Application) -> dict[str, Any]:
    settings = application.settings
    where = "DEVFIX_DATABASE_URL" if settings.database_url else str(settings.home / "postgres")
    facts: dict[str, Any] = {"kind": "yours" if settings.database_url else "embedded", "where": where}
    try:
        async with application.database.transaction() as connection:
            await connection.execute("SELECT 1")
            number = connection.info.server_version
    except (DevfixError, psycopg.Error) as error:
        return {"ok": False, **facts, "why": str(error)}
    facts |= {"version": f"{number // 10000}.{number % 10000}", "schema": settings.database_schema}
    if not settings.database_url:
        facts["pid"] = (await embedded.status(settings.home)).pid
    return {"ok": True, **facts}


async def _sandbox() -> dict[str, Any]:
    found = asdict(await probe())
    return {"ok": found["level"] is not None, **found}


def _interpreter(home: Path) -> dict[str, Any]:
    """The Python that a repository without an environment of its own gets."""
    try:
        found = find_interpreter(home / "no-repository", python=None, cache=home / "interpreters")
    except (DevfixError, OSError) as error:
        return {"ok": False, "why": str(error)}
    return {"ok": True, "python": str(found.python)}


def _disk(home: Path) -> dict[str, Any]:
    there = next(each for each in (home, *home.parents) if each.exists())
    free = shutil.disk_usage(there).free // 2**20
    writable = os.access(there, os.W_OK)
    return {"ok": writable and free >= LEAST_FREE_MB, "where": str(there), "free_mb": free, "writable": writable}


async def _models(application: Application) -> dict[str, Any]:
    """The models that a run asks by default, and whether an endpoint is set up besides; no key is ever printed."""
    settings = application.settings
    name = settings.model
    known = {"fallbacks": settings.fallback_models, **{each: bool(os.environ.get(each)) for each in _ENDPOINT}}
    try:
        name = name or application.services.job(settings.job).default_model
        await application.services.chain.check(name)
    except DevfixError as error:
        return {"ok": False, "default": name, "why": str(error), **known}
    return {"ok": True, "default": name, **known}


def _git() -> dict[str, Any]:
    program = git_program()
    if program is None:
        return {"ok": False, "why": "git is not installed; plain folders work, --commit does not"}
    try:
        done = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return {"ok": False, "why": f"{program}: {error}"}
    return {"ok": done.returncode == 0, "program": program, "version": done.stdout.strip().removeprefix("git version ")}


async def _outside(application: Application) -> dict[str, Any]:
    """What is set up of the world outside, by what promise, which secrets are not there, and what could not be told."""
    settings = application.settings
    tools = outward_tools(settings)
    named = [name for name in OutwardSettings.model_fields if name.endswith("_env")]
    secrets = [value for name in named if (value := getattr(settings, name))]
    unset = [name for name in secrets if not os.environ.get(name)]
    try:
        letters = await application.services.outbox.troubled()
    except (DevfixError, psycopg.Error):
        letters = []  # the database is told of in a part of its own
    troubled = [f"{short(each.run_id)} {each.call_id} ({each.state}): {each.trouble}" for each in letters]
    return {
        "ok": not unset and not troubled,
        "tools": {each.name: "exactly once" if each.idempotent or each.verify else "at most once" for each in tools},
        "notify": settings.notify,
        "secrets": {name: name not in unset for name in secrets},
        "not_told": troubled,
    }
