"""The process that is killed: it begins one run of the campaign, as the JSON object on its command line says."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import graph.models.endpoint  # noqa: F401 - now, and not in the time that a row's run has
from scripts.bench.faults.errand import ERRAND
from scripts.bootstrap import build
from state.settings import Settings


async def begin(settings: Settings, run_id: str, given: dict[str, Any]) -> None:
    application = build(settings, label="bench", jobs={ERRAND.name: ERRAND})
    try:
        await application.agent().ainvoke(given, {"configurable": {"thread_id": run_id}})
    finally:
        await application.services.close()


def main() -> None:
    told = json.loads(sys.argv[1])
    asyncio.run(begin(Settings.model_validate(told["settings"]), told["run_id"], told["given"]))
