"""devfix bench: the figures, measured on this machine."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from scripts.cli.options import Json

if TYPE_CHECKING:
    from pydantic import BaseModel

    from scripts.bench.crash.figures import Kind
    from scripts.signals import Signals

Figures = TypeVar("Figures")

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


@app.command(short_help="runs that are killed, frozen and cut off")
def crash(
    job: Annotated[
        str | None, typer.Option(metavar="MODULE:JOB", help="A job of your own, instead of those that ship.")
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="What your job takes; an http://127.0.0.1 address in it is reached through a wire that counts.",
        ),
    ] = None,
    repository: Annotated[str, typer.Option(metavar="PATH", help="The folder, where your job works on one.")] = "",
    model: Annotated[
        str | None, typer.Option(metavar="NAME", help="The model; best one that says the same again.")
    ] = None,
    kills: Annotated[int, typer.Option(min=0, help="SIGKILLs.")] = 30,
    freezes: Annotated[int, typer.Option(min=0, help="SIGSTOPs, thawed once another process goes on.")] = 6,
    cuts: Annotated[int, typer.Option(min=0, help="Connections that are cut.")] = 6,
    restarts: Annotated[int, typer.Option(min=0, help="Restarts of PostgreSQL.")] = 2,
    seed: Annotated[int, typer.Option(help="Another seed strikes at other points.")] = 1,
    as_json: Json = False,
) -> int:
    """Strike at runs in each way, at each commit and request in turn and at random, and count what stands outside.

    The runs are those of your job, or else of the sample's repair and of a job that pushes a branch, sends an e-mail,
    calls a webhook and creates a ticket. All of it happens on servers of the campaign's own. Exit code 1 where a run
    did not come through whole.
    """
    from scripts.bench.crash.campaign import OpenTrial, measure
    from scripts.bench.crash.errands import errand_trial
    from scripts.bench.crash.trial import job_trial, repair_trial
    from scripts.cli.output import say
    from scripts.signals import Signals
    from scripts.starting import options_of
    from state.agent_state import RunInput

    given = RunInput(options=options_of(option or []), repository=repository, model=model)
    trials: list[OpenTrial] = [partial(job_trial, job, given)] if job else [partial(repair_trial, model), errand_trial]
    blows: dict[Kind, int] = {"kill": kills, "freeze": freezes, "cut": cuts, "restart": restarts}
    signals = Signals()
    try:
        figures = asyncio.run(_until_stopped(measure(trials, blows, seed=seed, tell=say), signals))
    except asyncio.CancelledError:
        return signals.exit_code
    _put(figures, as_json)
    return 0 if figures.whole else 1


@app.command(short_help="what the models' layer costs a call")
def layer(
    calls: Annotated[int, typer.Option(min=1, help="Calls of each.")] = 200,
    as_json: Json = False,
) -> None:
    """What a call costs beside LangChain's ChatOpenAI alone on the same server, and when its first word is there."""
    from scripts.bench.layer import measure
    from state.settings import read_settings

    _put(asyncio.run(measure(read_settings(), calls=calls)), as_json)


@app.command(short_help="models, tools and databases that misbehave")
def faults(
    seeds: Annotated[int, typer.Option(min=0, help="Runs of each fault, each with it at another place.")] = 10,
    kills: Annotated[int, typer.Option(min=0, help="Faults that are run once more, with a SIGKILL.")] = 30,
    only: Annotated[str, typer.Option(metavar="TEXT", help="Only faults in whose `group: name` this stands.")] = "",
    peer: Annotated[
        bool,
        typer.Option("--peer", help="Put the same scripts to create_agent and pydantic-ai too; takes a package index."),
    ] = False,
    server: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Also with the answers of llmock or aimock (takes npm); takes a package index. May be repeated.",
        ),
    ] = None,
    as_json: Json = False,
) -> int:
    """Whether each run ends as it must, whatever a model, a tool, the database or the run's own judgement does wrong.

    The faults are a table; each is a run of the real graph against a chat endpoint and a PostgreSQL of the campaign's
    own. What others' software is needed is installed, in the versions that were measured, below DEVFIX_HOME. Exit code
    1 where a run did not end as the table says, or a generated circle or search was taken for the other.
    """
    from scripts.bench.faults.campaign import faults as chosen
    from scripts.bench.faults.campaign import measure
    from scripts.bench.faults.figures import FaultFigures, table
    from scripts.bench.faults.peer import installed, measure_peers
    from scripts.bench.faults.servers import opened
    from scripts.cli.output import put, put_facts, say
    from scripts.signals import Signals
    from state.settings import read_settings

    async def everything() -> FaultFigures:
        settings, rows = read_settings(), chosen(only)
        interpreters = await installed(settings) if peer else []
        async with opened(settings, server or [], rows) as servers:
            found = await measure(seeds=seeds, kills=kills, only=only, servers=servers, tell=say)
        return found.model_copy(update={"peers": await measure_peers(interpreters, rows, tell=say)}) if peer else found

    signals = Signals()
    try:
        figures = asyncio.run(_until_stopped(everything(), signals))
    except asyncio.CancelledError:
        return signals.exit_code
    if as_json:
        _put(figures, as_json)
    else:
        put(table(figures) + "\n")
        put_facts(figures.model_dump(include={"machine", "seeds", "seconds", "ratio"}))
    return 0 if figures.whole else 1


@app.command(short_help="the same errand on other systems, under the same kills")
def peers(
    kills: Annotated[int, typer.Option(min=1, help="SIGKILLs of each system's worker.")] = 50,
    only: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="One system of the table; may be repeated.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Another seed strikes at other points.")] = 1,
    as_json: Json = False,
) -> int:
    """DevFix, LangGraph, DBOS and Temporal refund orders while their workers are killed; the shop counts.

    The others are installed, in the versions that the table names, into environments of their own below DEVFIX_HOME;
    that takes a package index. Exit code 1 where a run of DevFix did not come through whole.
    """
    from scripts.bench.crash.peers.comparison import measure
    from scripts.bench.crash.peers.figures import table
    from scripts.cli.output import put, put_facts, say
    from scripts.signals import Signals
    from state.settings import read_settings

    signals = Signals()
    try:
        figures = asyncio.run(
            _until_stopped(measure(read_settings(), kills=kills, seed=seed, only=only or [], tell=say), signals)
        )
    except asyncio.CancelledError:
        return signals.exit_code
    if as_json:
        _put(figures, as_json)
    else:
        put(table(figures) + "\n")
        put_facts(figures.model_dump(include={"machine", "seed", "seconds"}))
    return 0 if figures.whole else 1


@app.command()
def queue(
    kills: Annotated[int, typer.Option(metavar="N", min=1, help="Workers that are killed.")] = 10,
    cancels: Annotated[int, typer.Option(metavar="N", min=1, help="Runs that are cancelled.")] = 10,
    answers: Annotated[int, typer.Option(metavar="N", min=1, help="Runs that are answered.")] = 20,
    as_json: Json = False,
) -> None:
    """How soon a worker goes on after a kill, ends a run that is cancelled, and does what was answered."""
    from scripts.bench.queue import measure
    from scripts.cli.output import say
    from state.settings import read_settings

    _put(asyncio.run(measure(read_settings(), kills=kills, cancels=cancels, answers=answers, tell=say)), as_json)


@app.command(short_help="what many runs do to a step")
def load(
    active: Annotated[int, typer.Option(metavar="N", min=1, help="Runs at work.")] = 50,
    waiting: Annotated[int, typer.Option(metavar="N", min=1, help="Runs that wait for a person meanwhile.")] = 1000,
    workers: Annotated[int, typer.Option(metavar="N", min=1, help="Processes that they share.")] = 2,
    call_seconds: Annotated[float, typer.Option(metavar="SECONDS", min=0, help="A call of a run at work.")] = 2.0,
    as_json: Json = False,
) -> None:
    """What a step takes alone and among many runs on a few workers; all are answered in the end, and counted."""
    from scripts.bench.load import measure
    from scripts.cli.output import say
    from state.settings import read_settings

    figures = measure(
        read_settings(), active=active, waiting=waiting, workers=workers, call_seconds=call_seconds, tell=say
    )
    _put(asyncio.run(figures), as_json)


async def _until_stopped(figures: Coroutine[Any, Any, Figures], signals: Signals) -> Figures:
    """Raises CancelledError, once all is taken away again, where somebody wants it to stop."""
    measuring = asyncio.ensure_future(figures)
    with signals.stopping(measuring):
        return await measuring


def _put(figures: BaseModel, as_json: bool) -> None:
    from scripts.cli.output import put_facts, put_json

    facts: dict[str, Any] = figures.model_dump()
    put_json(facts) if as_json else put_facts(facts)
