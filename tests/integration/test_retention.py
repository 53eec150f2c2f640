"""What is kept of runs that ended long ago, and that nothing goes which somebody still needs."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.bootstrap import Application
from scripts.branching import branch
from scripts.facts import facts_of
from scripts.pruning import prune_runs
from scripts.registers import Registers
from state.errors import ArtifactMissing, Refused, StepNotFound, Unserializable
from state.holder import this_process
from state.ids import short
from state.ledger import Intent
from state.retention import SAFE_HOURS, Retention
from state.trace import Call
from tests.helpers.app import Driver, calls
from tests.helpers.graphs import chain

LONG = "x" * 30_000
POST_ADA = ("post", {"to": "ada", "text": "hello"})


def retention(application: Application) -> Retention:
    return Retention(database=application.database, snapshots=application.services.snapshots)


async def ended(application: Application, folder: Path, name: str) -> Driver:
    """A run of many steps with files of its own, and an effect that was approved."""
    driver = Driver(application, folder)
    turns = [
        calls(("note", {"path": name, "text": f"{name} {LONG}"})),
        calls(("fetch", {"kilobytes": 64})),
        calls(POST_ADA),
    ]
    await driver.start(turns)
    assert str((await driver.approved()).standing) == "completed: done"
    return driver


async def age(application: Application, *, hours: float) -> None:
    async with application.database.transaction() as connection:
        await connection.execute("UPDATE artifacts SET created_at = created_at - make_interval(hours => %s)", (hours,))
        await connection.execute("UPDATE runs SET updated_at = updated_at - make_interval(hours => %s)", (hours,))


async def count(application: Application, table: str) -> int:
    async with application.database.transaction() as connection:
        row = await (await connection.execute(f"SELECT count(*) AS number FROM {table}")).fetchone()
    return int(row["number"]) if row else 0


async def test_b64_a_pruned_run_keeps_its_status_its_trace_in_short_and_its_effects(
    application: Application, tmp_path: Path
) -> None:
    """What it did, how it ended and what it cost can be asked for ever; its states and files are gone."""
    driver = await ended(application, tmp_path, "old")
    services, run_id = application.services, driver.run_id
    before = await driver.run()
    effects, calls_made = await services.ledger.of(run_id), await services.trace.of(run_id)
    steps = await application.steps.of(run_id)
    await age(application, hours=SAFE_HOURS + 1)

    assert await retention(application).ended(days=30) == []
    assert await retention(application).prune(await retention(application).ended(days=1)) == [run_id]
    swept = await retention(application).sweep()

    after = await driver.run()
    assert (after.standing, after.report, after.step) == (before.standing, before.report, before.step)
    assert after.pruned_at is not None
    assert (await facts_of(application, after))["pruned_at"] == after.pruned_at
    assert await services.ledger.of(run_id) == effects
    kept = await services.trace.of(run_id)
    assert [(each.name, each.seconds, each.error) for each in kept] == [
        (each.name, each.seconds, each.error) for each in calls_made
    ]
    assert [(step.number, step.nodes, step.at) for step in await application.steps.of(run_id)] == [
        (step.number, step.nodes, step.at) for step in steps
    ]
    for table in ("checkpoints", "checkpoint_blobs", "checkpoint_writes", "artifacts"):
        assert await count(application, table) == 0, table
    assert swept.artifacts > 0
    assert await retention(application).prune([run_id]) == []


async def test_a_pruned_run_can_neither_be_gone_on_with_nor_branched_from(
    application: Application, tmp_path: Path
) -> None:
    """Who tries is told since when its states are gone."""
    driver = await ended(application, tmp_path, "old")
    await retention(application).prune([driver.run_id])
    with pytest.raises(Refused, match="was pruned on"):
        await driver.go_on()
    with pytest.raises(StepNotFound, match="was pruned on"):
        await application.steps.get(driver.run_id, 3)


async def test_a_run_that_has_not_ended_is_never_pruned(application: Application, tmp_path: Path) -> None:
    """Neither one that waits, nor one that a process holds."""
    driver = Driver(application, tmp_path)
    await driver.start([calls(POST_ADA)])
    await age(application, hours=1000)
    assert await retention(application).ended(days=0) == []
    assert await retention(application).prune([driver.run_id]) == []
    registers = Registers(
        settings=application.settings,
        database=application.database,
        runs=application.services.runs,  # type: ignore[arg-type]
        steps=application.steps,
    )
    with pytest.raises(Refused, match="has not ended"):
        await prune_runs(registers, [driver.run_id], older_than_days=30, dry_run=False)
    assert str((await driver.approved()).standing) == "completed: done"


async def test_what_another_run_needs_is_kept(application: Application, tmp_path: Path) -> None:
    """A branch goes on with the files and results of its parent, which is pruned; what only the parent had goes."""
    parent = await ended(application, tmp_path, "shared")
    step = next(each for each in await application.steps.of(parent.run_id) if each.nodes == ["review"])
    later = (await application.steps.of(parent.run_id))[-1].snapshot
    child = await branch(application, await parent.run(), step, message=None)
    other = await ended(application, tmp_path, "only")
    snapshots = [await driver_snapshot(application, driver) for driver in (parent, other)]
    assert later == snapshots[0] != snapshots[1]
    await retention(application).prune([parent.run_id, other.run_id])
    await age(application, hours=SAFE_HOURS + 1)

    assert (await retention(application).sweep()).artifacts > 0

    driver = Driver(application, tmp_path)
    driver.run_id = child.run_id
    await driver.go_on()
    assert (await driver.run()).reason == "approval"
    assert str((await driver.approved()).standing) == "completed: done"
    assert f"shared {LONG}".encode() == await application.services.snapshots.read(snapshots[0], "shared")
    with pytest.raises(ArtifactMissing):
        await application.services.snapshots.read(snapshots[1], "only")


async def driver_snapshot(application: Application, driver: Driver) -> str:
    return str((await application.steps.of(driver.run_id))[-1].snapshot)


async def test_what_is_stored_again_is_not_swept_away(application: Application) -> None:
    """A run that is not saved yet may be about to name it."""
    artifacts = application.services.artifacts
    small, large = b"small", LONG.encode() * 20
    digests = await artifacts.put_many([small, large])
    await age(application, hours=SAFE_HOURS + 1)
    await artifacts.put(small)
    await artifacts.put(large)
    assert (await retention(application).sweep()).artifacts == 0
    await age(application, hours=SAFE_HOURS + 1)
    assert (await retention(application).sweep()).artifacts == 2
    assert await artifacts.missing(digests) == set(digests)


@pytest.mark.parametrize("told", ["", "words " * 500], ids=["short", "compressed"])
async def test_what_a_call_or_an_effect_names_is_not_swept_away(application: Application, told: str) -> None:
    """In its answer, its arguments or its receipt, however those are stored."""
    services = application.services
    named = await services.artifacts.put_many([b"answer", b"arguments", b"receipt"])
    lost = await services.artifacts.put(b"nowhere")
    await services.runs.register("r")
    epoch = (await services.runs.claim("r", this_process("test"))).epoch
    answer, arguments, receipt = [{"told": told, "artifact": digest} for digest in named]
    now = services.now()
    called = Call(
        run_id="r",
        epoch=epoch,
        step=1,
        kind="tool",
        name="post",
        call_id="c",
        request={},
        result=answer,
        started_at=now,
        ended_at=now,
    )
    await services.trace.record(called)
    await services.ledger.claim(Intent("r", "c", "post", "digest", arguments, "key"), epoch=epoch)
    await services.ledger.settle("r", "c", receipt, epoch=epoch)
    await age(application, hours=SAFE_HOURS + 1)
    assert (await retention(application).sweep()).artifacts == 1
    assert await services.artifacts.missing([*named, lost]) == {lost}


async def test_ten_thousand_ended_runs_are_pruned_in_one_go(application: Application) -> None:
    """B64's number, each with steps of its own: the tables are as small as the rows that are kept."""
    graph = chain(application, a=_note)
    await graph.ainvoke({"seen": []}, {"configurable": {"thread_id": "t"}})
    async with application.database.transaction() as connection:
        for table, key in (("runs", "run_id"), ("checkpoints", "thread_id"), ("checkpoint_writes", "thread_id")):
            cursor = await connection.execute(
                "SELECT string_agg(quote_ident(column_name), ', ') AS names FROM information_schema.columns "
                "WHERE table_schema = current_schema() AND table_name = %s AND column_name <> %s",
                (table, key),
            )
            row = await cursor.fetchone()
            names = row["names"] if row else ""
            await connection.execute(
                f"INSERT INTO {table} ({key}, {names}) SELECT 't-' || n, {names} "
                f"FROM {table}, generate_series(1, 10000) AS n WHERE {key} = 't'"
            )
    pruned = await retention(application).prune(await retention(application).ended(days=0))
    assert len(pruned) == 10_001
    assert await count(application, "checkpoints") == await count(application, "checkpoint_writes") == 0
    assert await count(application, "runs") == 10_001


async def _note(state: dict[str, object]) -> dict[str, object]:
    return {"seen": ["note"]}


async def test_a_row_that_is_damaged_is_named(application: Application, tmp_path: Path) -> None:
    """Of which run and which call; what other rows hold can still be read, and no file goes that it may need."""
    driver = await ended(application, tmp_path, "damaged")
    services, run_id = application.services, driver.run_id
    async with application.database.transaction() as connection:
        await connection.execute("UPDATE trace SET result = '\\xc1' WHERE name = 'post' AND run_id = %s", (run_id,))
        await connection.execute("UPDATE approvals SET bound = '\\xc1' WHERE run_id = %s", (run_id,))
        await connection.execute("UPDATE effects SET receipt = '\\x28b52ffd00' WHERE run_id = %s", (run_id,))
    of = f"of run {short(run_id)} can't be read"
    with pytest.raises(Unserializable, match=f"the result of call .* at step .* {of}"):
        await services.trace.of(run_id)
    with pytest.raises(Unserializable, match=f"bound of the question .* {of}"):
        await services.approvals.of(run_id)
    with pytest.raises(Unserializable, match="a row of table effects can't be read"):
        await retention(application).sweep()
