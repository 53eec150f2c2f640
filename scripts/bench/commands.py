"""`devfix` as a process of its own, in a home and a schema that are thrown away."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from scripts.bench.loop import drop_schema, server_url
from state.settings import Settings

PROGRAM = (sys.executable, "-c", "from scripts.cli import main; main()")


class Devfix:
    """The command line, on the bench's own runs."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self.folder = folder
        self.environment = environment

    def start(self, *arguments: str, quiet: bool = False) -> subprocess.Popen[bytes]:
        """A command under way; `quiet` where it is to be killed: what it leaves behind would hold its pipes open."""
        into = subprocess.DEVNULL if quiet else subprocess.PIPE
        return subprocess.Popen(
            [*PROGRAM, *arguments],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=into,
            stderr=into,
        )

    def facts(self, *arguments: str) -> Any:
        """What a command prints with --json."""
        process = self.start(*arguments, "--json")
        return facts_of(process, seconds=120)


def facts_of(process: subprocess.Popen[bytes], *, seconds: float) -> Any:
    """The one JSON value of a command's stdout, or `error` with its sentence. Out of time, it is stopped or killed."""
    try:
        out, error = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGTERM)
        try:
            out, error = process.communicate(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            out, error = process.communicate()
    try:
        return json.loads(out)
    except ValueError:
        return {"error": (error.decode(errors="replace").strip().splitlines() or [""])[-1], "code": process.returncode}


@asynccontextmanager
async def devfix(settings: Settings) -> AsyncIterator[Devfix]:
    """On the same PostgreSQL as all else; nothing is left of it afterwards."""
    schema = f"devfix_bench_{uuid.uuid4().hex[:8]}"
    url = await server_url(settings)
    with tempfile.TemporaryDirectory(prefix="devfix-bench-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        kept = {key: value for key, value in os.environ.items() if not key.startswith("DEVFIX_")}
        own = {"DEVFIX_HOME": str(folder / "home"), "DEVFIX_DATABASE_URL": url, "DEVFIX_DATABASE_SCHEMA": schema}
        direct = settings.database_direct_url
        try:
            yield Devfix(folder, {**kept, **own, **({"DEVFIX_DATABASE_DIRECT_URL": direct} if direct else {})})
        finally:
            await drop_schema(url, schema)
