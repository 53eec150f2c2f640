"""The safeguards: what each prevents, how it is taken out, and the trial that must see that it is gone."""

from __future__ import annotations

from typing import NamedTuple

from tests.helpers.removal import Edit


class Safeguard(NamedTuple):
    name: str
    prevents: str
    trial: str
    removal: tuple[Edit, ...]
    many_locks: bool = False
    """Each part of the removal is a lock of its own on the same door: only without all is anything to be seen."""


RUNS, OUTBOX = "state/runs.py", "state/outbox.py"
EXECUTION, APPROVALS, SAVER = "tools/execution.py", "state/approvals.py", "state/checkpointer.py"
STEP = "state/migrations/0021_one_row_is_looked_at.sql"
CLAIM = "state/migrations/0020_an_effect_is_one_statement.sql"
EFFECT = "state/migrations/0021_one_row_is_looked_at.sql"

SAFEGUARDS = (
    Safeguard(
        "claim",
        "two processes advance a run",
        "two_at_one_run",
        (
            Edit(
                RUNS,
                '        if row["alive"]:\n            raise RunBusy(',
                "        if False:\n            raise RunBusy(",
            ),
        ),
    ),
    Safeguard(
        "fence of a save",
        "a process that wakes up saves beside its successor",
        "frozen_before_a_save",
        (
            Edit(
                STEP,
                "    WHERE run_id = run AND epoch = attempt\n    RETURNING",
                "    WHERE run_id = run\n    RETURNING",
            ),
        ),
    ),
    Safeguard(
        "fence of an effect",
        "a process that wakes up begins what its successor is about to do",
        "woken_elsewhere",
        (
            Edit(CLAIM, "    PERFORM hold_run(run, attempt);\n    RETURN QUERY", "    RETURN QUERY"),
            Edit(EFFECT, "    PERFORM hold_run(run, attempt);\n    IF standing", "    IF standing"),
        ),
    ),
    Safeguard(
        "one save, one step",
        "a commit whose answer was lost is saved as a second step",
        "cut_off_in_a_save",
        (Edit(STEP, "    IF FOUND THEN\n        RETURN following;\n    END IF;\n", ""),),
    ),
    Safeguard(
        "patience of a save",
        "a lost connection ends a run",
        "cut_off_in_a_save",
        (
            Edit(
                SAVER,
                "await patiently(lambda: self._database.call(*calls, *records))",
                "await self._database.call(*calls, *records)",
            ),
            Edit(
                "graph/durable.py",
                "GeneratorExit, KeyboardInterrupt, OutOfService)",
                "GeneratorExit, KeyboardInterrupt)",
            ),
        ),
        many_locks=True,
    ),
    Safeguard(
        "an end is settled",
        "a process that dies after its last save leaves a run that nobody reports on",
        "killed_at_the_end",
        (
            Edit(STEP, "CASE WHEN inside THEN 'running' ELSE standing END", "standing"),
            Edit(STEP, "reason = CASE WHEN NOT inside THEN cause END", "reason = cause"),
        ),
    ),
    Safeguard(
        "lease",
        "a frozen process keeps its run for ever",
        "frozen_after_an_intent",
        (
            Edit(
                "state/migrations/0003_runs.sql",
                "        AND beat > clock_timestamp() - make_interval(secs => lease)\n",
                "",
            ),
            Edit(
                "state/migrations/0012_one_look_at_the_locks.sql",
                "        AND beat > clock_timestamp() - make_interval(secs => lease)\n",
                "",
            ),
        ),
    ),
    Safeguard(
        "end of a transaction that takes too long",
        "a process frozen in a transaction keeps everybody from its run",
        "frozen_in_a_transaction",
        (
            Edit("state/database.py", "set_config('idle_in_transaction_session_timeout'", "set_config('devfix.idle'"),
            Edit("state/database.py", "set_config('transaction_timeout'", "set_config('devfix.whole'"),
        ),
    ),
    Safeguard(
        "rescue",
        "a run whose process died waits for ever",
        "killed_after_an_effect",
        (Edit("scripts/worker.py", "                await self._see_to(each)\n", "                continue\n"),),
    ),
    Safeguard(
        "limit of crashes",
        "a run kills one process after another",
        "killed_again_and_again",
        (Edit("scripts/worker.py", "crashes >= self._application.settings.max_crashes:", "crashes < 0:"),),
    ),
    Safeguard(
        "writes held back for a moment only",
        "a node that had ended runs again",
        "killed_beside_a_sibling",
        (Edit(SAVER, "_FLUSH_AFTER_SECONDS = 0.05", "_FLUSH_AFTER_SECONDS = 3600"),),
    ),
    Safeguard(
        "workspace of the attempt",
        "who was overtaken writes into its successor's files",
        "late_writer",
        (Edit("tools/workspaces.py", 'run_id / str(epoch) / "workspace"', 'run_id / "shared" / "workspace"'),),
    ),
    Safeguard(
        "receipt before the next step",
        "a person is asked about an effect that was confirmed",
        "killed_after_a_receipt",
        (
            Edit(
                EXECUTION,
                "        effect = await self._ledger.settle(context.run_id, context.call_id, stored, epoch=epoch)\n"
                "        return Performed(await result_of(effect.receipt or stored, context))",
                "        return Performed(await result_of(stored, context))",
            ),
        ),
    ),
    Safeguard(
        "the other side is asked",
        "an effect without a receipt is done again",
        "killed_after_an_effect",
        (
            Edit(
                EXECUTION,
                'return _Answer(True, None if found is None else ToolResult(content="", facts=dict(found)).facts)',
                "return _Answer(True, None)",
            ),
        ),
    ),
    Safeguard(
        "one key for each try",
        "what was done is not found",
        "killed_after_an_effect",
        (
            Edit(
                EXECUTION,
                'return hashlib.sha256(f"{run_id}\\0{call_id}".encode()).hexdigest()[:32]',
                "return __import__('uuid').uuid4().hex",
            ),
        ),
    ),
    Safeguard(
        "Message-ID of the key",
        "a mail that arrived is sent again",
        "killed_after_a_mail",
        (
            Edit(
                "tools/outward/email.py",
                'return f"<{context.key}@',
                "return f\"<{__import__('uuid').uuid4().hex}@",
            ),
        ),
    ),
    Safeguard(
        "marker tag of a push",
        "a branch that was merged and removed comes back",
        "killed_after_a_push",
        (
            Edit(
                "tools/outward/git_push.py",
                'refs = (f"{commit}:{branch}", f"{commit}:{tag}")',
                'refs = (f"{commit}:{branch}",)',
            ),
        ),
    ),
    Safeguard(
        "end of the frozen one",
        "who froze before the effect does it after its successor",
        "frozen_after_an_intent",
        (
            Edit(
                EXECUTION,
                'return "dead" if await _ended(former.holder) else "unknown"',
                'return "dead"',
            ),
        ),
    ),
    Safeguard(
        "who may live elsewhere",
        "what a slow machine is still at is done here too",
        "begun_elsewhere",
        (
            Edit(
                EXECUTION,
                'if answer.known and (fate == "dead" or effect.state == "absent"):',
                "if answer.known:",
            ),
        ),
    ),
    Safeguard(
        "who performs is in the row",
        "the second of three processes does it after the third",
        "frozen_while_it_went_on",
        (
            Edit(
                EXECUTION,
                "        await self._ledger.retake(context.run_id, context.call_id, epoch=epoch)\n",
                "",
            ),
        ),
    ),
    Safeguard(
        "absent is not gone",
        "a slow server does it twice",
        "delivered_late",
        (
            Edit(
                EXECUTION,
                "        await self._ledger.missed(context.run_id, context.call_id, epoch=epoch)\n",
                "        await self._ledger.release(context.run_id, context.call_id, epoch=epoch)\n",
            ),
        ),
    ),
    Safeguard(
        "equal effects",
        "the model asks twice, and it is done twice",
        "asked_for_twice",
        (Edit(EFFECT, "    IF FOUND OR once_more THEN", "    IF true THEN"),),
    ),
    Safeguard(
        "what was approved",
        "what a person said yes to is not what is done",
        "changed_after_the_approval",
        (
            Edit(APPROVALS, "    if row.question.digest != question.digest:\n", "    if False:\n"),
            Edit("graph/nodes/approval.py", 'granted = {"args": row.granted,', 'granted = {"args": call.args,'),
            Edit("graph/nodes/tool_execute.py", "and not await _is_granted(task, services)", "and False"),
        ),
        many_locks=True,
    ),
    Safeguard(
        "first answer",
        "each of many people believes that their answer counts",
        "many_answers_at_once",
        (
            Edit(APPROVALS, "    if row.decision is not None:\n        raise", "    if False:\n        raise"),
            Edit(APPROVALS, "AND call_id = %s AND decision IS NULL RETURNING *", "AND call_id = %s RETURNING *"),
        ),
        many_locks=True,
    ),
    Safeguard(
        "end of a question",
        "an answer that comes too late is acted on",
        "answered_too_late",
        (Edit(APPROVALS, "    if row.expired(now):\n        raise", "    if False:\n        raise"),),
    ),
    Safeguard(
        "savepoint of the job",
        "an answer is lost because a job is there already",
        "a_job_is_there_already",
        (
            Edit(
                "state/queue.py",
                "            async with connection.transaction():\n                await job.defer_async(",
                "            if True:\n                await job.defer_async(",
            ),
        ),
    ),
    Safeguard(
        "letter with the settlement",
        "a process that dies in between tells nobody",
        "killed_at_the_end",
        (
            Edit(
                RUNS,
                "            if self._announce and (row := await cursor.fetchone()):\n"
                "                await self._announce(connection, Settled(",
                "            row = await cursor.fetchone()\n            settled = row and (Settled(",
            ),
            Edit(
                RUNS,
                "        await self._unlock(run_id, epoch)\n        return cursor.rowcount == 1\n",
                "        if self._announce and settled:\n"
                "            async with self._database.transaction() as connection:\n"
                "                await self._announce(connection, settled)\n"
                "        await self._unlock(run_id, epoch)\n        return cursor.rowcount == 1\n",
            ),
        ),
    ),
    Safeguard(
        "one sender a letter",
        "a message that is being sent is sent by others too",
        "a_slow_receiver",
        (Edit(OUTBOX, ' if row["state"] == "due" or self._is_abandoned(row)), None)', "), None)"),),
    ),
    Safeguard(
        "a patch as a whole",
        "a patch that does not fit is applied in part",
        "a_patch_that_does_not_fit",
        (
            Edit(
                "tools/carry.py",
                "    def perform(self) -> Applied:\n        self._refuse_conflicts()\n",
                "    def perform(self) -> Applied:\n",
            ),
        ),
    ),
)
