"""How a run begins: its input is checked, and saved before anything is done, so that whoever comes can go on.

A run that somebody starts in the foreground and one that is only queued are begun in the same way: the input is the
run's first checkpoint, and `ainvoke(None)` goes on from there.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from pathlib import Path

from pydantic import JsonValue

from graph.durable import new_run_id
from graph.report import report_on_state
from graph.spending import unpriced
from scripts.bootstrap import Application
from state.agent_state import RunInput
from state.errors import Refused
from state.status import Standing

NEW = Standing("queued", "new")
RELEASED = Standing("queued", "released")


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


def options_of(named: Sequence[str]) -> dict[str, JsonValue]:
    """What a job of the user's takes, as NAME=VALUE; a value that is no JSON is text. Raises Refused."""
    options: dict[str, JsonValue] = {}
    for each in named:
        name, equals, value = each.partition("=")
        if not (name and equals):
            raise Refused(f"--option {each}: give it as NAME=VALUE; nothing was begun")
        try:
            options[name] = json.loads(value)
        except ValueError:
            options[name] = value
    return options


def named_model(name: str) -> str:
    """The model's name, with a script's path written out."""
    kind, _, path = name.partition(":")
    return f"{kind}:{Path(path).absolute()}" if kind == "scripted" and path else name


async def check_input(application: Application, given: RunInput) -> None:
    """Refuse what can't work before there is a run. Raises Refused, SandboxUnavailable or HomeUnwritable."""
    for name in given.env:
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise Refused(f"--env {name}: give the variable's name alone; its value comes from the environment")
    job = application.services.job(given.job or application.settings.job)
    await job.rules.check(given, settings=application.settings)
    model = given.model or application.settings.model or job.default_model
    await application.services.chain.check(model)
    limit = application.settings.budget_usd if given.budget_usd is None else given.budget_usd
    if why := unpriced(application.services.chain.names(model), limit, application.services.prices):
        raise Refused(f"{why}; nothing was begun")


async def begin(application: Application, given: RunInput, *, due_seconds: float) -> str:
    """Register the run and save its input, held by nobody: `queued: new`. Gives its id.

    A worker goes on with it after `due_seconds`, if whoever began it has not.
    """
    services, run_id = application.services, new_run_id()
    given = await _with_lasting_model(application, given)
    job = services.job(given.job or application.settings.job)
    model = given.model or application.settings.model or job.default_model
    await services.runs.register(run_id, goal=job.rules.goal_of(given), job=job.name, model=model)
    values = given.model_dump(exclude_defaults=True)
    await application.agent().aupdate_state({"configurable": {"thread_id": run_id}}, values, as_node="__input__")
    await put_down(application, run_id, NEW, due_seconds=due_seconds)
    return run_id


async def _with_lasting_model(application: Application, given: RunInput) -> RunInput:
    """With a recorded run's whole id: `last` would soon be the new run itself."""
    kind, _, prefix = (given.model or "").partition(":")
    if kind != "recorded":
        return given
    run = await application.services.runs.find(prefix)
    return given.model_copy(update={"model": f"recorded:{run.run_id}"})


async def put_down(
    application: Application, run_id: str, standing: Standing, *, due_seconds: float | None = None
) -> None:
    """Say how a run stands that was saved from outside any attempt, and how to go on with it.

    A worker does so after `due_seconds`; without it, nobody but a person.
    """
    runs = application.services.runs
    run = await runs.get(run_id)
    if run.holder is None:  # else somebody goes on with it already
        report = report_on_state(run_id, standing, {})
        await runs.settle(run_id, run.epoch, standing, report.model_dump(), due_seconds=due_seconds)
