"""`make serve`: the LangGraph dev server with DevFix's graph, offline, on this machine only.

The server keeps its list of threads in `.langgraph_api` below the folder it is started in, so it is started in a
folder of DevFix's own, never in the user's.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from state.settings import home, make_home

CONFIG = Path(__file__).resolve().parent.parent / "langgraph.json"
OFFLINE = {
    "LANGSMITH_TRACING": "false",
    "LANGGRAPH_CLI_NO_ANALYTICS": "1",
    "LANGGRAPH_NO_VERSION_CHECK": "true",
}
"""Nothing of a run leaves this machine, also where a LangSmith key is set for other work."""


def command(*extra: str) -> list[str]:
    """The dev server's command line. Without `--n-jobs-per-worker` a run would wait for the one before it."""
    options = ["--no-browser", "--no-reload", "--n-jobs-per-worker", "10", "--host", "127.0.0.1"]
    return [sys.executable, "-m", "langgraph_cli", "dev", "--config", str(CONFIG), *options, *extra]


def folder() -> Path:
    """Where the server runs; made if need be."""
    path = home() / "server"
    make_home(path.parent)
    path.mkdir(exist_ok=True)
    return path


def main() -> None:
    """Become the dev server; what follows on the command line (`--port 2025`) is handed on."""
    os.chdir(folder())
    arguments = command(*sys.argv[1:])
    os.execve(arguments[0], arguments, {**os.environ, **OFFLINE})  # noqa: S606 - no shell


if __name__ == "__main__":
    main()
