"""How a run begins: its input is checked, and saved before anything is done, so that whoever comes can go on.

A run that somebody starts in the foreground and one that is only queued are begun in the same way: the input is the
run's first checkpoint, and `ainvoke(None)` goes on from there.
"""

from __future__ import annotations

import asyncio
import os
import re
from pathlib import Path

from graph.durable import new_run_id
from graph.jobs.repair import GOAL, REPAIR, check_command, existing_folder
from graph.report import report_on_state
from scripts.bootstrap import Application
from state.agent_state import RunInput
from state.errors import HomeUnwritable, Refused
from state.status import Standing
from tools.interpreter import find_interpreter
from tools.patch import check_patch_options
from tools.sandbox import choose_sandbox

NEW = Standing("queued", "new")


def completed_input(given: RunInput) -> RunInput:
    """The input with what belongs to this folder and this moment written out: another process may go on elsewhere."""
    changes: dict[str, str] = {"repository": str(Path(given.repository).absolute())} if given.repository else {}
    if given.patch_out:
        changes["patch_out"] = str(Path(given.patch_out).absolute())
    if given.python and os.sep in given.python and Path(given.python).exists():
        changes["python"] = str(Path(given.python).absolute())
    if given.model:
        changes["model"] = named_model(given.model)
    return given.model_copy(update=changes)


def named_model(name: str) -> str:
    """The model's name, with a script's path written out."""
    kind, _, path = name.partition(":")
    return f"{kind}:{Path(path).absolute()}" if kind == "scripted" and path else name


async def check_input(application: Application, given: RunInput) -> None:
    """Refuse what can't work before there is a run. Raises Refused, SandboxUnavailable or HomeUnwritable."""
    repository = existing_folder(given.repository)
    for name in given.env:
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise Refused(f"--env {name}: give the variable's name alone; its value comes from the environment")
    if given.test_command is not None:
        check_command(given.test_command)
    await check_patch_options(repository, commit=given.commit, patch_out=given.patch_out)
    home = application.settings.home
    try:
        await asyncio.to_thread(find_interpreter, repository, python=given.python, cache=home / "interpreters")
    except OSError as error:
        raise HomeUnwritable.because(home, error.strerror) from None
    job = application.services.job(given.job or application.settings.job)
    await application.services.models.get(given.model or application.settings.model or job.default_model)
    await choose_sandbox(unsafe_local=given.unsafe_local, allow_network=given.allow_network)


async def begin(application: Application, given: RunInput) -> str:
    """Register the run and save its input, held by nobody: `queued: new`. Gives its id."""
    services, run_id = application.services, new_run_id()
    given = await _with_lasting_model(application, given)
    job = services.job(given.job or application.settings.job)
    model = given.model or application.settings.model or job.default_model
    goal = given.goal or (GOAL if job.name == REPAIR.name else "")
    await services.runs.register(run_id, goal=goal, job=job.name, model=model)
    values = given.model_dump(exclude_defaults=True)
    await application.agent().aupdate_state({"configurable": {"thread_id": run_id}}, values, as_node="__input__")
    await put_down(application, run_id, NEW)
    return run_id


async def _with_lasting_model(application: Application, given: RunInput) -> RunInput:
    """With a recorded run's whole id: `last` would soon be the new run itself."""
    kind, _, prefix = (given.model or "").partition(":")
    if kind != "recorded":
        return given
    run = await application.services.runs.find(prefix)
    return given.model_copy(update={"model": f"recorded:{run.run_id}"})


async def put_down(application: Application, run_id: str, standing: Standing) -> None:
    """Say how a run stands that was saved from outside any attempt, and how to go on with it."""
    runs = application.services.runs
    run = await runs.get(run_id)
    if run.holder is None:  # else somebody goes on with it already
        await runs.settle(run_id, run.epoch, standing, report_on_state(run_id, standing, {}).model_dump())
