"""The agent on real PostgreSQL: what a run saves, asks, performs and says of itself."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from langgraph.types import Command

from state.approvals import Decision
from state.errors import AlreadyDecided, CallNotFound, DevfixError, InvalidState, RunBusy
from state.holder import this_process
from state.ledger import Intent
from tests.helpers.app import Driver, application_on, calls
from tests.helpers.notes import letters

POST_ADA = ("post", {"to": "ada", "text": "hello"})
POST_BOB = ("post", {"to": "bob", "text": "hello"})


async def another(driver: Driver, database_url: str) -> Driver:
    """A second process's view of the same run, with a database connection of its own."""
    second = Driver(application_on(database_url, driver.folder), driver.folder)
    second.run_id = driver.run_id
    return second


async def asked(driver: Driver) -> list[str]:
    return [row.question.call_id for row in await driver.services.approvals.of(driver.run_id)]


async def decide(driver: Driver, call_id: str, kind: str = "approve", **fields: Any) -> None:
    decision = Decision.model_validate({"type": kind, **fields})
    await driver.services.approvals.decide(driver.run_id, call_id, decision, by="eve")


def sent_to(driver: Driver) -> list[str]:
    return [letter["to"] for letter in letters(driver.letters)]


async def tool_results(driver: Driver) -> dict[str, str]:
    messages = (await driver.state())["messages"]
    return {record["tool_call_id"]: record["content"] for record in messages if record["type"] == "tool"}


async def test_a_run_asks_before_an_effect_and_performs_it_once(driver: Driver) -> None:
    """A gated call waits for a person; approved, it happens once and the run is completed on evidence."""
    waiting = await driver.start([calls(POST_ADA)])
    assert str(waiting.standing) == "waiting: approval"
    assert letters(driver.letters) == []

    ended = await driver.approved()

    assert str(ended.standing) == "completed: done"
    assert sent_to(driver) == ["ada"]
    assert [effect.state for effect in await driver.services.ledger.of(driver.run_id)] == ["settled"]
    steps = await driver.application.steps.of(driver.run_id)
    assert [step.number for step in steps] == list(range(1, len(steps) + 1))
    assert [step.nodes for step in steps] == [
        [],
        ["__start__"],
        ["plan"],
        ["act"],
        ["approval"],
        ["tool_execute"],
        ["review"],
    ]


@pytest.mark.parametrize("odd", ["half \ud83d a character", "a NUL \0"])
async def test_text_that_the_database_has_no_form_for_ends_no_run(driver: Driver, odd: str) -> None:
    """In an answer, a call's name and arguments, the goal, a person's name: it is kept, shown, and reaches the sink."""
    looks = calls(("look", {"what": odd}), (odd, {odd: odd}), content=odd)
    await driver.start([looks, calls(("post", {"to": odd, "text": odd}))], goal=odd)
    (call,) = await asked(driver)
    decision = Decision(type="approve", message=odd)
    await driver.services.approvals.decide(driver.run_id, call, decision, by=odd)
    assert str((await driver.go_on()).standing) == "completed: done"
    assert sent_to(driver) == [odd]


async def test_b01_answers_in_reverse_order_reach_their_own_calls(driver: Driver) -> None:
    """Two gated calls, B rejected first and A approved after: A runs, B gets a rejection."""
    await driver.start([calls(POST_ADA, POST_BOB), "done"])
    ada, bob = await asked(driver)
    await decide(driver, bob, "reject", message="not bob")
    await decide(driver, ada)
    await driver.go_on()
    assert sent_to(driver) == ["ada"]
    assert "not bob" in (await tool_results(driver))[bob]


async def test_b02_all_gated_calls_of_a_turn_are_shown_in_one_view(driver: Driver) -> None:
    """The interrupt lists both calls, in call order, in LangChain's shape."""
    await driver.start([calls(POST_ADA, POST_BOB)])
    (interrupt,) = (await driver.agent.aget_state(driver.config)).interrupts
    assert [request["args"]["to"] for request in interrupt.value["action_requests"]] == ["ada", "bob"]
    assert len(interrupt.value["review_configs"]) == 2


async def test_b03_an_unknown_approval_is_refused_and_changes_nothing(driver: Driver) -> None:
    """A random id is no pending approval."""
    before = await driver.start([calls(POST_ADA)])
    with pytest.raises(CallNotFound):
        await decide(driver, "f" * 32)
    assert await driver.run() == before


async def test_b05_each_visit_asks_one_question_and_is_saved(driver: Driver) -> None:
    """Three push-backs are three visits of the approval node, not one node that replays its earlier rounds."""
    await driver.start([calls(POST_ADA), calls(POST_ADA), calls(POST_ADA), calls(POST_ADA)], wanted=1)
    for round_ in range(3):
        call = (await asked(driver))[-1]
        await decide(driver, call, "reject", message=f"round {round_}")
        assert str((await driver.go_on()).standing) == "waiting: approval"
    assert str((await driver.approved()).standing) == "completed: done"
    visits = [step for step in await driver.application.steps.of(driver.run_id) if step.nodes == ["approval"]]
    assert len(visits) == 4
    assert sent_to(driver) == ["ada"]


async def test_b08_a_rejected_call_is_not_made(driver: Driver) -> None:
    """The model sees the rejection instead, with the reason."""
    await driver.start([calls(POST_ADA), "very well"])
    (call,) = await asked(driver)
    await decide(driver, call, "reject", message="too soon")
    await driver.go_on()
    assert sent_to(driver) == []
    assert "too soon" in (await tool_results(driver))[call]


async def test_b10_an_edit_is_told_in_the_history_and_made_once(driver: Driver) -> None:
    """The call runs with the edited arguments, and the model reads who changed them."""
    await driver.start([calls(POST_ADA)])
    (call,) = await asked(driver)
    await decide(driver, call, "edit", arguments={"to": "cleo", "text": "hello"})
    ended = await driver.go_on()
    assert str(ended.standing) == "completed: done"
    assert sent_to(driver) == ["cleo"]
    told = [record["content"] for record in (await driver.state())["messages"] if record["type"] == "human"]
    assert any("eve changed the arguments" in text and "cleo" in text for text in told)


async def test_b14_an_approval_on_record_is_not_asked_for_again(driver: Driver, database_url: str) -> None:
    """Another process resumes: it performs once and asks nothing."""
    await driver.start([calls(POST_ADA)])
    await decide(driver, (await asked(driver))[0])
    second = await another(driver, database_url)
    assert str((await second.go_on()).standing) == "completed: done"
    assert sent_to(driver) == ["ada"]
    assert len(await asked(driver)) == 1
    await second.services.close()


@pytest.mark.parametrize(
    "edit",
    [{"args": {"to": "bob", "text": "hello"}}, {"bound": {"paths": ["other"]}}, {"again": True}, {"id": "made-up"}],
)
async def test_b19_a_call_that_was_edited_after_its_approval_is_not_made(driver: Driver, edit: dict[str, Any]) -> None:
    """The state is anybody's to edit; what a person approved stands in the approval's own row."""
    await driver.start([calls(POST_ADA), "done"])
    await decide(driver, (await asked(driver))[0])
    (call,) = (await driver.state())["pending_actions"]
    changed = {**call, "gated": False, **edit}
    await driver.agent.aupdate_state(driver.config, {"pending_actions": [changed]}, as_node="approval")
    run = await driver.go_on()
    assert sent_to(driver) == []
    assert str(run.standing) == "waiting: escalation"
    assert run.report is not None
    assert "not one that a person has approved" in str(run.report["summary"])


async def test_b19_an_approval_covers_its_own_arguments_only(driver: Driver) -> None:
    """The same tool with other arguments is a call of its own, and is asked about again."""
    await driver.start([calls(POST_ADA), calls(POST_BOB)], wanted=2)
    waiting = await driver.approved()
    assert str(waiting.standing) == "waiting: approval"
    assert sent_to(driver) == ["ada"]


async def test_an_answer_to_a_call_that_has_changed_since_does_nothing_and_is_told(driver: Driver) -> None:
    """Somebody edited the state after the approval: a person is told, and the run does not wait for what it has."""
    await driver.start([calls(POST_ADA)])
    await decide(driver, (await asked(driver))[0])
    (call,) = (await driver.state())["pending_actions"]
    changed = {**call, "args": dict(POST_BOB[1])}
    await driver.agent.aupdate_state(driver.config, {"pending_actions": [changed]}, as_node="act")
    waiting = await driver.go_on()
    assert str(waiting.standing) == "waiting: escalation"
    assert "with other arguments" in str(waiting.report)
    assert sent_to(driver) == []


async def test_b20_a_decision_and_its_effect_outlive_a_model_that_breaks(driver: Driver, database_url: str) -> None:
    """The effect is done, the next model call breaks the run; going on neither asks nor posts again."""
    await driver.start([calls(POST_ADA), calls(POST_BOB)], wanted=2)
    await driver.agent.aupdate_state(driver.config, {"model": "openai:nobody"})
    ended = await driver.approved()
    assert str(ended.standing) == "failed: model_unavailable"
    assert sent_to(driver) == ["ada"]
    script = driver.script([calls(POST_ADA), calls(POST_BOB)])
    again = {"model": script, "status": "running", "reason": None, "decision": "continue"}
    await driver.agent.aupdate_state(driver.config, again, as_node="review")
    assert str((await driver.go_on()).standing) == "waiting: approval"
    assert str((await driver.approved()).standing) == "completed: done"
    assert sent_to(driver) == ["ada", "bob"]


async def test_b24_of_many_answers_at_once_one_wins(driver: Driver) -> None:
    """The others are told who decided."""
    await driver.start([calls(POST_ADA)])
    (call,) = await asked(driver)
    answers = await asyncio.gather(*(decide(driver, call) for _ in range(8)), return_exceptions=True)
    refused = [answer for answer in answers if isinstance(answer, AlreadyDecided)]
    assert len(refused) == 7
    assert all("eve already decided" in str(error) for error in refused)
    assert str((await driver.go_on()).standing) == "completed: done"
    assert sent_to(driver) == ["ada"]


async def test_b29_a_tools_bug_reaches_the_model(driver: Driver) -> None:
    """A ValueError is an error result, counted, and the run goes on."""
    await driver.start([calls(("look", {"what": "trouble"})), calls(POST_ADA)])
    state = await driver.state()
    assert [failure["kind"] for failure in state["failures"]] == ["tool_failed"]
    assert "nobody can look at trouble" in next(iter((await tool_results(driver)).values()))
    assert state["decision"] is None


async def test_b30_a_failing_sibling_loses_nothing(driver: Driver) -> None:
    """Of two reads in a turn one fails: both have a result, and the good one ran once."""
    await driver.start([calls(("count", {"name": "good"}), ("look", {"what": "trouble"})), calls(POST_ADA)])
    results = list((await tool_results(driver)).values())
    assert results[0] == "counted good"
    assert "failed" in results[1]
    assert (driver.folder / "count-good").read_text() == "x"


async def test_b63_large_outputs_are_stored_once_and_referenced(driver: Driver) -> None:
    """A 1 MB result read ten times: the checkpoints stay small, and the whole output can be had by its hash."""
    await driver.start([*[calls(("fetch", {"kilobytes": 1024, "turn": turn})) for turn in range(10)], calls(POST_ADA)])
    results = [record for record in (await driver.state())["messages"] if record["type"] == "tool"]
    assert len(results) == 10
    digest = results[0]["artifact"]["content_artifact"]
    assert len(await driver.services.artifacts.get(digest)) == 1024 * 1024
    assert digest in results[0]["content"]
    async with driver.application.database.transaction() as connection:
        cursor = await connection.execute("SELECT sum(length(blob)) AS size FROM checkpoint_writes")
        row = await cursor.fetchone()
    assert row is not None
    assert row["size"] < 1024 * 1024


async def test_b74_a_second_process_is_refused_while_the_first_lives(driver: Driver, database_url: str) -> None:
    """RunBusy names the holder; the first one's steps are kept."""
    second = await another(driver, database_url)
    running = asyncio.create_task(driver.start([calls(("look", {"what": "x", "seconds": 2})), calls(POST_ADA)]))
    await asyncio.sleep(1.0)
    with pytest.raises(RunBusy, match="held by test"):
        await second.go_on()
    assert str((await running).standing) == "waiting: approval"
    await second.services.close()


async def test_b94_going_back_does_not_repeat_an_effect(driver: Driver) -> None:
    """Replaying from before the effect, as Studio does, gives the recorded receipt."""
    await driver.start([calls(POST_ADA)])
    await driver.approved()
    history = [snapshot async for snapshot in driver.agent.aget_state_history(driver.config)]
    before = next(snapshot for snapshot in history if snapshot.next == ("approval",))
    await driver.agent.ainvoke(None, before.config)
    assert str((await driver.run()).standing) == "completed: done"
    assert sent_to(driver) == ["ada"]


async def test_b27_the_results_of_parallel_calls_are_all_kept_in_the_order_of_the_calls(driver: Driver) -> None:
    """Whichever is done first; and the next turn finds each."""
    slow, quick = ("look", {"what": "sea", "seconds": 0.3}), ("look", {"what": "sky"})
    await driver.start([calls(slow, quick), calls(POST_ADA)])
    messages = (await driver.state())["messages"]
    asked = [call["id"] for record in messages for call in record.get("tool_calls") or ()]
    results = [(record["tool_call_id"], record["content"]) for record in messages if record["type"] == "tool"]
    assert results == [(asked[0], "saw sea"), (asked[1], "saw sky")]


async def test_b75_a_tool_that_runs_longer_than_the_lease_is_not_started_elsewhere(
    driver: Driver, database_url: str
) -> None:
    """The heart beats beside it; whoever else comes is told who holds the run."""
    running = asyncio.create_task(
        driver.start([calls(("count", {"name": "x"}), ("look", {"what": "x", "seconds": 8}))])
    )
    await asyncio.sleep(6)
    second = await another(driver, database_url)
    with pytest.raises(RunBusy):
        await second.go_on()
    await running
    assert (driver.folder / "count-x").read_text() == "x"
    await second.services.close()


async def test_b101_a_step_limit_ends_in_a_status_with_a_report(driver: Driver) -> None:
    """Not a raw exception; what was achieved is told, and the run can go on after a raise."""
    turns = [calls(("look", {"what": f"thing {number}"})) for number in range(50)]
    ended = await driver.start([*turns, calls(POST_ADA)], step_limit=12)
    assert str(ended.standing) == "failed: step_limit"
    assert ended.report is not None
    assert ended.report["tried"]
    assert any("resume" in str(command) for command in ended.report["next"])  # type: ignore[union-attr]


@pytest.mark.parametrize("limit", range(3, 12))
async def test_b101_no_call_begins_after_the_step_limit(driver: Driver, limit: int) -> None:
    """Wherever in a turn the limit lies: the run ends with it, or with the step that judges a call made in it. The
    first call is step 4, so the earliest end is step 5."""
    turns = [calls(("look", {"what": f"thing {number}"})) for number in range(9)]
    ended = await driver.start(turns, step_limit=limit)
    assert str(ended.standing) == "failed: step_limit"
    called = [call.step for call in await driver.services.trace.of(driver.run_id)]
    assert all(step <= limit for step in called), called
    assert ended.step == max(5, limit + (limit in called)), called
    assert ended.report is not None
    assert f"ends with its step {ended.step}; no call begins after step {limit}" in str(ended.report["summary"])


async def test_an_effect_that_a_dead_attempt_began_and_nobody_will_finish_is_reported(driver: Driver) -> None:
    """The ledger and the checkpoint disagree: the outcome is unknown, and the report says so."""
    await driver.start([calls(POST_ADA)])
    services = driver.services
    claim = await services.runs.claim(driver.run_id, this_process("dead"))
    lost = Intent(driver.run_id, "lost", "post", "d", {"to": "zoe"}, "key")
    await services.ledger.claim(lost, epoch=claim.epoch)
    async with driver.application.database.transaction() as connection:
        await connection.execute("UPDATE runs SET heartbeat_at = now() - interval '1 hour'")
    run = await driver.go_on()
    assert str(run.standing) == "waiting: approval"
    assert run.report is not None
    assert "find out what became of post (lost)" in run.report["left"]  # type: ignore[operator]
    assert [effect.state for effect in await services.ledger.of(driver.run_id)] == ["unknown"]


async def test_ungated_calls_run_before_the_question(driver: Driver) -> None:
    """A turn with a read and a gated call: the read has its result when the person is asked."""
    await driver.start([calls(("look", {"what": "sea"}), POST_ADA)])
    assert list((await tool_results(driver)).values()) == ["saw sea"]
    assert str((await driver.approved()).standing) == "completed: done"


async def test_workspace_writes_keep_the_models_order_and_reads_see_them(driver: Driver) -> None:
    """Two writes of one turn are two steps; the snapshot is in the state before the checkpoint names it."""
    await driver.start(
        [calls(("note", {"path": "a", "text": "1"}), ("note", {"path": "a", "text": "2"})), calls(POST_ADA)]
    )
    state = await driver.state()
    assert await driver.services.snapshots.read(state["snapshot"], "a") == b"2"
    numbers = [step.snapshot for step in await driver.application.steps.of(driver.run_id)]
    assert len({snapshot for snapshot in numbers if snapshot}) == 3


async def test_an_answer_of_the_wrong_shape_leaves_the_run_waiting(driver: Driver) -> None:
    """A resume with too few decisions is asked again, and a right one afterwards counts."""
    await driver.start([calls(POST_ADA, POST_BOB)], wanted=2)
    await driver.agent.ainvoke(Command(resume={"decisions": [{"type": "approve"}]}), driver.config)
    assert str((await driver.run()).standing) == "waiting: approval"
    (interrupt,) = (await driver.agent.aget_state(driver.config)).interrupts
    assert "2 decisions are needed" in interrupt.value["complaint"]
    await driver.agent.ainvoke(Command(resume={"decisions": [{"type": "approve"}, {"type": "approve"}]}), driver.config)
    assert str((await driver.run()).standing) == "completed: done"
    assert sent_to(driver) == ["ada", "bob"]


async def test_an_answer_to_a_run_that_does_not_wait_is_refused(driver: Driver) -> None:
    """LangGraph itself would accept it silently."""
    await driver.start([calls(POST_ADA)])
    await driver.approved()
    with pytest.raises(AlreadyDecided, match="does not wait"):
        await driver.agent.ainvoke(Command(resume={"decisions": [{"type": "approve"}]}), driver.config)
    assert str((await driver.run()).standing) == "completed: done"


async def test_a_bad_value_from_studio_ends_the_attempt_and_stays_repairable(driver: Driver) -> None:
    """failed: invalid_state names the field; history and state stay readable, and a repair goes on."""
    await driver.start([calls(POST_ADA)])
    await driver.agent.aupdate_state(driver.config, {"plan": {"not": "a list"}})
    with pytest.raises(InvalidState, match="plan"):
        await driver.go_on()
    run = await driver.run()
    assert str(run.standing) == "failed: invalid_state"
    assert run.report is not None
    assert "plan" in str(run.report["summary"])
    assert len([snapshot async for snapshot in driver.agent.aget_state_history(driver.config)]) > 4
    await driver.agent.aupdate_state(driver.config, {"plan": ["post the letters"]})
    assert str((await driver.go_on()).standing) == "waiting: approval"


async def test_an_input_that_cant_be_worked_on_is_told_in_one_sentence(driver: Driver) -> None:
    """From the API: no such folder."""
    with pytest.raises(DevfixError, match="there is no folder"):
        await driver.agent.ainvoke({"repository": "/nowhere/at/all"}, driver.config)
    assert str((await driver.run()).standing) == "failed: invalid_state"


async def test_a_rejected_escalation_cancels_and_advice_goes_on(driver: Driver) -> None:
    """Idle turns escalate; respond goes on with the advice, reject ends the run as cancelled by a person."""
    waiting = await driver.start(["hm", "hm", "hm", "hm", "hm", "hm"])
    assert str(waiting.standing) == "waiting: escalation"
    await decide(driver, (await asked(driver))[-1], "respond", message="try harder")
    assert str((await driver.go_on()).standing) == "waiting: escalation"
    told = [record["content"] for record in (await driver.state())["messages"] if record["type"] == "human"]
    assert "eve: try harder" in told
    await decide(driver, (await asked(driver))[-1], "reject", message="enough")
    assert str((await driver.go_on()).standing) == "cancelled: by_person"


async def test_b38_a_run_that_goes_round_in_circles_asks_a_person(driver: Driver) -> None:
    """The same call three times over: a word about it, one re-plan, then a person is asked, not the step limit."""
    waiting = await driver.start([calls(("look", {"what": "the wall"}))] * 30)
    assert str(waiting.standing) == "waiting: escalation"
    assert waiting.report is not None
    assert "came again" in str(waiting.report["summary"])
    words = [record["id"] for record in (await driver.state())["messages"] if record["type"] == "human"]
    assert [word.rpartition("-")[0] for word in words] == ["", "stuck", "re-plan"]
    asked_for = [call for call in await driver.services.trace.of(driver.run_id) if call.kind == "model"]
    assert len(asked_for) == 3 + 2 + 2
