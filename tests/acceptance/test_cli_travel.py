"""Going back and going on: branches, limits that are raised, runs that are only queued."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from scripts.bootstrap import Application, build
from state.settings import Settings
from tests.helpers.cli import CALC, FIX, Cli, standing

pytestmark = pytest.mark.acceptance

OTHER = [
    FIX[0],
    FIX[1],
    {
        "content": "As you say.",
        "tool_calls": [
            {"name": "write_file", "args": {"path": "calc.py", "content": "def add(a, b):\n    return b + a\n"}}
        ],
    },
    FIX[1],
]
"""The branch's model has spoken twice when it hears the person's word."""


@pytest.fixture(scope="module")
def parent(cli: Cli) -> dict[str, Any]:
    """A completed run, and its repository as it was before."""
    repository = cli.repository("parent")
    ended = cli.here("run", repository, "--model", cli.script(OTHER), "--yes", "--json")
    assert ended.code == 0, ended
    (repository / "calc.py").write_text(CALC)
    facts: dict[str, Any] = ended.facts
    return facts


def test_a_branch_begins_with_the_state_and_the_way_of_its_step(cli: Cli, parent: dict[str, Any]) -> None:
    """From each step: the same state but for ids and grants, the same next node, and nothing of the parent changed."""
    steps = cli.here("history", parent["run_id"], "--json").facts
    whole = cli.here("show", parent["run_id"], "--json").facts
    for step in steps:
        then = cli.here("show", parent["run_id"], "--step", step["step"], "--json").facts
        made = cli.here("branch", parent["run_id"], "--at", step["step"], "--json")
        assert made.code == 0, made
        facts = cli.here("show", made.facts["run_id"], "--step", step["step"], "--json").facts
        assert (facts["parent"], facts["branched_at"]) == (parent["run_id"], step["step"])
        assert facts["next"] == _again(then), (step, facts)
        assert _comparable(facts["state"]) == _comparable(then["state"])
    assert cli.here("history", parent["run_id"], "--json").facts == steps
    assert cli.here("show", parent["run_id"], "--json").facts == whole


def _again(then: dict[str, Any]) -> list[str]:
    """Where the branch goes: as its parent, but a granted effect is put to a person again."""
    granted = [call for call in then["state"].get("pending_actions", ()) if call["kind"] == "effect"]
    return (
        ["approval"]
        if granted and then["next"] == ["tool_execute"] and len(granted) == 1 == len(then["state"]["pending_actions"])
        else then["next"]
    )


def _comparable(state: dict[str, Any]) -> dict[str, Any]:
    own = {"run_id", "step", "pending_actions"}
    return {name: value for name, value in state.items() if name not in own and value not in (None, [], {})}


def test_a_branch_asks_again_for_what_was_granted_to_its_parent(cli: Cli, parent: dict[str, Any]) -> None:
    """From the step after the parent's approval: nothing is applied before the branch's own approval."""
    steps = cli.here("history", parent["run_id"], "--json").facts
    granted = next(step["step"] for step in steps if step["nodes"] == ["approval"])
    run_id = cli.here("branch", parent["run_id"], "--at", granted, "--json").facts["run_id"]
    asked = cli.here("resume", run_id, "--json")
    assert (asked.code, standing(asked.facts)) == (3, "waiting: approval"), asked
    assert cli.here("effects", run_id, "--json").facts == []
    ended = cli.here("approve", run_id, "--json")
    assert (ended.code, standing(ended.facts)) == (0, "completed: nothing_to_do"), "somebody took the patch back"
    assert "nothing was written this time" in ended.facts["report"]["summary"]
    assert ended.facts["parent"] == parent["run_id"]


def test_a_word_at_an_old_step_takes_the_run_another_way(cli: Cli, parent: dict[str, Any]) -> None:
    """The model hears the person where it had been about to ask; another patch comes of it, on files as they were."""
    (cli.folder / parent["repository"] / "calc.py").write_text(CALC)
    steps = cli.here("history", parent["run_id"], "--json").facts
    asking = next(step["step"] for step in steps if step["nodes"] == ["approval"]) - 1
    made = cli.here("branch", parent["run_id"], "--at", asking, "--message", "b first, please", "--json").facts
    waiting = cli.here("resume", made["run_id"], "--json")
    assert waiting.code == 3, waiting
    assert "+    return b + a" in waiting.facts["pending"][0]["diff"]
    found = cli.here("diff", parent["run_id"], made["run_id"], "--json").facts
    assert "-    return a + b\n+    return b + a" in found["files"]
    said = [message.get("content") for message in found["state"]["messages"]["added"]]
    assert "b first, please" in said


@pytest.mark.parametrize(
    ("option", "reason", "limit", "more"),
    [
        *(("--step-limit", "step_limit", steps, 100) for steps in (3, 7, 8, 11)),
        ("--budget-usd", "budget", 0, 0.5),
        ("--budget-tokens", "budget", 0, 1000),
        ("--deadline-seconds", "deadline", 0.001, 60),
    ],
)
def test_a_limit_ends_a_run_and_a_raise_takes_it_on(
    cli: Cli, option: str, reason: str, limit: float, more: float
) -> None:
    """failed with exit 4; resumed with what is used up already, refused with how to raise it; raised, it goes on
    with the calls that were open (the script says each turn once) and ends well."""
    stopped = cli.here("run", cli.repository(), "--model", cli.script(FIX), "--yes", option, limit, "--json")
    assert (stopped.code, standing(stopped.facts)) == (4, f"failed: {reason}"), stopped
    for arguments in ((), (option, limit)):
        refused = cli.here("resume", "last", *arguments, "--json")
        assert (refused.code, refused.err.count("\n")) == (2, 1), refused
        assert refused.facts == stopped.facts
        assert option != "--step-limit" or f"has used {stopped.facts['step']} steps" in refused.err
        assert f"devfix resume {stopped.facts['run_id'][:8]} {option} N" in refused.err
    ended = cli.here("resume", "last", "--yes", option, more, "--json")
    assert (ended.code, standing(ended.facts)) == (0, "completed: done"), ended


def test_a_queued_run_is_begun_by_whoever_resumes_it(cli: Cli) -> None:
    """--detach saves the input and returns; limits and model may still be changed; resume begins it."""
    queued = cli.here("run", cli.repository(), "--model", cli.script([]), "--detach", "--json")
    assert (queued.code, standing(queued.facts)) == (0, "queued: new")
    assert queued.facts["goal"]
    run_id = queued.facts["run_id"]
    ended = cli.here("resume", run_id, "--yes", "--model", cli.script(FIX), "--budget-usd", 3, "--json")
    assert (ended.code, standing(ended.facts)) == (0, "completed: done"), ended
    state = cli.here("show", run_id, "--step", ended.facts["step"], "--json").facts["state"]
    assert state["budgets"]["usd"] == 3


def test_a_run_that_waits_takes_new_limits_with_its_answer(cli: Cli) -> None:
    """A raise in the middle of a run changes the limits, and nothing of the way."""
    run_id = cli.here("run", cli.repository(), "--model", cli.script(FIX), "--json").facts["run_id"]
    ended = cli.here("resume", run_id, "--yes", "--deadline-seconds", 77, "--json")
    assert (ended.code, standing(ended.facts)) == (0, "completed: done"), ended
    state = cli.here("show", run_id, "--step", ended.facts["step"], "--json").facts["state"]
    assert state["budgets"]["seconds"] == 77
    assert len(cli.here("effects", run_id, "--json").facts) == 1


def test_a_state_with_a_bad_value_stays_readable_and_says_which_field(cli: Cli) -> None:
    """Somebody's state editor wrote nonsense: resume ends as failed: invalid_state, and an older step goes on."""
    run_id = cli.here("run", cli.repository(), "--model", cli.script(FIX), "--json").facts["run_id"]
    asking = cli.here("show", run_id, "--json").facts["step"]
    settings = Settings(database_url=cli.environment["DEVFIX_DATABASE_URL"], home=cli.home)
    asyncio.run(_written(build(settings, label="editor"), run_id, {"plan": 5, "work": "lost", "failures": ["?"]}))

    failed = cli.here("resume", run_id, "--json")
    assert (failed.code, standing(failed.facts)) == (4, "failed: invalid_state"), failed
    assert "plan" in failed.err
    for command in (("show", run_id), ("history", run_id), ("show", run_id, "--step", asking + 1), ("trace", run_id)):
        assert cli.here(*command).code == 0
    assert cli.here("diff", run_id, asking, asking + 1, "--json").facts["state"]["plan"]["to"] == 5

    branch = cli.here("branch", run_id, "--at", asking, "--json").facts["run_id"]
    assert cli.here("resume", branch, "--yes").code == 0


async def _written(application: Application, run_id: str, values: dict[str, Any]) -> None:
    try:
        await application.agent().aupdate_state({"configurable": {"thread_id": run_id}}, values, as_node="review")
    finally:
        await application.services.close()


def test_a_branch_takes_new_limits_before_its_first_step(cli: Cli, parent: dict[str, Any]) -> None:
    """The branch of a run that was short of steps goes on with more, from wherever it was made."""
    steps = cli.here("history", parent["run_id"], "--json").facts
    for nodes in (["__start__"], ["act"], ["review"]):
        at = next(step["step"] for step in steps if step["nodes"] == nodes)
        run_id = cli.here("branch", parent["run_id"], "--at", at, "--json").facts["run_id"]
        stopped = cli.here("resume", run_id, "--step-limit", at, "--json")
        assert (stopped.code, standing(stopped.facts)) == (4, "failed: step_limit"), stopped
