"""A holder is one process, told apart from every other that ever had its number."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

from state.holder import Holder, is_gone, kill, this_process


def test_this_process_is_not_gone() -> None:
    """And says who it is."""
    here = this_process("test")
    assert is_gone(here) is False
    assert str(here).startswith(f"test {os.getpid()} on ")


def test_b81_a_restart_under_the_same_number_is_another_holder() -> None:
    """A pid that is used again, as after a container's restart, does not make a dead holder alive."""
    here = this_process()
    former = here.model_copy(update={"started": "1"})
    assert former != here
    assert is_gone(former) is True


def test_what_another_machine_does_cant_be_seen_from_here() -> None:
    """Nor what ran before this machine's last boot."""
    assert is_gone(this_process().model_copy(update={"host": "elsewhere"})) is None
    assert is_gone(this_process().model_copy(update={"boot": "before"})) is None


def test_a_frozen_process_is_ended_before_its_work_is_taken_over() -> None:
    """It can't wake up in the middle of what its successor does; a zombie has ended too."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        started = _started(child.pid)
        os.kill(child.pid, signal.SIGSTOP)
        frozen = this_process().model_copy(update={"pid": child.pid, "started": started})
        assert is_gone(frozen) is False
        kill(frozen)
        child.wait(10)
        assert is_gone(frozen) is True
        kill(frozen)  # once more is nothing
    finally:
        child.kill()
        child.wait()


def test_only_the_process_that_was_meant_is_ended() -> None:
    """Another that has its number by now is left alone."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        kill(Holder(**{**this_process().model_dump(), "pid": child.pid, "started": "1"}))
        assert child.poll() is None
    finally:
        child.kill()
        child.wait()


def _started(pid: int) -> str:
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[19]
