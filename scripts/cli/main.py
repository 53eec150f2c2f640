"""The entry point: one process, one command, one exit code, and never a trace for what a person can cause."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Sequence
from datetime import datetime
from io import TextIOWrapper
from types import TracebackType

import typer
from typer.exceptions import TyperException

from scripts.cli.app import app
from state.errors import DevfixError

INTERRUPTED = 128 + signal.SIGINT
BROKEN_PIPE = 128 + signal.SIGPIPE


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command and end the process with its exit code."""
    sys.excepthook = _report_bug
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    sys.exit(guarded(arguments))


def guarded(arguments: Sequence[str] | None) -> int:
    """Run one command; its exit code. Raises nothing but what nobody foresaw."""
    try:
        code = _run(arguments)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read is gone (`| head`). The interpreter's own last flush must not stumble over it again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        return _sentence(f"{place}{error.strerror or error}", DevfixError.exit_code)
    except _database_errors() as error:
        first = (str(error).splitlines() or [type(error).__name__])[0]
        return _sentence(f"the database went away ({first}); every saved step is kept", DevfixError.exit_code)
    return code


def _run(arguments: Sequence[str] | None) -> int:
    try:
        # Not app(): it puts its own hook for exceptions in the place of ours, and answers a broken pipe by itself.
        command = typer.main.get_command(app)
        with command.make_context("devfix", list(sys.argv[1:] if arguments is None else arguments)) as context:
            return command.invoke(context) or 0
    except typer.Exit as done:
        return done.exit_code
    except typer.Abort:
        return INTERRUPTED
    except TyperException as error:
        where = getattr(error, "ctx", None)
        if where is not None:
            sys.stderr.write(f"{where.get_usage()}\nTry '{where.command_path} --help' for help.\n")
        return _sentence(error.format_message(), 2)
    except DevfixError as error:
        return _sentence(str(error), error.exit_code)


def _database_errors() -> tuple[type[Exception], ...]:
    """What the driver raises when a connection breaks; nothing where no database was used, so it is not loaded."""
    psycopg = sys.modules.get("psycopg")
    return () if psycopg is None else (psycopg.OperationalError,)


def _sentence(text: str, code: int) -> int:
    sys.stderr.write(f"devfix: {text}\n")
    return code


def _report_bug(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Nobody foresaw this one: a line for the person, the trace in a file for whoever mends it."""
    from state.settings import home

    text = "".join(traceback.format_exception(kind, error, trace))
    path = home() / "logs" / f"bug-{datetime.now():%Y%m%d-%H%M%S}-{os.getpid()}.txt"  # noqa: DTZ005 - a local name
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, errors="backslashreplace")
    except OSError:
        sys.stderr.write(text)
    first = (str(error).splitlines() or [""])[0]
    sys.stderr.write(
        f"devfix: a bug in DevFix ended this command ({kind.__name__}: {first}); every saved step of a run is kept, "
        f"and the whole trace is in {path}\n"
    )
