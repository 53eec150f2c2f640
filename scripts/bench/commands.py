"""`devfix` as a process of its own, in a home and a schema that are thrown away."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import IO, Any

from scripts.bench.loop import drop_schema, server_url
from state.errors import Refused
from state.settings import Settings

PROGRAM = (sys.executable, "-c", "from scripts.cli import main; main()")


class Devfix:
    """The command line, on the bench's own runs."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self.folder = folder
        self.environment = environment

    def start(self, *arguments: str, into: IO[bytes] | int = subprocess.PIPE) -> subprocess.Popen[bytes]:
        """A command under way. What it says goes `into` something else than a pipe where it is to be killed: what it
        leaves behind would hold its pipes open; and where it says much and nobody reads."""
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


def settings_of(commands: Devfix) -> Settings:
    """Those with which a process reaches the same runs."""
    names = ("home", "database_url", "database_direct_url", "database_schema")
    given = {name: commands.environment.get(f"DEVFIX_{name.upper()}") for name in names}
    return Settings.model_validate({name: value for name, value in given.items() if value})


@asynccontextmanager
async def staff(commands: Devfix, number: int, *options: str) -> AsyncIterator[list[subprocess.Popen[bytes]]]:
    """So many workers at work. The list is the caller's to change: who is in it at the end is killed."""
    workers = [await asyncio.to_thread(hire, commands, *options) for _ in range(number)]
    try:
        yield workers
    finally:
        for each in workers:
            each.kill()
            each.wait()


def hire(commands: Devfix, *options: str) -> subprocess.Popen[bytes]:
    """A worker that goes on with runs. Raises Refused where it does not start."""
    log = commands.folder / f"worker-{uuid.uuid4().hex[:8]}.log"
    with log.open("wb") as said:
        worker = commands.start("worker", *options, into=said)
    while worker.poll() is None and "goes on with runs" not in log.read_text(errors="replace"):
        time.sleep(0.02)
    if worker.returncode is not None:
        raise Refused(f"a worker does not start: {log.read_text(errors='replace').strip()}")
    return worker
