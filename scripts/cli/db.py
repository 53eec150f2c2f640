"""devfix db: the embedded PostgreSQL."""

from __future__ import annotations

import asyncio

import typer

from scripts.cli.options import Json

app = typer.Typer(help="Start, stop or look at the embedded PostgreSQL.", no_args_is_help=True, rich_markup_mode=None)


@app.command()
def start(as_json: Json = False) -> None:
    """Start it, where it does not run. Every command that needs it does so by itself."""
    asyncio.run(_start(as_json))


@app.command()
def stop(as_json: Json = False) -> None:
    """Stop it. Runs that are under way are put down by it, and go on with `devfix resume`."""
    asyncio.run(_stop(as_json))


@app.command()
def status(as_json: Json = False) -> None:
    """Say how it stands; changes nothing."""
    asyncio.run(_status(as_json))


async def _start(as_json: bool) -> None:
    from state import embedded
    from state.settings import read_settings

    await embedded.start(read_settings().home)
    await _status(as_json)


async def _stop(as_json: bool) -> None:
    from scripts.cli.output import say
    from state import embedded
    from state.settings import usable_settings

    if not await embedded.stop(usable_settings().settings.home):
        say("the embedded PostgreSQL did not run")
    await _status(as_json)


async def _status(as_json: bool) -> None:
    from dataclasses import asdict

    from scripts.cli.output import put_facts, put_json, say
    from state import embedded
    from state.settings import usable_settings

    settings, complaints = usable_settings()
    for each in complaints:
        say(f"devfix: {each}; `devfix db` goes on without it")
    facts = asdict(await embedded.status(settings.home))
    if settings.database_url:
        say("a database of your own is set (database_url), so the embedded PostgreSQL is not used")
    put_json(facts) if as_json else put_facts(facts)
