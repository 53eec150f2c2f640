"""Recovery, seeded: each state of the ledger, with the checkpoint before the effect and after it, met by a new process.

The rows are put there as a kill would have left them; then a process that knows nothing goes on. What counts is what
stands at the sink and how the run says it stands.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from state.approvals import Decision, digest_of
from state.holder import Holder, this_process
from state.ledger import Intent
from tests.helpers.app import Driver, application_on, calls
from tests.helpers.notes import letters
from tools.execution import effect_key

ADA = {"to": "ada", "text": "hello"}
BOB = {"to": "bob", "text": "hello"}
DEAD = this_process("killed").model_copy(update={"pid": 4_190_000, "started": "1"})
ELSEWHERE = this_process("far").model_copy(update={"host": "elsewhere"})


async def answer(driver: Driver, kind: str = "approve") -> None:
    for row in await driver.services.approvals.of(driver.run_id):
        if row.decision is None:
            decision = Decision.model_validate({"type": kind})
            await driver.services.approvals.decide(driver.run_id, row.question.call_id, decision, by="eve")


async def first_call(driver: Driver) -> str:
    return (await driver.services.approvals.of(driver.run_id))[0].question.call_id


async def seed(driver: Driver, call: str, state: str, holder: Holder) -> None:
    """The effect's row as an attempt of `holder` left it when it was killed."""
    services, run_id = driver.services, driver.run_id
    claim = await services.runs.claim(run_id, holder)
    digest = digest_of("post", {**ADA, "bound": {}})
    intent = Intent(run_id, call, "post", digest, {**ADA, "bound": {}}, effect_key(run_id, call))
    if state != "none":
        await services.ledger.claim(intent, epoch=claim.epoch)
    if state == "settled":
        await services.ledger.settle(run_id, call, {"content": "posted to ada", "facts": dict(ADA)}, epoch=claim.epoch)
    if state == "unknown":
        await services.ledger.doubt(run_id, call, epoch=claim.epoch)
    if state == "absent":
        await services.ledger.missed(run_id, call, epoch=claim.epoch)
    async with driver.application.database.transaction() as connection:
        await connection.execute("UPDATE runs SET heartbeat_at = now() - interval '1 hour'")


def arrived(driver: Driver, call: str) -> None:
    """The sink has it, under the effect's key."""
    with driver.letters.open("a") as sink:
        sink.write(json.dumps({**ADA, "key": effect_key(driver.run_id, call)}) + "\n")


def count(driver: Driver, to: str = "ada") -> int:
    return sum(letter["to"] == to for letter in letters(driver.letters))


async def fresh(driver: Driver, database_url: str) -> Driver:
    another = Driver(application_on(database_url, driver.folder), driver.folder)
    another.run_id = driver.run_id
    return another


BEFORE: Mapping[tuple[str, bool, str], tuple[int, str, str | None]] = {
    # ledger, at the sink already, who held it: letters in the end, how the run stands, what the ledger says
    ("none", False, "dead"): (1, "completed: done", "settled"),
    ("none", False, "elsewhere"): (1, "completed: done", "settled"),
    ("claimed", False, "dead"): (1, "completed: done", "settled"),
    ("claimed", True, "dead"): (1, "completed: done", "settled"),
    ("claimed", False, "elsewhere"): (0, "waiting: escalation", "unknown"),
    ("claimed", True, "elsewhere"): (1, "completed: done", "settled"),
    ("absent", False, "dead"): (1, "completed: done", "settled"),
    ("absent", True, "elsewhere"): (1, "completed: done", "settled"),
    ("settled", True, "dead"): (1, "completed: done", "settled"),
    ("settled", True, "elsewhere"): (1, "completed: done", "settled"),
    ("unknown", False, "dead"): (0, "waiting: escalation", "unknown"),
    ("unknown", True, "dead"): (1, "waiting: escalation", "unknown"),
}


@pytest.mark.parametrize(("state", "there", "who"), BEFORE)
async def test_with_the_checkpoint_before_the_effect(
    driver: Driver, database_url: str, state: str, there: bool, who: str
) -> None:
    """The call is approved and has no result yet."""
    await driver.start([calls(("post", ADA)), "done"])
    call = await first_call(driver)
    await answer(driver)
    await seed(driver, call, state, DEAD if who == "dead" else ELSEWHERE)
    if there:
        arrived(driver, call)
    another = await fresh(driver, database_url)
    run = await another.go_on()
    sent, standing, kept = BEFORE[state, there, who]
    assert (count(driver), str(run.standing)) == (sent, standing)
    assert [effect.state for effect in await another.services.ledger.of(driver.run_id)] == [kept]
    await another.services.close()


AFTER: Mapping[str, tuple[str, str | None]] = {
    # what the ledger says, though the state has the result: what it says in the end, and what the report names
    "settled": ("settled", None),
    "claimed": ("unknown", "find out what became of post"),
    "unknown": ("unknown", None),
    "absent": ("absent", None),
    "gone": ("", None),
}


@pytest.mark.parametrize("state", AFTER)
async def test_with_the_checkpoint_after_the_effect(driver: Driver, database_url: str, state: str) -> None:
    """The result is in the state: nothing is done again, whatever the ledger says, and a disagreement is reported."""
    await driver.start([calls(("post", ADA)), calls(("post", BOB)), "done"], wanted=2)
    call = await first_call(driver)
    await answer(driver)
    waiting = await driver.go_on()
    assert (str(waiting.standing), count(driver)) == ("waiting: approval", 1)
    await seed(driver, "none-of-its-own", "none", DEAD)
    async with driver.application.database.transaction() as connection:
        if state == "gone":
            await connection.execute("DELETE FROM effects WHERE call_id = %s", (call,))
        else:
            await connection.execute(
                "UPDATE effects SET state = %s, receipt = CASE WHEN %s = 'settled' THEN receipt END WHERE call_id = %s",
                (state, state, call),
            )
    another = await fresh(driver, database_url)
    waiting = await another.go_on()
    kept, named = AFTER[state]
    assert str(waiting.standing) == "waiting: approval"
    left = str((waiting.report or {}).get("left"))
    assert (named in left) if named else ("find out" not in left)
    await answer(another)
    ended = await another.go_on()
    assert (str(ended.standing), count(driver), count(driver, "bob")) == ("completed: done", 1, 1)
    states = {effect.call_id: effect.state for effect in await another.services.ledger.of(driver.run_id)}
    assert states.get(call, "") == kept
    await another.services.close()


@pytest.mark.parametrize("state", ["claimed", "settled", "unknown"])
async def test_what_a_person_decides_where_nobody_could_know(driver: Driver, database_url: str, state: str) -> None:
    """They look, and say: again. One more letter, under a key of its own; without that word, none."""
    await driver.start([calls(("post", ADA)), calls(("post", ADA)), calls(("post", ADA)), "done"], wanted=2)
    call = await first_call(driver)
    await answer(driver)
    await seed(driver, call, state, ELSEWHERE)
    another = await fresh(driver, database_url)
    waiting: Any = await another.go_on()
    while "escalation" in str(waiting.standing):
        await answer(another)
        waiting = await another.go_on()
    assert count(driver) == 0
    rows = await another.services.approvals.of(driver.run_id)
    question = next(row for row in rows if row.decision is None).question
    (interrupt,) = (await another.agent.aget_state(another.config)).interrupts
    assert "in the ledger" in interrupt.value["action_requests"][0]["description"]
    decision = Decision(type="approve", again=True)
    await another.services.approvals.decide(driver.run_id, question.call_id, decision, by="eve")
    await another.go_on()
    assert count(driver) == 1
    await another.services.close()
