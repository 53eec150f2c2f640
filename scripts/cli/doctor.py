"""devfix doctor: whether DevFix can work on this machine."""

from __future__ import annotations

import asyncio

from scripts.cli.options import Json


def doctor(as_json: Json = False) -> int:
    """Check Python, database, sandbox, interpreter, disk, git and models. Exit code 4 when DevFix can't work here."""
    return asyncio.run(_doctor(as_json))


async def _doctor(as_json: bool) -> int:
    from scripts.application import application
    from scripts.cli.output import put_facts, put_json
    from scripts.diagnosis import diagnose

    async with application() as opened:
        found = await diagnose(opened)
    put_json(found) if as_json else put_facts(found)
    return 0 if found["ok"] else 4
