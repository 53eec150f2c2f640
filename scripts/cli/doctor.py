"""devfix doctor: whether DevFix can work on this machine."""

from __future__ import annotations

import asyncio

from scripts.cli.options import Json


def doctor(as_json: Json = False) -> int:
    """Look at settings, database, sandbox, interpreter, disk, models, git, and what is set up outside.

    Exit code 4 where DevFix can't work.
    """
    return asyncio.run(_doctor(as_json))


async def _doctor(as_json: bool) -> int:
    from scripts.application import application
    from scripts.cli.output import put_facts, put_json
    from scripts.diagnosis import diagnose
    from state.settings import usable_settings

    settings, complaints = await asyncio.to_thread(usable_settings)
    async with application(settings) as opened:
        found = await diagnose(opened, complaints)
    put_json(found) if as_json else put_facts(found)
    return 0 if found["ok"] else 4
