"""A process with two nodes side by side, one quick and one slow: `python -m tests.safeguards.siblings URL FOLDER`."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

from tests.helpers.app import application_on
from tests.helpers.graphs import side_by_side

RUN = "siblings"
SLOW_SECONDS = 1.5


async def run(url: str, folder: Path) -> None:
    """Go on with the run, or begin it; each node writes its name into a file when it runs."""
    application = application_on(url, folder)

    async def quick(state: dict[str, Any]) -> dict[str, Any]:
        note(folder, "quick")
        return {"seen": ["quick"]}

    async def slow(state: dict[str, Any]) -> dict[str, Any]:
        note(folder, "slow")
        await asyncio.sleep(SLOW_SECONDS)
        return {"seen": ["slow"]}

    graph = side_by_side(application, quick=quick, slow=slow)
    config: Any = {"configurable": {"thread_id": RUN}}
    begun = (await graph.aget_state(config)).next
    await graph.ainvoke(None if begun else {"seen": []}, config)
    await application.services.close()


def note(folder: Path, name: str) -> None:
    with (folder / "ran").open("a") as file:
        file.write(f"{name}\n")


def ran(folder: Path) -> list[str]:
    path = folder / "ran"
    return path.read_text().split() if path.exists() else []


if __name__ == "__main__":
    asyncio.run(run(sys.argv[1], Path(sys.argv[2])))
