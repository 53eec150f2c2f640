"""The launcher of level 1: a program of its own that holds a command's tree together.

It runs apart from DevFix (`python -I -S supervisor.py STATUS_FD GO_FD PARENT COMMAND…`) and imports nothing of
it. Orphans come back to it (it is their subreaper), it dies with DevFix, and it leaves no process behind. It
speaks as bwrap does: `{"child-pid": …}`, then, after a byte on the go descriptor, the command, and at the end
`{"exit-code": …}`, one JSON object a line, on the status descriptor.
"""

import ctypes
import json
import os
import signal
import sys
import time

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_SWEEP_SECONDS = 5.0
_WATCHED = {signal.SIGCHLD, signal.SIGTERM}


def main(status: int, go: int, parent: int, command: list[str]) -> int:
    """Run the command to its end, or to SIGTERM; return its exit code when nothing of it lives."""
    os.set_inheritable(status, False)
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent:
        return 1  # DevFix died before it could tell
    signal.pthread_sigmask(signal.SIG_BLOCK, _WATCHED)
    tell(status, {"child-pid": os.getpid()})
    if not os.read(go, 1):
        return 1
    os.close(go)
    child = os.fork()
    if child == 0:
        become(command, status)
    code = wait(child)
    sweep()
    if code is not None:
        tell(status, {"exit-code": code})
    return code or 0


def tell(status: int, what: dict[str, int]) -> None:
    os.write(status, json.dumps(what).encode() + b"\n")


def become(command: list[str], status: int) -> None:
    """Turn into the command; never returns."""
    os.setsid()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _WATCHED)
    for ignored_by_python in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(ignored_by_python, signal.SIG_DFL)
    try:
        os.execvpe(command[0], command, os.environ)  # noqa: S606 - the sandbox's whole point
    except OSError as error:
        tell(status, {"not-started": error.errno or 0})
        os.write(2, f"{command[0]}: {error.strerror}\n".encode(errors="surrogateescape"))
        os._exit(127)


def wait(child: int) -> int | None:
    """The command's exit code, or None when this program is told to end it."""
    while signal.sigwait(_WATCHED) == signal.SIGCHLD:
        for pid, result in reaped():
            if pid == child:
                code = os.waitstatus_to_exitcode(result)
                return 128 - code if code < 0 else code
    return None


def reaped() -> list[tuple[int, int]]:
    found = []
    try:
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            found.append(ended)
    except ChildProcessError:
        pass
    return found


def sweep() -> None:
    """Kill whatever is below this process. All is frozen first: what is frozen can't fork away from us."""
    deadline = time.monotonic() + _SWEEP_SECONDS
    frozen: set[int] = set()
    while time.monotonic() < deadline:
        below = set(descendants(os.getpid()))
        if not below:
            return
        moving = below - frozen
        send(signal.SIGSTOP if moving else signal.SIGKILL, moving or below)
        frozen = below if moving else set()
        reaped()


def send(sign: signal.Signals, pids: set[int]) -> None:
    for pid in pids:
        try:
            os.kill(pid, sign)
        except OSError:
            continue


def descendants(pid: int) -> list[int]:
    found: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children") as file:
                found.extend(map(int, file.read().split()))
    except OSError:
        pass
    return found + [below for child in found for below in descendants(child)]


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:]))
