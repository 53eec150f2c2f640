"""The command line: `devfix`, with one file a command."""

from scripts.cli.main import main

__all__ = ["main"]
