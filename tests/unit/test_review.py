"""review as a function of the state: what is taken in, and what it says is next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langgraph.runtime import RunControl
from pydantic import JsonValue

from graph.attempt import Attempt
from graph.jobs import Job, Observed, Verdict
from graph.models.chain import Chain
from graph.models.load import ModelLoader
from graph.models.prices import Prices
from graph.nodes.review import review
from graph.policy import IN_VAIN_LIMIT, POLICY
from graph.prompts import from_devfix
from graph.services import Services
from graph.streaks import IN_VAIN, family
from state.agent_state import AgentState, Budgets, ToolCall, Tried
from state.database import Database
from state.failures import Failure, FailureKind
from state.messages import flatten
from state.outbox import Outbox
from state.pauses import Pauses
from state.runs import Claim
from state.settings import Settings
from state.snapshots import Snapshots
from state.status import Standing
from tests.helpers.memory_stores import MemoryApprovals, MemoryArtifacts, MemoryLedger, MemoryRuns, MemoryTrace
from tests.helpers.notes import NOTES, NotesRules
from tools.execution import Execution
from tools.workspaces import Workspaces


class Asked(NotesRules):
    """The notes job, with evidence before a question, and a verdict and a failure that a test may set."""

    def __init__(self) -> None:
        self.verdict = Verdict(judgement="go_on", summary="Post the letters that are wanted.")
        self.wanted: ToolCall | None = None
        self.found: Failure | None = None

    def objection(self, state: AgentState) -> str | None:
        return None

    def evidence(self, state: AgentState) -> ToolCall | None:
        return self.wanted

    def observe(self, state: AgentState, name: str, facts: Mapping[str, JsonValue]) -> Observed:
        work = {**state.work, "seen": [*state.work.get("seen", []), name]}
        return Observed(work=work, tried=[Tried(what=name, outcome="done")], completed=["look"], failure=self.found)

    def judge(self, state: AgentState) -> Verdict:
        return self.verdict


@pytest.fixture
def rules() -> Asked:
    return Asked()


@pytest.fixture
def services(rules: Asked) -> Services:
    runs, ledger, artifacts, trace = MemoryRuns(), MemoryLedger(), MemoryArtifacts(), MemoryTrace()
    snapshots = Snapshots(artifacts=artifacts)
    job = Job(name="asked", rules=rules, toolbox=NOTES.toolbox, work=NOTES.work, default_model="search-repair")
    settings = Settings(home=Path("/nowhere"))
    models = ModelLoader(runs=runs, trace=trace, settings=settings)
    services = Services(
        prices=Prices({}),
        settings=settings,
        runs=runs,
        approvals=MemoryApprovals(),
        ledger=ledger,
        outbox=Outbox(database=Database(settings)),
        trace=trace,
        artifacts=artifacts,
        snapshots=snapshots,
        workspaces=Workspaces(home=Path("/nowhere"), snapshots=snapshots),
        execution=Execution(ledger=ledger, runs=runs),
        models=models,
        chain=Chain(models=models, pauses=Pauses(database=Database(settings)), settings=settings, retries=4),
        jobs={job.name: job},
    )
    claim = Claim(epoch=1, step=0, former=None, standing=Standing("queued", "new"))
    services.attempts["run-1"] = Attempt(
        "run-1", claim, control=RunControl(), runs=runs, saved=services.saved, heartbeat_seconds=1.0
    )
    return services


def state(messages: Sequence[BaseMessage] = (), **fields: Any) -> AgentState:
    base: dict[str, Any] = {
        "run_id": "run-1",
        "job": "asked",
        "step": 9,
        "plan": ["look", "post"],
        "work": {"letters": "x"},
        "messages": [flatten(message) for message in messages],
    }
    return AgentState.model_validate({**base, **fields})


def failure(kind: FailureKind, step: int = 8, detail: str = "what went wrong") -> Failure:
    return Failure(kind=kind, detail=detail, step=step)


def result(identifier: str, name: str = "look", status: str = "success") -> ToolMessage:
    return ToolMessage("saw it", tool_call_id=identifier, name=name, status=status, artifact={"call": identifier})


def told(written: Mapping[str, Any]) -> list[str]:
    return [record["content"] for record in written.get("messages", {}).get("append", [])]


LOOK = ToolCall(id="a", name="look", args={"what": "sea"})
POST = ToolCall(id="b", name="post", args={"to": "ada", "text": "x"}, kind="effect", gated=True)


@pytest.mark.parametrize(
    ("judgement", "decision", "standing"),
    [
        ("done", "done", "completed: done"),
        ("nothing_to_do", "done", "completed: nothing_to_do"),
        ("tests_unreachable", "stop", "failed: tests_unreachable"),
    ],
)
async def test_the_jobs_evidence_ends_a_run(
    services: Services, rules: Asked, judgement: Any, decision: str, standing: str
) -> None:
    """Whatever else there is to say: limits, failures, open calls. With a report."""
    rules.verdict = Verdict(judgement=judgement, summary="so it is", details="the output")
    given = state(failures=[failure("model_key_refused")], pending_actions=[LOOK], step=900, completed=["look"])
    written = await review(given, services=services)
    assert (written["decision"], f"{written['status']}: {written['reason']}") == (decision, standing)
    assert written["pending_actions"] == []
    assert written["report"]["summary"] == "so it is"
    assert written["report"]["done"] == ["look"]
    assert written["report"]["left"] == ([] if decision == "done" else ["post"])
    assert written["report"]["details"] == (None if decision == "done" else "the output")


@pytest.mark.parametrize("kind", sorted(kind for kind, row in POLICY.items() if row.then != "fall back"))
async def test_each_failure_is_answered_as_the_table_says(services: Services, kind: FailureKind) -> None:
    """The first time, and when it has come too often in a row. What falls back is answered where models are asked."""
    row = POLICY[kind]
    first = await review(state(failures=[failure(kind)]), services=services)
    expected = (row.first or row.decision) if row.limit else row.then
    assert first["decision"] == expected
    streaks = {family(kind): row.limit}
    before = [failure(kind)] * row.limit
    last = await review(state(failures=[*before, failure(kind)], handled=row.limit, streaks=streaks), services=services)
    assert last["decision"] == row.then
    assert last["report"]["next"]
    if row.standing is not None:
        assert (last["status"], last["reason"]) == row.standing
        assert "what went wrong" in last["report"]["summary"]
    else:
        assert "status" not in last


async def turns(services: Services, *failing: Sequence[FailureKind]) -> dict[str, Any]:
    """What review says at the last of these turns, each with the failures of its calls."""
    failures: list[Failure] = []
    written: dict[str, Any] = {}
    kept: dict[str, Any] = {}
    for kinds in failing:
        failures += [failure(kind) for kind in kinds]
        written = await review(state(failures=failures, **kept), services=services)
        kept = {name: written[name] for name in ("handled", "streaks", "turn_failures")}
    return written


async def test_a_turn_that_went_well_begins_the_count_anew(services: Services) -> None:
    """A model that is cut off now and then is not one that always is."""
    broken: Sequence[FailureKind] = ["truncated_output"]
    assert (await turns(services, *[broken, broken, []] * 3))["decision"] == "continue"
    assert (await turns(services, *[broken, broken, []] * 3, broken))["decision"] == "retry"
    assert (await turns(services, *[broken] * 3))["decision"] == "stop"


async def test_bad_answers_of_several_kinds_count_together(services: Services) -> None:
    """Else an empty one and a broken one could take turns for ever."""
    written = await turns(services, ["unparsable_output"], ["empty_output"])
    assert (written["decision"], written["reason"]) == ("stop", "unparsable_output")


async def test_models_that_do_not_answer_end_the_run(services: Services) -> None:
    """All that could be tried was tried where they were asked."""
    written = await turns(services, ["model_unavailable"])
    assert (written["decision"], written["reason"]) == ("stop", "model_unavailable")


async def test_a_turn_counts_once_however_many_calls_it_makes(services: Services) -> None:
    """One call that goes well between two that don't neither ends the turn nor begins the count anew."""
    kept: dict[str, Any] = {}
    failures: list[Failure] = []
    for number in range(6):
        failures.append(failure("tool_failed"))
        given = state(failures=failures, pending_actions=[LOOK], **kept)
        written = await review(given, services=services)
        assert written["decision"] == ("tools" if number < 5 else "escalate")
        kept = {name: written[name] for name in ("handled", "streaks", "turn_failures")}
        if number < 5:
            failures.append(failure("tool_failed"))
            written = await review(state(failures=failures, **kept), services=services)
            assert written["streaks"] == {"tool_failed": number + 1, IN_VAIN: number + 1}
            kept = {name: written[name] for name in ("handled", "streaks", "turn_failures")}
    assert kept["streaks"] == {}


async def test_evidence_that_always_fails_is_put_to_a_person(services: Services, rules: Asked) -> None:
    """It is asked for again in the same turn, which would go on until the limit of steps."""
    rules.wanted = ToolCall(id="evidence-1", name="look", args={"what": "all"}, origin="devfix")
    kept: dict[str, Any] = {}
    failures = [failure("tool_failed")]
    said = []
    for _ in range(7):
        written = await review(state(failures=failures, pending_actions=[POST], **kept), services=services)
        said.append(written["decision"])
        failures.append(failure("tool_failed").model_copy(update={"call_id": "evidence-1"}))
        kept = {name: written[name] for name in ("handled", "streaks", "turn_failures")}
    assert said == ["tools"] * 6 + ["escalate"]


async def test_failures_that_take_turns_are_put_to_a_person_in_the_end(services: Services) -> None:
    """Whatever their kinds, and however many turns there are in between in which nothing was done."""
    kinds: list[list[FailureKind]] = [["tool_failed"], ["invalid_arguments"], ["truncated_output"], []]
    assert (await turns(services, *(kinds * 3)[:10]))["decision"] == "continue"
    written = await turns(services, *(kinds * 3)[:11])
    assert written["decision"] == "escalate"
    assert f"{IN_VAIN_LIMIT + 1} turns in a row have failed" in written["report"]["summary"]


async def test_a_person_or_a_resume_begins_every_count_anew(services: Services) -> None:
    """Else the first failure after the answer would be the sixth in a row."""
    written = await turns(services, *[["tool_failed"]] * 6)
    assert (written["decision"], written["streaks"]) == ("escalate", {})
    written = await turns(services, *[["unparsable_output"]] * 2)
    assert (written["decision"], written["streaks"]) == ("stop", {})


async def test_the_model_is_told_of_its_bad_answers_only(services: Services) -> None:
    """That something of DevFix's own broke would only be in its way."""
    assert told(await review(state(failures=[failure("truncated_output")]), services=services)) == ["what went wrong"]
    assert told(await review(state(failures=[failure("internal")]), services=services)) == []


async def test_several_reads_that_fail_in_one_turn_count_once(services: Services) -> None:
    """Six files that are not there are one mistake."""
    written = await review(state(failures=[failure("tool_failed")] * 6), services=services)
    assert written["decision"] == "continue"


async def test_the_gravest_failure_decides(services: Services) -> None:
    """A person is asked although another failure would only be retried; an end comes before both."""
    both = [failure("tool_failed"), failure("outcome_unknown", detail="look at it")]
    written = await review(state(failures=both), services=services)
    assert written["decision"] == "escalate"
    assert "look at it" in written["report"]["summary"]
    ended = await review(state(failures=[*both, failure("model_key_refused")]), services=services)
    assert (ended["decision"], ended["reason"]) == ("stop", "model_unavailable")


async def test_a_failure_is_answered_once(services: Services) -> None:
    """What review has handled is history."""
    first = await review(state(failures=[failure("outcome_unknown")]), services=services)
    assert first["handled"] == 1
    second = await review(state(failures=[failure("outcome_unknown")], handled=1), services=services)
    assert second["decision"] == "continue"


@pytest.mark.parametrize(
    ("fields", "reason", "option"),
    [
        ({"budgets": Budgets(usd=1.0), "cost_usd": 1.0}, "budget", "--budget-usd 2"),
        ({"budgets": Budgets(tokens=100), "tokens": 100}, "budget", "--budget-tokens 200"),
        ({"budgets": Budgets(steps=9)}, "step_limit", "--step-limit 18"),
        ({"budgets": Budgets(steps=10)}, "step_limit", "--step-limit 20"),
        ({"budgets": Budgets(seconds=5.0), "active_seconds": 5.0}, "deadline", "--deadline-seconds 11"),
    ],
)
async def test_a_limit_stops_before_the_next_call(
    services: Services, fields: dict[str, Any], reason: str, option: str
) -> None:
    """Also one that a retry would make, or that is open already; with a report on what was used up."""
    for more in ({"pending_actions": [LOOK]}, {"failures": [failure("truncated_output")]}, {"idle_turns": 1}, {}):
        written = await review(state(**fields, **more), services=services)
        assert (written["decision"], written["status"], written["reason"]) == ("stop", "failed", reason)
        assert [call["id"] for call in written["pending_actions"]] == ["a"] * ("pending_actions" in more)
        assert written["report"]["next"][0].startswith(f"devfix resume run-1 {option}")


async def test_a_short_deadline_is_told_as_it_is(services: Services) -> None:
    """Half a second is not none."""
    written = await review(state(budgets=Budgets(seconds=0.5), active_seconds=1.26), services=services)
    assert "has worked for 1.26 s; its limit is 0.5 s" in written["report"]["summary"]


async def test_below_its_limits_a_run_goes_on(services: Services) -> None:
    """One step, cent, token and second before."""
    budgets = Budgets(usd=1.0, tokens=100, steps=11, seconds=3600.0)
    given = state(budgets=budgets, cost_usd=0.99, tokens=99, active_seconds=3500.0)
    written = await review(given, services=services)
    assert written["decision"] == "continue"
    assert written["active_seconds"] >= 3500.0


async def test_results_are_taken_in_once(services: Services) -> None:
    """The job sees each success, of the model's calls and of DevFix's own; errors only close their calls."""
    own = from_devfix("ran", identifier="r", name="count", facts={"call": "e"}, is_error=False)
    bad = from_devfix("no", identifier="s", name="fetch", facts={"call": "f"}, is_error=True)
    messages = [result("old", "note"), AIMessage("I look"), result("a"), result("x", status="error"), own, bad]
    pending = [LOOK, LOOK.model_copy(update={"id": "x"}), LOOK.model_copy(update={"id": "still open"})]
    written = await review(state(messages, reviewed=1, pending_actions=pending), services=services)
    assert written["work"]["seen"] == ["look", "count"]
    assert [call["id"] for call in written["pending_actions"]] == ["still open"]
    assert [(each["what"], each["step"]) for each in written["attempts"]["append"]] == [("look", 9), ("count", 9)]
    assert written["completed"] == ["look"]
    again = await review(state(messages, reviewed=written["reviewed"]), services=services)
    assert again["attempts"]["append"] == []
    assert "seen" not in again["work"]


async def test_what_the_job_finds_wrong_is_a_failure(services: Services, rules: Asked) -> None:
    """Recorded with its step, answered by the table at once, and not again."""
    rules.found = Failure(kind="nothing_found", detail="all was tried")
    written = await review(state([result("a")], failures=[failure("tool_failed", 2)], handled=1), services=services)
    assert written["decision"] == "escalate"
    assert [(each["kind"], each["step"]) for each in written["failures"]] == [("nothing_found", 9)]
    assert written["handled"] == 2


async def test_open_calls_come_first_then_evidence_then_the_question(services: Services, rules: Asked) -> None:
    """A person is asked only when nothing else of the turn is left, and on fresh evidence."""
    written = await review(state(pending_actions=[LOOK, POST]), services=services)
    assert (written["decision"], len(written["pending_actions"])) == ("tools", 2)
    rules.wanted = ToolCall(id="evidence-1", name="look", args={"what": "all"}, origin="devfix")
    written = await review(state(pending_actions=[POST]), services=services)
    assert (written["decision"], [call["id"] for call in written["pending_actions"]]) == ("tools", ["evidence-1", "b"])
    rules.wanted = None
    written = await review(state(pending_actions=[POST]), services=services)
    assert (written["decision"], [call["id"] for call in written["pending_actions"]]) == ("ask", ["b"])


async def test_a_model_that_asks_for_nothing_is_nudged_then_a_person_is_asked(services: Services) -> None:
    """Twice with what the evidence says, then an escalation with the model's own words."""
    chatter = [AIMessage("All is well now.")]
    for turns in (1, 2):
        written = await review(state(chatter, idle_turns=turns), services=services)
        assert written["decision"] == "continue"
        assert told(written) == ["Post the letters that are wanted."]
        assert written["reviewed"] == 2
    written = await review(state(chatter, idle_turns=3), services=services)
    assert written["decision"] == "escalate"
    assert "All is well now." in written["report"]["summary"]
    assert written["report"]["left"] == ["look", "post"]


async def test_a_model_that_never_calls_a_tool_is_told_apart_from_one_that_stops(services: Services) -> None:
    """A server without tool calls looks like that; what the model said is shown, shortened."""
    chatter = [AIMessage(f"Turn {turn}: " + "well, " * 200) for turn in range(3)]
    summary = (await review(state(chatter, idle_turns=3), services=services))["report"]["summary"]
    assert "asked for no tool in 3 turns; does its endpoint support tool calls? It said: Turn 2: well," in summary
    assert len(summary) < 500
    called = AIMessage("", tool_calls=[{"name": "look", "args": {}, "id": "a"}])
    summary = (await review(state([called, *chatter], idle_turns=3), services=services))["report"]["summary"]
    assert "support tool calls" not in summary


async def test_a_nudge_says_something(services: Services, rules: Asked) -> None:
    """Where the job has no words of its own: providers refuse an empty message."""
    rules.verdict = Verdict(judgement="go_on")
    assert "nothing" in told(await review(state([AIMessage("hm")], idle_turns=1), services=services))[0]
