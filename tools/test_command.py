"""The user's test command at work in the sandbox, spoken to through `tools/runner`.

The scripts there run under the user's interpreter, are mounted read-only, and import nothing of ours.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from state.errors import DevfixError
from tools.interpreter import Interpreter, find_interpreter
from tools.registry import ToolContext
from tools.sandbox import Limits, ProcessEnded, SandboxProcess

RUNNER = Path(__file__).with_name("runner")
OUTPUT_BYTES = 24_000
"""Of a test command's output, head and tail; a tool's answer must stay below 32 KB."""
LIFE = 4 * 3600.0
"""Seconds; a process that waits for candidates is ended by then, whatever happened to its owner."""
SURVEY_SECONDS = 1.5
"""Processor time of one test while the defect is located; a test that is still running then counts as one that
does not end. Where nothing else fails, one such test is looked at again."""
QUIET_SECONDS = 30.0
"""The same for a test that takes no processor time: it waits for something."""
QUIET_LOOK = 75.0
"""The same when it is looked at again."""

_SLACK = 20.0
"""Seconds. The processes in the sandbox keep the user's limit themselves, since they know which test ran; this is for
one that can't even say so."""

Event = dict[str, Any]


class CommandLost(DevfixError):
    """The process that runs the test command was stopped from outside; the message says why."""


class CommandTimedOut(CommandLost):
    """The test command did not come to an end within the user's limit."""


class TestCommand:
    """A relay in the sandbox that runs the command."""

    __test__ = False

    def __init__(self, process: SandboxProcess) -> None:
        self._process = process

    async def event(self, timeout: float) -> Event:
        """The next thing that it says. Raises CommandLost, TimeoutError."""
        try:
            return dict(json.loads(await self._process.read_line(timeout)))
        except ProcessEnded as ended:
            raise CommandLost(f"{ended}: {self._process.output[-500:]}".strip(" :")) from None

    async def ask(self, request: Event) -> None:
        """Raises CommandLost."""
        try:
            await self._process.write_line(json.dumps(request).encode())
        except ProcessEnded as ended:
            raise CommandLost(str(ended)) from None


async def report(context: ToolContext, *, timeout: float, plugin: bool = True) -> Event:
    """Run the command once, as the user gave it.

    Raises:
        CommandLost: a limit of the sandbox stopped it; the message says which.
        SandboxUnavailable: nothing was run.
    """
    mode, life = ("report" if plugin else "plain"), timeout + 2 * _SLACK
    async with _started(context, mode, timeout=timeout, life=life) as command:
        try:
            return await command.event(timeout + _SLACK)
        except TimeoutError:
            raise CommandTimedOut(f"the command ran longer than {timeout:g} s and was stopped") from None


@asynccontextmanager
async def waiting(context: ToolContext) -> AsyncIterator[WaitingTests]:
    """The command with its pytest waiting just before collection, or saying that it has none.

    Raises:
        CommandLost: a limit of the sandbox stopped it; the message says which.
        SandboxUnavailable: nothing was run.
    """
    timeout = context.settings.test_timeout_seconds
    async with _started(context, "serve", timeout=timeout, life=LIFE) as command:
        try:
            hello = await command.event(timeout + _SLACK)
        except TimeoutError:
            raise CommandTimedOut(f"pytest did not start within {timeout:g} s") from None
        yield WaitingTests(command, hello, timeout=timeout)


class WaitingTests:
    """A test command that can be asked again and again; see `tools/runner/devfix_server.py`."""

    def __init__(self, command: TestCommand, hello: Event, *, timeout: float) -> None:
        self._command = command
        self._timeout = timeout
        self.warm = hello["e"] == "ready"
        """Whether there is a pytest that waits; else each candidate runs the whole command, and `hello` tells how
        the command ended, or that it had to be stopped."""
        self.hello = hello
        self.surveyed: Event | None = hello if hello.get("timed_out") else None

    async def survey(
        self, *, select: Sequence[str] | None = None, limit: float | None = None, trace: bool = False
    ) -> Event:
        """Run the tests, each within `limit` seconds of processor time: what candidates are measured against.

        Without a limit, one that a sound test of most suites keeps. What is not known when the user's limit is over
        is not waited for.

        Raises:
            CommandLost: the tests were stopped from outside.
        """
        if limit is None:
            limit, quiet = min(SURVEY_SECONDS, self._timeout / 4), min(QUIET_SECONDS, self._timeout / 2)
        else:
            quiet = self._timeout
        self.surveyed = await self._survey(select=select, limit=limit, quiet=quiet, trace=trace, keep=True)
        return self.surveyed

    async def look(self, test: str, *, limit: float) -> Event:
        """Run one test, which changes nothing of what candidates are measured against. Raises CommandLost."""
        return await self._survey(select=[test], limit=limit, quiet=QUIET_LOOK, trace=False, keep=False)

    async def _survey(self, **request: Any) -> Event:
        await self._command.ask({"op": "survey", **request})
        return await self._event()

    async def evaluate(self, candidates: Sequence[Sequence[tuple[str, int, int, str]]], **options: Any) -> list[Event]:
        """What came of each candidate that there was time for. Raises CommandLost."""
        await self._command.ask({"op": "evaluate", "candidates": candidates, **options})
        events = []
        while (event := await self._event())["e"] != "done":
            events.append(event)
        return events

    async def _event(self) -> Event:
        try:
            event = await self._command.event(self._timeout + _SLACK)
        except TimeoutError:
            raise CommandTimedOut(f"nothing was heard of the tests for {self._timeout:g} s") from None
        if event["e"] == "gone":
            raise CommandLost(f"the test process ended (exit code {event['exit_code']}): {event['output'][-500:]}")
        return event


@asynccontextmanager
async def _started(context: ToolContext, mode: str, *, timeout: float, life: float) -> AsyncIterator[TestCommand]:
    interpreter = await interpreter_of(context)
    setup = {
        "command": context.work["test_command"],
        "mode": mode,
        "timeout": timeout,
        "root": context.sandbox.path(context.workspace),
        "jobs": max(1, min(8, os.cpu_count() or 1)),
        "output_bytes": OUTPUT_BYTES,
    }
    async with context.sandbox.start(
        [str(interpreter.python), "-I", str(RUNNER / "devfix_relay.py"), json.dumps(setup, ensure_ascii=False)],
        workspace=context.workspace,
        limits=Limits(timeout=life),
        env={**interpreter.environment(), **asked_for(context)},
        mounts={**interpreter.mounts, RUNNER: RUNNER},
    ) as process:
        yield TestCommand(process)


async def interpreter_of(context: ToolContext) -> Interpreter:
    """Raises Refused: `--python` names no interpreter."""
    return await asyncio.to_thread(
        find_interpreter,
        context.workspace.repository,
        python=context.work.get("python"),
        cache=context.settings.home / "interpreters",
    )


def asked_for(context: ToolContext) -> Mapping[str, str]:
    """The variables that the person let through with `--env`."""
    return {name: os.environ[name] for name in context.work.get("env") or () if name in os.environ}
