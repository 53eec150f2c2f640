"""The stores in one process's memory, which keep the promise of the real ones: for tests of what needs no database."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime, timedelta

from pydantic import JsonValue

from state.approvals import Approval, Decision, Question, answerable, known_or_refused
from state.artifacts import digest_of, verified
from state.database import SqlCall
from state.errors import Fenced, Refused, RunBusy, RunNotFound
from state.holder import Holder
from state.ids import short
from state.ledger import Effect, Intent, Receipt, matching
from state.runs import GOAL_CHARACTERS, Beat, Claim, Former, Past, Run, the_one
from state.status import TERMINAL, Standing
from state.trace import Call


class _Held:
    def __init__(self, run: Run) -> None:
        self.run = run
        self.attempts: dict[int, Former] = {}
        self.alive = False


class MemoryRuns:
    """As `PostgresRuns`."""

    def __init__(self) -> None:
        self._rows: dict[str, _Held] = {}

    async def register(
        self,
        run_id: str,
        *,
        goal: str = "",
        job: str = "",
        model: str | None = None,
        parent: str | None = None,
        branched_at: int | None = None,
        step: int = 0,
    ) -> None:
        now = datetime.now().astimezone()
        blank = {"report": None, "epoch": 0, "step": step, "holder": None, "cancel_requested_by": None}
        facts = {"job": job, "model": model, "parent": parent, "branched_at": branched_at}
        times = {"created_at": now, "updated_at": now}
        run = Run.model_validate(
            {
                "run_id": run_id,
                "goal": goal[:GOAL_CHARACTERS],
                "status": "queued",
                "reason": "new",
                "cost_usd": 0,
                "tokens": 0,
                **blank,
                **facts,
                **times,
            }
        )
        self._rows.setdefault(run_id, _Held(run))

    async def describe(self, run_id: str, *, goal: str, job: str, model: str) -> None:
        self._change(run_id, goal=goal[:GOAL_CHARACTERS], job=job, model=model)

    async def claim(self, run_id: str, holder: Holder) -> Claim:
        row = self._row(run_id)
        if row.alive:
            raise RunBusy(f"run {short(run_id)} is held by {row.run.holder} (attempt {row.run.epoch})")
        former, before = row.run.holder, row.run.standing
        standing = before if before.status in TERMINAL else Standing("running")
        report = row.run.report if before.status in TERMINAL else None
        self._change(run_id, epoch=row.run.epoch + 1, holder=holder, status=standing.status, reason=standing.reason)
        self._change(run_id, cancel_requested_by=None, report=report)
        row.alive = True
        row.attempts[row.run.epoch] = Former(holder, ended=False)
        return Claim(row.run.epoch, row.run.step, former, before)

    async def beat(self, run_id: str, epoch: int) -> Beat:
        row = self._row(run_id)
        return Beat(row.run.epoch == epoch, row.run.cancel_requested_by if row.run.epoch == epoch else None)

    async def settle(
        self,
        run_id: str,
        epoch: int,
        standing: Standing,
        report: Mapping[str, JsonValue] | None = None,
        *,
        due_seconds: float | None = None,
    ) -> bool:
        row = self._row(run_id)
        if row.run.epoch != epoch:
            return False
        kept = dict(report) if report is not None else row.run.report
        self._change(
            run_id, status=standing.status, reason=standing.reason, report=kept, holder=None, cancel_requested_by=None
        )
        row.alive = False
        await self.stopped(run_id, epoch)
        return True

    async def stopped(self, run_id: str, epoch: int) -> None:
        attempts = self._row(run_id).attempts
        attempts[epoch] = attempts[epoch]._replace(ended=True)

    async def seize(self, run_id: str) -> int | None:
        if run_id not in self._rows:
            return None
        row = self._row(run_id)
        if row.alive:
            raise RunBusy(f"run {short(run_id)} is held by {row.run.holder} (attempt {row.run.epoch})")
        self._change(run_id, epoch=row.run.epoch + 1)
        return row.run.epoch

    async def request_cancel(self, run_id: str, by: str) -> Run:
        row = self._row(run_id)
        if row.run.status in TERMINAL:
            raise Refused(f"run {short(run_id)} has ended ({row.run.standing}); nothing was changed")
        self._change(run_id, cancel_requested_by=by)
        if not row.alive:
            self._change(run_id, status="cancelled", reason="by_person", epoch=row.run.epoch + 1)
        return row.run

    async def attempt(self, run_id: str, epoch: int) -> Former:
        attempts = self._row(run_id).attempts
        if epoch not in attempts:
            raise RunNotFound(f"run {short(run_id)} has no attempt {epoch}")
        return attempts[epoch]

    async def past(self, run_ids: Collection[str]) -> Sequence[Past]:
        rows = [row for run_id, row in self._rows.items() if run_id in run_ids]
        return [
            Past(row.run.run_id, epoch, former)
            for row in rows
            for epoch, former in row.attempts.items()
            if row.run.status in TERMINAL or epoch < max(row.attempts)
        ]

    async def get(self, run_id: str) -> Run:
        return self._row(run_id).run

    async def find(self, prefix: str) -> Run:
        newest = list(await self.newest())
        matching = newest[:1] if prefix == "last" else [run for run in newest if run.run_id.startswith(prefix)]
        return the_one(matching, prefix)

    async def newest(self, limit: int = 50) -> Sequence[Run]:
        return [row.run for row in reversed(self._rows.values())][:limit]

    def lose(self, run_id: str) -> None:
        """The holder's process dies without a word."""
        self._row(run_id).alive = False

    def _row(self, run_id: str) -> _Held:
        if run_id not in self._rows:
            raise RunNotFound(f"there is no run {run_id}")
        return self._rows[run_id]

    def _change(self, run_id: str, **fields: object) -> None:
        row = self._row(run_id)
        row.run = row.run.model_copy(update={**fields, "updated_at": datetime.now().astimezone()})


class MemoryTrace:
    """The same promise in one process's memory."""

    def __init__(self) -> None:
        self.calls: list[Call] = []

    async def record(self, call: Call) -> None:
        self.calls.append(call)

    def record_with_step(self, call: Call) -> None:
        self.calls.append(call)

    def due(self, run_id: str, epoch: int) -> AbstractContextManager[Sequence[SqlCall]]:
        return nullcontext(())

    async def finish(self, run_id: str, epoch: int) -> None:
        """All is there."""

    async def of(self, run_id: str) -> list[Call]:
        return [call for call in self.calls if call.run_id == run_id]


class MemoryLedger:
    """The same promise in one process's memory; `epochs` holds each run's present attempt, `parents` what each run
    branched from."""

    def __init__(self) -> None:
        self.epochs: dict[str, int] = {}
        self.parents: dict[str, str] = {}
        self._rows: dict[tuple[str, str], Effect] = {}

    async def claim(self, intent: Intent, *, epoch: int) -> Effect | None:
        self._hold(intent.run_id, epoch)
        if known := self._rows.get((intent.run_id, intent.call_id)) or self._alike(intent):
            return matching(known, intent)
        self._rows[intent.run_id, intent.call_id] = Effect(
            run_id=intent.run_id,
            call_id=intent.call_id,
            tool=intent.tool,
            digest=intent.digest,
            key=intent.key,
            epoch=epoch,
            state="claimed",
            receipt=None,
            claimed_at=datetime.now(UTC),
            settled_at=None,
        )
        return None

    def _alike(self, intent: Intent) -> Effect | None:
        line = [intent.run_id]
        while (parent := self.parents.get(line[-1])) is not None:
            line.append(parent)
        wanted = (intent.tool, intent.digest)
        alike = [row for row in self._rows.values() if row.run_id in line and (row.tool, row.digest) == wanted]
        return min(alike, key=lambda row: row.state != "settled") if alike and not intent.again else None

    async def alike(self, intent: Intent) -> Effect | None:
        return self._rows.get((intent.run_id, intent.call_id)) or self._alike(intent)

    async def settle(self, run_id: str, call_id: str, receipt: Receipt, *, epoch: int) -> Effect:
        self._hold(run_id, epoch)
        if self._rows[run_id, call_id].state == "settled":
            return self._rows[run_id, call_id]
        return self._change(run_id, call_id, state="settled", receipt=receipt, epoch=epoch)

    async def doubt(self, run_id: str, call_id: str, *, epoch: int) -> Effect:
        self._hold(run_id, epoch)
        if self._rows[run_id, call_id].state != "claimed":
            return self._rows[run_id, call_id]
        return self._change(run_id, call_id, state="unknown", epoch=epoch)

    async def missed(self, run_id: str, call_id: str, *, epoch: int) -> Effect:
        self._hold(run_id, epoch)
        if self._rows[run_id, call_id].state != "claimed":
            return self._rows[run_id, call_id]
        return self._change(run_id, call_id, state="absent", epoch=epoch)

    async def retake(self, run_id: str, call_id: str, *, epoch: int) -> Effect:
        self._hold(run_id, epoch)
        if self._rows[run_id, call_id].state not in {"claimed", "absent"}:
            return self._rows[run_id, call_id]
        return self._change(run_id, call_id, state="claimed", epoch=epoch)

    async def release(self, run_id: str, call_id: str, *, epoch: int) -> None:
        self._hold(run_id, epoch)
        if (effect := self._rows.get((run_id, call_id))) and effect.state == "claimed":
            del self._rows[run_id, call_id]

    async def of(self, run_id: str) -> list[Effect]:
        return [row for row in self._rows.values() if row.run_id == run_id]

    def _hold(self, run_id: str, epoch: int) -> None:
        if self.epochs.get(run_id, epoch) != epoch:
            raise Fenced("another attempt holds this run now; the effect was not begun here")

    def _change(self, run_id: str, call_id: str, **fields: object) -> Effect:
        at = None if fields["state"] == "claimed" else datetime.now(UTC)
        changed = self._rows[run_id, call_id].model_copy(update={**fields, "settled_at": at})
        self._rows[run_id, call_id] = changed
        return changed


class MemoryApprovals:
    """The same promise in one process's memory."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, str], Approval] = {}
        self._awaited: dict[str, list[str]] = {}

    async def ask(self, run_id: str, questions: Sequence[Question], *, ttl_seconds: float | None) -> list[Approval]:
        now = datetime.now(UTC)
        for position, question in enumerate(questions):
            row = Approval(
                run_id=run_id,
                question=question,
                position=position,
                asked_at=now,
                expires_at=None if ttl_seconds is None else now + timedelta(seconds=ttl_seconds),
            )
            self._rows.setdefault((run_id, question.call_id), row)
        self._awaited[run_id] = [question.call_id for question in questions]
        return [known_or_refused(self._rows[run_id, question.call_id], question) for question in questions]

    async def decide(self, run_id: str, call_id: str, decision: Decision, *, by: str, wake: bool = False) -> Approval:
        now = datetime.now(UTC)
        row = answerable(self._rows.get((run_id, call_id)), run_id, call_id, decision, now)
        decided = row.model_copy(update={"decision": decision, "decided_by": by, "decided_at": now})
        self._rows[run_id, call_id] = decided
        return decided

    async def of(self, run_id: str) -> list[Approval]:
        return [row for (run, _), row in self._rows.items() if run == run_id]

    async def answered(self, run_id: str) -> bool:
        now = datetime.now(UTC)
        rows = [self._rows[run_id, call_id] for call_id in self._awaited.get(run_id, ())]
        return bool(rows) and all(row.decision or row.expired(now) for row in rows)


class MemoryArtifacts:
    """Lost with the process."""

    def __init__(self) -> None:
        self._kept: dict[str, bytes] = {}

    async def put(self, data: bytes) -> str:
        digest = digest_of(data)
        self._kept[digest] = data
        return digest

    async def put_many(self, items: Iterable[bytes]) -> list[str]:
        return [await self.put(data) for data in items]

    async def get(self, digest: str) -> bytes:
        return verified(digest, self._kept.get(digest))

    async def get_many(self, digests: Iterable[str]) -> dict[str, bytes]:
        return {digest: await self.get(digest) for digest in digests}

    async def missing(self, digests: Iterable[str]) -> set[str]:
        return set(digests) - self._kept.keys()
