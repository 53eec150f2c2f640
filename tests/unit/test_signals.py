"""Signals that ask a process to put its run down."""

from __future__ import annotations

import signal
import subprocess
import sys

PROGRAM = """
import asyncio
from scripts.signals import Signals

async def main():
    with Signals().calling(lambda: print("first", flush=True)):
        print("ready", flush=True)
        await asyncio.sleep(60)

asyncio.run(main())
"""


def test_a_second_signal_says_how_to_go_on() -> None:
    """And ends the process as it is."""
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        for expected in ("ready", "first"):
            assert process.stdout.readline().strip() == expected
            process.send_signal(signal.SIGTERM)
        _, told = process.communicate(timeout=20)
    assert process.returncode == 143
    assert "devfix resume RUN" in told
