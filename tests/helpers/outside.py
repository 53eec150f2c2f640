"""One run's calls of outward tools, through the real ledger."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from pydantic import JsonValue

from state.database import Database
from state.holder import this_process
from state.ledger import PostgresLedger
from state.queue import Queue
from state.runs import PostgresRuns
from state.settings import Settings
from tools.execution import Execution, Performed, effect_key
from tools.outward import outward_tools
from tools.registry import Found, Tool, ToolContext

RUN = "11111111-2222-3333-4444-555555555555"


class Outside:
    """Tools as these settings make them."""

    def __init__(self, database: Database, folder: Path, **settings: Any) -> None:
        quick = {"outward_timeout_seconds": 1.0, "outward_settle_seconds": 0.5}
        self.settings = Settings(home=folder / "home", **{**quick, **settings})
        self.tools = {tool.name: tool for tool in outward_tools(self.settings)}
        self.runs = PostgresRuns(database=database, queue=Queue(database=database, lease_seconds=5), lease_seconds=5)
        self.ledger = PostgresLedger(database=database)
        self.execution = Execution(ledger=self.ledger, runs=self.runs)
        self.work: dict[str, Any] = {}
        self.epoch = 0

    async def hold(self) -> None:
        """The run, held by this process; another attempt each time."""
        await self.runs.register(RUN)
        if self.epoch:
            await self.runs.seize(RUN)
        self.epoch = (await self.runs.claim(RUN, this_process())).epoch

    def context(self, call: str = "c", bound: Mapping[str, JsonValue] | None = None) -> ToolContext:
        return cast("Any", ToolContext)(
            run_id=RUN,
            call_id=call,
            key=effect_key(RUN, call),
            bound=bound or {},
            work=self.work,
            workspace=None,
            sandbox=None,
            artifacts=None,
            snapshots=None,
            settings=self.settings,
        )

    async def bound(self, name: str, call: str = "c", **args: Any) -> Mapping[str, JsonValue]:
        """What the person sees besides the arguments."""
        bind = self.tools[name].bind
        assert bind is not None
        return await bind(args, self.context(call))

    async def do(self, name: str, call: str = "c", **args: Any) -> Performed:
        """The call as an approved one is made."""
        if not self.epoch:
            await self.hold()
        context = self.context(call, await self.bound(name, call, **args))
        return await self.execution.perform(self.tools[name], args, context, epoch=self.epoch)

    async def again(self, name: str, call: str = "c", **args: Any) -> Any:
        """The bare tool, with the same key: what happens when the ledger knows nothing."""
        tool: Tool = self.tools[name]
        return await tool.call(**args, context=self.context(call, await self.bound(name, call, **args)))

    async def found(self, name: str, call: str = "c", **args: Any) -> Found:
        verify = self.tools[name].verify
        assert verify is not None
        return await verify(args, self.context(call, await self.bound(name, call, **args)))

    async def states(self) -> list[str]:
        return [effect.state for effect in await self.ledger.of(RUN)]
