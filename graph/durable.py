"""An attempt: the one place where a process's hold on a run begins and ends, whoever drives the graph.

`langgraph dev`, a worker, the command line and a test all reach the compiled graph through `astream` (`ainvoke` and
`astream_events` go through it), so that is where the run is registered, claimed, kept alive and settled.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from functools import partial
from typing import Any, cast

from langchain_core.runnables import RunnableConfig
from langgraph.errors import GraphDrained
from langgraph.graph.state import CompiledStateGraph
from langgraph.runtime import RunControl
from langgraph.types import Command, StateSnapshot

from graph.attempt import Attempt, Stopped
from graph.report import report_on_error, report_on_state
from graph.services import Services
from state.agent_state import Report, RunInput
from state.checkpointer import EPOCH_KEY
from state.errors import (
    AlreadyDecided,
    CrashedTooOften,
    DevfixError,
    Fenced,
    InvalidState,
    OutOfService,
    Refused,
    Unserializable,
)
from state.holder import is_gone, this_process
from state.ids import short
from state.status import TERMINAL, Standing, standing_of

RESUME_KEY = "devfix_resume"
"""In `configurable`: a person resumes a run that was cancelled; nothing else overwrites that status."""

AWAY_SECONDS = 30.0
"""After so long, a worker looks whether what a run had to be put down for is back."""

_NESTED = "__pregel_task_id"
_log = logging.getLogger(__name__)


class DurableGraph(CompiledStateGraph):  # type: ignore[type-arg]
    """A compiled graph whose every run is an attempt: claimed, fenced, saved after each step, and settled.

    Raises, from `astream` and all that goes through it: RunBusy while another live attempt holds the run, Fenced
    when another attempt took it over, AlreadyDecided for an answer to a run that does not wait.
    """

    def __init__(self, *, services: Services, **fields: Any) -> None:
        super().__init__(**fields)
        # The dev server puts a wrapper around our saver, which numbers versions in a form of its own (wrong after a
        # version of ours) and loads the history of a channel checkpoint by checkpoint.
        self.checkpointer = getattr(self.checkpointer, "unwrapped", self.checkpointer)
        self.services = services

    @classmethod
    def of(cls, graph: CompiledStateGraph, services: Services) -> DurableGraph:  # type: ignore[type-arg]
        """The same compiled graph, made durable."""
        fields = {name: value for name, value in graph.__dict__.items() if name != "__orig_class__"}
        return cls(services=services, **fields)

    def get_input_jsonschema(self, config: RunnableConfig | None = None) -> dict[str, Any]:
        """What a run is started with, each field described; the API and Studio show it as a form."""
        return RunInput.model_json_schema()

    async def astream(
        self,
        input: Any,  # noqa: A002 - LangGraph's own name for it
        config: RunnableConfig | None = None,
        *,
        control: RunControl | None = None,
        **options: Any,
    ) -> AsyncIterator[Any]:
        """LangGraph's `astream`, always with `durability="sync"`, inside an attempt."""
        configurable = (config or {}).get("configurable", {})
        if _NESTED in configurable or not configurable.get("thread_id") or not self.checkpointer:
            async for chunk in super().astream(input, config, control=control, **options):
                yield chunk
            return
        run_id = str(configurable["thread_id"])
        await self.services.open()
        await self.services.workspaces.sweep(self.services.runs)
        await self.services.runs.register(run_id, **_facts(input, self.services))
        if not await self._may_run(run_id, input, config or {}):
            return
        options["durability"] = "sync"
        async with self._attempt(run_id, config or {}, control or RunControl()) as (attempt, claimed):
            if _answers(input) and await self._is_superseded(claimed):
                # LangGraph would give an old pause its old answer. Going back asks again, on a branch of its own.
                async with aclosing(_until_stopped(super().astream(None, claimed, **options), attempt)) as going_back:
                    async for _ in going_back:
                        pass
                claimed = _at_the_newest(claimed)
                if not (await self.aget_state(_plain(claimed))).interrupts:
                    return  # who asks has the answer already, and the first one counts
            chunks = super().astream(input, claimed, control=attempt.control, **options)
            async with aclosing(_until_stopped(chunks, attempt)) as stream:
                async for chunk in stream:
                    yield chunk

    async def give_up(self, run_id: str, crashes: int) -> None:
        """End a run whose processes die one after another at the same place; a person may resume it.

        Raises RunBusy where somebody goes on with it after all.
        """
        config: RunnableConfig = {"configurable": {"thread_id": run_id}}
        await self.services.open()
        with contextlib.suppress(CrashedTooOften):
            async with self._attempt(run_id, config, RunControl()) as (attempt, _):
                values = (await self.aget_state(config)).values
                calls = [call for call in values.get("pending_actions") or () if isinstance(call, Mapping)]
                begun = ", ".join(f"{call.get('name')} ({call.get('id')})" for call in calls) or "no call was open"
                raise CrashedTooOften(
                    f"{crashes} processes in a row died with this run after its step {attempt.step} ({begun}), none of "
                    "them having saved another; every saved step is kept, and it is not tried again by itself"
                )

    async def _may_run(self, run_id: str, given: Any, config: RunnableConfig) -> bool:
        """Whether there is anything to do. Raises AlreadyDecided for an answer that nobody asked for, Refused for a run
        of a job that this process does not know; it is left for one that does."""
        run = await self.services.runs.get(run_id)
        if run.job and run.epoch:
            self.services.job(run.job)
        if _answers(given):
            # An answer to an old pause, named by its checkpoint, begins a branch there, whatever came of the run since.
            named = bool(config["configurable"].get("checkpoint_id"))
            snapshot = await self.aget_state(config if named else _plain(config))
            if (run.status in TERMINAL and not named) or not snapshot.interrupts:
                raise AlreadyDecided(
                    f"run {short(run_id)} does not wait for an answer (it is {run.standing}); nothing was changed"
                )
        return run.status != "cancelled" or bool(config["configurable"].get(RESUME_KEY))

    async def _is_superseded(self, config: RunnableConfig) -> bool:
        """Whether the config names a checkpoint that the run has moved past."""
        named = config["configurable"].get("checkpoint_id")
        if not named:
            return False
        newest = (await self.aget_state(_plain(config))).config["configurable"]
        return bool(newest.get("checkpoint_id") != named)

    @asynccontextmanager
    async def _attempt(
        self, run_id: str, config: RunnableConfig, control: RunControl
    ) -> AsyncIterator[tuple[Attempt, RunnableConfig]]:
        services = self.services
        claim = await services.runs.claim(run_id, this_process(services.label))
        attempt = Attempt(
            run_id,
            claim,
            control=control,
            runs=services.runs,
            saved=services.saved,
            heartbeat_seconds=services.settings.heartbeat_seconds,
        )
        services.attempts[run_id] = attempt
        beating = asyncio.create_task(attempt.keep_alive())
        claimed = {**config, "configurable": {**config["configurable"], EPOCH_KEY: claim.epoch}}
        error: BaseException | None = None
        try:
            if claim.former is not None:
                await self._take_over(attempt, config)
            if claim.former is None or is_gone(claim.former):
                await services.workspaces.discard_former(run_id, claim.epoch)
            yield attempt, cast("RunnableConfig", claimed)
        except BaseException as raised:
            error = raised
            raise
        finally:
            attempt.stop()
            beating.cancel()
            await _shielded(self._settle(attempt, config, error))

    async def _take_over(self, attempt: Attempt, config: RunnableConfig) -> None:
        """After a crash: compare the ledger with the checkpoint."""
        snapshot = await self.aget_state(_plain(config))
        pending = snapshot.values.get("pending_actions") or ()
        open_calls = {str(call["id"]) for call in pending if isinstance(call, Mapping)}
        orphans = await self.services.execution.settle_orphans(attempt.run_id, open_calls, epoch=attempt.epoch)
        attempt.unknown = [f"find out what became of {each.tool} ({each.call_id})" for each in orphans]

    async def _settle(self, attempt: Attempt, config: RunnableConfig, error: BaseException | None) -> None:
        services, run_id = self.services, attempt.run_id
        services.attempts.pop(run_id, None)
        await attempt.warm.aclose()
        services.saved.pop((run_id, attempt.epoch), None)
        try:
            if isinstance(error, Fenced) or attempt.overtaken:
                await services.runs.stopped(run_id, attempt.epoch)
            else:
                await self._hand_over(attempt, config, error)
            await services.trace.finish(run_id, attempt.epoch)
        except DevfixError as trouble:
            _log.warning("run %s could not be settled: %s; it reads as crashed and can be resumed", run_id, trouble)

    async def _hand_over(self, attempt: Attempt, config: RunnableConfig, error: BaseException | None) -> None:
        services, run_id = self.services, attempt.run_id
        try:
            if finish := getattr(self.checkpointer, "finish", None):
                await finish(run_id, attempt.epoch)
        except Fenced:
            pass
        except Unserializable as trouble:  # it would come again at each further try
            error = error or trouble
        standing, report = await self._outcome(attempt, config, error)
        report = report.model_copy(update={"left": [*report.left, *attempt.unknown]})
        due_seconds = _due_seconds(error, attempt) if standing.status == "queued" else None
        settled = await services.runs.settle(
            run_id, attempt.epoch, standing, report.model_dump(), due_seconds=due_seconds
        )
        if settled:
            await services.workspaces.leave(run_id, attempt.epoch, ended=standing.status in TERMINAL)

    async def _outcome(
        self, attempt: Attempt, config: RunnableConfig, error: BaseException | None
    ) -> tuple[Standing, Report]:
        snapshot = None if isinstance(error, InvalidState) else await self.aget_state(_plain(config))
        standing = _standing_after(error, attempt, snapshot)
        if standing.status == "failed" and error is not None:
            values = snapshot.values if snapshot else {}
            return standing, report_on_error(attempt.run_id, standing, error, values, begun=attempt.step > 0)
        report = report_on_state(attempt.run_id, standing, snapshot.values if snapshot else {})
        return standing, _with_what_was_cut_off(report, attempt) if standing.status == "cancelled" else report


_PUT_DOWN = (GraphDrained, asyncio.CancelledError, GeneratorExit, KeyboardInterrupt, OutOfService)
"""What ends an attempt and leaves the run to whoever goes on with it; nothing of it is the run's own failure."""


def _due_seconds(error: BaseException | None, attempt: Attempt) -> float | None:
    """When a worker goes on with a run that was put down: not at all where a person put it down."""
    if attempt.control.drain_requested:
        return 0.0
    return AWAY_SECONDS if isinstance(error, OutOfService) else None


def _standing_after(error: BaseException | None, attempt: Attempt, snapshot: StateSnapshot | None) -> Standing:
    """How an attempt ended. Only a recorded cancel, or the dev server's own word for one, counts as cancelled."""
    if attempt.cancelled_by or _is_users_cancel(error):
        return Standing("cancelled", "by_person")
    if error is None:
        return _standing_of(snapshot)
    if isinstance(error, _PUT_DOWN):
        return Standing("queued", "released")
    if isinstance(error, InvalidState):
        return Standing("failed", "invalid_state")
    if isinstance(error, Refused) and snapshot is not None and snapshot.interrupts:
        return _standing_of(snapshot)
    return Standing("failed", "internal")


def _with_what_was_cut_off(report: Report, attempt: Attempt) -> Report:
    """A cancelled run's report: by whom, and which calls were under way."""
    calls = [f"{what} ({call_id})" for call_id, what in attempt.under_way.items()]
    summary = f"{attempt.cancelled_by or 'A person'} cancelled the run"
    if not calls:
        return report.model_copy(update={"summary": f"{summary}."})
    left = [f"{call}: stopped before it ended" for call in calls]
    return report.model_copy(update={"summary": f"{summary} during {', '.join(calls)}.", "left": [*left, *report.left]})


def _standing_of(snapshot: StateSnapshot | None) -> Standing:
    if snapshot is None:
        return Standing("failed", "internal")
    if snapshot.interrupts:
        escalates = snapshot.values.get("decision") == "escalate"
        return Standing("waiting", "escalation" if escalates else "approval")
    standing = standing_of(snapshot.values.get("status"), snapshot.values.get("reason"))
    if standing.status in TERMINAL:
        return standing
    if snapshot.next:
        return Standing("queued", "released")
    # A graph that keeps no status is done at its end; one that does has come to an end that nobody decided on.
    return Standing("failed", "internal") if "status" in snapshot.values else Standing("completed", "done")


def _is_users_cancel(error: BaseException | None) -> bool:
    """The dev server cancels a run at a user's word with one of its own exceptions inside."""
    inner = error.args[0] if isinstance(error, asyncio.CancelledError) and error.args else None
    return type(inner).__name__ in {"UserInterrupt", "UserRollback"}


async def _until_stopped(chunks: AsyncIterator[Any], attempt: Attempt) -> AsyncGenerator[Any, None]:
    """The chunks, until the attempt is stopped from outside; what runs then is cancelled."""
    following = partial(anext, chunks, _END)
    async with aclosing(cast("AsyncGenerator[Any, None]", chunks)):
        try:
            while (chunk := await attempt.unless_stopped(following)) is not _END:
                yield chunk
        except Stopped:
            if attempt.overtaken:
                raise Fenced("another attempt holds this run now; nothing this one did since was saved") from None


_END = object()


async def _shielded(settling: Any) -> None:
    """Let the settlement finish also while the task that runs it is being cancelled."""
    task = asyncio.ensure_future(settling)
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled():
                raise
            continue
    task.result()


def _answers(given: Any) -> bool:
    return isinstance(given, Command) and given.resume is not None


def _at_the_newest(config: RunnableConfig) -> RunnableConfig:
    """The same attempt, without the checkpoint that the caller named."""
    left = {name: value for name, value in config["configurable"].items() if not name.startswith("checkpoint_")}
    return {**config, "configurable": left}


def _plain(config: RunnableConfig) -> RunnableConfig:
    """The run's newest checkpoint, whatever checkpoint the caller began from."""
    return {"configurable": {"thread_id": config["configurable"]["thread_id"]}}


def _facts(given: Any, services: Services) -> dict[str, Any]:
    """What the registry shows of a run before its first step: what it was started with, and what that leaves open."""
    if not isinstance(given, Mapping):
        return {}
    name = str(given.get("job") or services.settings.job)
    job = services.jobs.get(name)  # an unknown one is refused, with a sentence, by the first step
    model = given.get("model") or services.settings.model or (job.default_model if job else None)
    return {"goal": str(given.get("goal") or ""), "job": name, "model": model and str(model)}


def new_run_id() -> str:
    return str(uuid.uuid4())
