"""devfix run: start a run on a repository whose tests fail."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from scripts.cli.options import BudgetTokens, BudgetUsd, Deadline, Json, Model, StepLimit, Yes
from state.ids import short

if TYPE_CHECKING:
    from state.agent_state import RunInput


def run(
    path: Annotated[
        str, typer.Argument(metavar="[PATH]", help="The folder whose tests fail; a job of your own may need none.")
    ] = "",
    goal: Annotated[
        str, typer.Option(metavar="TEXT", help="What to achieve; without it, that the failing tests pass.")
    ] = "",
    test: Annotated[str | None, typer.Option(metavar="CMD", help="The command that runs the tests.")] = None,
    model: Model = None,
    python: Annotated[
        str | None, typer.Option(metavar="PYTHON", help="The interpreter, or environment, for the tests.")
    ] = None,
    yes: Yes = False,
    commit: Annotated[bool, typer.Option("--commit", help="Commit the patch on a branch of its own.")] = False,
    patch_out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the patch to this file; the folder stays as it is.")
    ] = None,
    detach: Annotated[bool, typer.Option("--detach", help="Only queue the run; a worker goes on with it.")] = False,
    allow_test_edits: Annotated[bool, typer.Option("--allow-test-edits", help="The agent may change tests.")] = False,
    env: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="A variable that the tests may see; may be repeated.")
    ] = None,
    allow_network: Annotated[bool, typer.Option("--allow-network", help="The tests may use the network.")] = False,
    unsafe_local: Annotated[
        bool, typer.Option("--unsafe-local", help="Where no sandbox works, run the tests without one.")
    ] = False,
    option: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="What a job of your own takes, as JSON or text; may be repeated."),
    ] = None,
    budget_usd: BudgetUsd = None,
    budget_tokens: BudgetTokens = None,
    step_limit: StepLimit = None,
    deadline_seconds: Deadline = None,
    as_json: Json = False,
) -> int:
    """Start a run on a repository, and follow it until it waits or ends.

    The folder is not touched before the patch is approved. Exit codes: 0 completed, 3 waiting, 4 failed, 5 cancelled,
    130 put down by Ctrl-C, 143 by SIGTERM.
    """
    from scripts.starting import options_of
    from state.agent_state import RunInput

    given = RunInput(
        repository=path,
        options=options_of(option or []),
        goal=goal,
        test_command=test,
        model=model,
        python=python,
        commit=commit,
        patch_out=None if patch_out is None else str(patch_out),
        allow_test_edits=allow_test_edits,
        env=env or [],
        allow_network=allow_network,
        unsafe_local=unsafe_local,
        budget_usd=budget_usd,
        budget_tokens=budget_tokens,
        step_limit=step_limit,
        deadline_seconds=deadline_seconds,
    )
    return asyncio.run(start(given, yes=yes, detach=detach, as_json=as_json))


async def start(given: RunInput, *, yes: bool, detach: bool = False, as_json: bool = False) -> int:
    """Begin the run and, unless it is only to be queued, follow it."""
    from scripts.application import application
    from scripts.cli.output import say
    from scripts.driving import Drive
    from scripts.facts import facts_of
    from scripts.reporting import put_run, report
    from scripts.starting import begin, check_input, completed_input

    given = completed_input(given)
    async with application() as opened:
        await check_input(opened, given)
        due_seconds = 0 if detach else opened.settings.lease_seconds
        run_id = await begin(opened, given, due_seconds=due_seconds)
        if detach:
            put_run(await facts_of(opened, await opened.services.runs.get(run_id)), as_json=as_json)
            if yes:
                say("--yes answers here, in the foreground; a worker lets the run wait for `devfix approve`")
            name = short(run_id)
            say(f"run {name} is queued for a worker (`devfix worker`); `devfix resume {name}` goes on here")
            return 0
        say(f"run {run_id} on {given.repository}" if given.repository else f"run {run_id}")
        drive = Drive(opened, run_id, yes=yes, quiet=as_json)
        return await report(drive, await drive.go_on(), as_json=as_json)
