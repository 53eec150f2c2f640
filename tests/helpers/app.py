"""An application on a test's own database, driven as the command line drives it."""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from langchain_core.runnables import RunnableConfig

from graph.durable import DurableGraph
from scripts.bootstrap import Application, build
from scripts.jobs import SHIPPED
from state.approvals import Decision
from state.runs import Run
from state.settings import Settings
from tests.helpers.notes import NOTES


class Driver:
    """One process's view of one run."""

    def __init__(self, application: Application, folder: Path) -> None:
        self.application = application
        self.folder = folder
        self.agent: DurableGraph = application.agent()
        self.services = application.services
        self.run_id = str(uuid.uuid4())

    @property
    def config(self) -> RunnableConfig:
        return {"configurable": {"thread_id": self.run_id}}

    @property
    def letters(self) -> Path:
        return self.folder / "letters"

    def script(self, turns: Sequence[Any]) -> str:
        """The name of a model that says these turns."""
        path = self.folder / f"script-{uuid.uuid4().hex[:6]}.json"
        path.write_text(json.dumps(list(turns)))
        return f"scripted:{path}"

    async def start(self, turns: Sequence[Any], *, wanted: int = 1, **given: Any) -> Run:
        """Begin the notes job with this script and go on until it waits or ends."""
        options = {"letters": str(self.letters), "wanted": wanted}
        await self.agent.ainvoke(
            {"job": "notes", "model": self.script(turns), "options": options, "goal": "post the letters", **given},
            self.config,
        )
        return await self.run()

    async def go_on(self) -> Run:
        await self.agent.ainvoke(None, self.config)
        return await self.run()

    async def approved(self) -> Run:
        """Approve whatever is open, and go on."""
        for row in await self.services.approvals.of(self.run_id):
            if row.decision is None:
                decision = Decision(type="approve")
                await self.services.approvals.decide(self.run_id, row.question.call_id, decision, by="eve")
        return await self.go_on()

    async def run(self) -> Run:
        return await self.services.runs.get(self.run_id)

    async def state(self) -> dict[str, Any]:
        return dict((await self.agent.aget_state(self.config)).values)


def calls(*named: tuple[str, dict[str, Any]], content: str = "") -> dict[str, Any]:
    """A turn that makes these calls."""
    return {"content": content, "tool_calls": [{"name": name, "args": args} for name, args in named]}


def application_on(database_url: str, folder: Path, **settings: Any) -> Application:
    quick = {"heartbeat_seconds": 0.5, "lease_seconds": 3, "tool_retries": 0}
    made = Settings(database_url=database_url, home=folder / "home", **{**quick, **settings})
    return build(made, label="test", jobs={**SHIPPED, NOTES.name: NOTES})
