"""devfix bench: the figures, measured on this machine."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from scripts.cli.options import Json

if TYPE_CHECKING:
    from pydantic import BaseModel

app = typer.Typer(
    help="Measure on this machine, each figure beside its peer's where there is one.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.command(short_help="what a durable step costs")
def step(
    steps: Annotated[int, typer.Option(min=2, help="Steps a run.")] = 300,
    repetitions: Annotated[int, typer.Option(min=1, help="Runs of each.")] = 6,
    size: Annotated[int, typer.Option(min=1, help="Bytes a step.")] = 2048,
    as_json: Json = False,
) -> None:
    """What a durable step costs, beside the same graph on LangGraph's own saver."""
    from scripts.bench.step import measure
    from state.settings import read_settings

    _put(asyncio.run(measure(read_settings(), steps=steps, size=size, repetitions=repetitions)), as_json)


@app.command(short_help="what steps store, and how fast they load")
def storage(
    steps: Annotated[list[int] | None, typer.Option(min=1, help="Steps of a run; may be repeated.")] = None,
    peer_steps: Annotated[list[int] | None, typer.Option(min=1, help="The same for the peer.")] = None,
    size: Annotated[int, typer.Option(min=1, help="Bytes a step.")] = 2048,
    every: Annotated[
        int | None, typer.Option(min=1, help="Updates between whole copies; DevFix's own if left.")
    ] = None,
    as_json: Json = False,
) -> None:
    """What steps store by their raw bytes, and how long the newest state takes to load."""
    from scripts.bench.storage import measure
    from state.agent_state import DELTA_SNAPSHOT_EVERY
    from state.settings import read_settings

    figures = measure(
        read_settings(),
        steps=steps or (400, 2000, 4000),
        peer_steps=peer_steps or (400, 2000),
        size=size,
        every=every or DELTA_SNAPSHOT_EVERY,
    )
    _put(asyncio.run(figures), as_json)


@app.command(short_help="how many repositories are repaired")
def repair(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A folder of repositories whose tests fail.")],
    test: Annotated[str | None, typer.Option(metavar="CMD", help="The command that runs the tests.")] = None,
    model: Annotated[str, typer.Option(metavar="NAME", help="The model that repairs them.")] = "search-repair",
    seconds: Annotated[float, typer.Option(min=1, help="For each of them.")] = 120.0,
    keep: Annotated[Path | None, typer.Option(metavar="DIR", help="Leave the repaired copies here.")] = None,
    as_json: Json = False,
) -> None:
    """How many repositories are repaired; each is copied first, and its patch approved by itself."""
    from scripts.bench.repair import Repaired, Task, measure
    from scripts.cli.output import say
    from state.settings import read_settings

    def tell(done: Repaired) -> None:
        say(f"{done.repository}: {done.standing}, {done.seconds} s, {done.candidates} candidates")

    task = Task(model=model, test_command=test, limit_seconds=seconds, keep=keep)
    _put(asyncio.run(measure(read_settings(), folder, task, tell=tell)), as_json)


@app.command(short_help="runs that are killed again and again")
def kill(
    times: Annotated[int, typer.Argument(min=1, help="How many kills.")] = 50,
    seed: Annotated[int, typer.Option(help="Another seed kills at other moments.")] = 1,
    model: Annotated[str, typer.Option(metavar="NAME", help="The model that repairs the sample.")] = "search-repair",
    as_json: Json = False,
) -> None:
    """Kill runs on the sample with SIGKILL, and go on with each until it ends."""
    from scripts.bench.kills import Killed, measure
    from scripts.cli.output import say
    from state.settings import read_settings

    def tell(done: Killed) -> None:
        say(f"run {done.run_id[:8]}: {done.kills} kills, {done.standing}, {'whole' if done.whole else 'NOT WHOLE'}")

    _put(asyncio.run(measure(read_settings(), kills=times, seed=seed, model=model, tell=tell)), as_json)


@app.command()
def queue(
    kills: Annotated[int, typer.Option(metavar="N", min=1, help="Workers that are killed.")] = 10,
    answers: Annotated[int, typer.Option(metavar="N", min=1, help="Runs that are answered.")] = 20,
    as_json: Json = False,
) -> None:
    """How soon a worker goes on with a run whose worker was killed, and with one that was answered."""
    from scripts.bench.queue import measure
    from scripts.cli.output import say
    from state.settings import read_settings

    _put(asyncio.run(measure(read_settings(), kills=kills, answers=answers, tell=say)), as_json)


def _put(figures: BaseModel, as_json: bool) -> None:
    from scripts.cli.output import put_facts, put_json

    facts: dict[str, Any] = figures.model_dump()
    put_json(facts) if as_json else put_facts(facts)
