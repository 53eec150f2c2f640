"""The main job: a repository whose tests fail. Find a patch, prove it, have it approved, apply it once."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pydantic import BaseModel, JsonValue

from graph.jobs import Begun, Job, Observed, Verdict, described
from state.agent_state import AgentState, RunInput, ToolCall, Tried
from state.errors import BadRepository, HomeUnwritable, Refused
from state.ids import short
from tools.candidates import evaluate_candidates
from tools.git import head
from tools.interpreter import find_interpreter
from tools.patch import apply_patch_to_repository, check_patch_options, handed_over
from tools.read import list_files, read_file, search_text
from tools.registry import Toolbox
from tools.sandbox import choose_sandbox
from tools.testfiles import steers_tests
from tools.testing import run_tests
from tools.write import edit_file, write_file

if TYPE_CHECKING:
    from state.settings import Settings
    from state.snapshots import Snapshots

GOAL: Final = "Make the failing tests of {folder} pass without changing what the tests ask for."
DEFAULT_TEST_COMMAND: Final = "python -m pytest"

REPRODUCE: Final = "reproduce the failing tests"
FIND: Final = "find the cause and a patch"
PROVE: Final = "run the tests again in a fresh copy with the patch"
APPROVE: Final = "have the patch approved"
APPLY: Final = "apply the patch once"


class Evidence(BaseModel):
    """One run of the tests, as evidence."""

    snapshot: str | None
    outcome: str
    tests: int = 0
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    failing: list[str] = []
    reported: bool = False
    """pytest itself said what became of each test."""
    mended: list[str] = []
    """Of the tests that failed at the opening, those that pass."""
    text: str = ""
    sandbox_level: int | None = None
    """The level of the sandbox in which they ran."""

    @property
    def out_of_reach(self) -> bool:
        """There is nothing to begin with; nor is there where a command ends well and tells of no test."""
        return self.outcome in {"unreachable", "no_tests"} or (self.outcome == "passed" and not self.passed)


class RepairWork(BaseModel):
    """The repair job's part of the state."""

    repository: str
    test_command: str = DEFAULT_TEST_COMMAND
    python: str | None = None
    allow_test_edits: bool = False
    env: list[str] = []
    allow_network: bool = False
    unsafe_local: bool = False
    commit: bool = False
    patch_out: str | None = None
    base: str
    """The snapshot of the untouched repository."""
    head: str | None = None
    """The repository's commit when the run began."""
    opening: Evidence | None = None
    """The tests as they were found."""
    evidence: Evidence | None = None
    """The last cold run in a fresh copy."""
    failed_at_first: list[str] = []
    """The tests that failed at the opening; each run says which of them pass."""
    failing: list[str] = []
    """The tests that fail as of the last run."""
    candidates: int = 0
    """How many candidate patches were evaluated."""
    applied: dict[str, JsonValue] | None = None
    """The receipt of the applied patch."""


_PROMPT: Final = """You repair a repository whose tests fail. You work on a copy; the user's folder is not touched \
until a person approves the patch.

Goal: {goal}
Test command: {command}

How to work:
- Read the failing tests and the code that they reach. Find the cause before you edit.
- Make the smallest change that is right for all inputs, not only for those that the tests show.
- {tests}
- After an edit, run the tests. When they pass, call apply_patch_to_repository with a one-line summary: a person \
then sees the diff and decides.
- Several read calls in one turn run side by side. If you are stuck, say what you tried and what you would need.
"""


class RepairRules:
    """The repair job's decisions."""

    def goal_of(self, given: RunInput) -> str:
        return given.goal or GOAL.format(folder=Path(given.repository).name or given.repository)

    async def check(self, given: RunInput, *, settings: Settings) -> None:
        repository = existing_folder(given.repository)
        if given.test_command is not None:
            check_command(given.test_command)
        await check_patch_options(repository, commit=given.commit, patch_out=given.patch_out)
        cache = settings.home / "interpreters"
        try:
            await asyncio.to_thread(find_interpreter, repository, python=given.python, cache=cache)
        except OSError as error:
            raise HomeUnwritable.because(settings.home, error.strerror) from None
        await choose_sandbox(unsafe_local=given.unsafe_local, allow_network=given.allow_network)

    async def begin(self, given: RunInput, *, snapshots: Snapshots, settings: Settings) -> Begun:
        repository = await asyncio.to_thread(existing_folder, given.repository)
        await check_patch_options(repository, commit=given.commit, patch_out=given.patch_out)
        check_command(given.test_command or DEFAULT_TEST_COMMAND)
        base = await snapshots.take(repository)
        work = RepairWork(
            repository=str(repository),
            test_command=given.test_command or DEFAULT_TEST_COMMAND,
            python=given.python,
            allow_test_edits=given.allow_test_edits,
            env=given.env,
            allow_network=given.allow_network,
            unsafe_local=given.unsafe_local,
            commit=given.commit,
            patch_out=given.patch_out,
            base=base,
            head=await head(repository),
        )
        return Begun(work=work.model_dump(), snapshot=base)

    def plan(self, state: AgentState) -> list[str]:
        return [REPRODUCE, FIND, PROVE, APPROVE, APPLY]

    def prompt(self, state: AgentState) -> str:
        work = work_of(state)
        tests = "You may edit the tests." if work.allow_test_edits else "Test files are read-only."
        return _PROMPT.format(goal=state.goal, command=work.test_command, tests=tests)

    def opening(self, state: AgentState) -> ToolCall | None:
        if work_of(state).opening is not None:
            return None
        return ToolCall(id="opening", name="run_tests", args={"locate": True}, origin="devfix")

    def evidence(self, state: AgentState) -> ToolCall | None:
        evidence = work_of(state).evidence
        if not _delivers(state) or (evidence is not None and evidence.snapshot == state.snapshot):
            return None
        return ToolCall(id=f"evidence-{(state.snapshot or '')[:12]}", name="run_tests", args={}, origin="devfix")

    def objection(self, state: AgentState) -> str | None:
        work = work_of(state)
        evidence = work.evidence
        if not _delivers(state) or evidence is None or evidence.snapshot != state.snapshot or _is_proven(work):
            return None
        if evidence.outcome == "passed":
            return f"What passes in a fresh copy with this patch proves nothing: {_doubt(work)}. The call was not made."
        return f"The tests do not pass in a fresh copy with this patch ({_counts(evidence)}); the call was not made."

    def observe(self, state: AgentState, name: str, facts: Mapping[str, JsonValue]) -> Observed:
        work = work_of(state)
        match name:
            case "run_tests":
                return _observe_tests(state, work, facts)
            case "evaluate_candidates":
                evaluated = _count(facts.get("evaluated"))
                work.candidates += evaluated
                tried = [Tried(what=f"{evaluated} candidate patches", outcome=str(facts.get("summary") or "evaluated"))]
                return Observed(work=work.model_dump(), tried=tried)
            case "edit_file" | "write_file":
                what = f"{name} {facts.get('path')}"
                return Observed(work=work.model_dump(), tried=[Tried(what=what, outcome="done")])
            case "apply_patch_to_repository":
                work.applied = dict(facts)
                completed = [APPROVE] if "gone" in facts else [APPROVE, APPLY]
                return Observed(work=work.model_dump(), completed=completed)
        return Observed(work=work.model_dump())

    def judge(self, state: AgentState) -> Verdict:
        work = work_of(state)
        if work.opening is None:
            return Verdict(judgement="go_on")
        if work.applied is not None and work.evidence is not None and _is_proven(work):
            return _handed_over(work.applied, work.evidence)
        if work.opening.out_of_reach:
            why = "." if work.opening.outcome != "passed" else ": it ended well, and no test was seen to run."
            return Verdict(
                judgement="tests_unreachable",
                summary=f"The tests could not be run with `{work.test_command}`{why}",
                details=work.opening.text,
            )
        if work.opening.outcome == "passed":
            return Verdict(judgement="nothing_to_do", summary=f"The tests pass already: {_counts(work.opening)}.")
        return Verdict(judgement="go_on", summary=_nudge(state, work))

    def describe(self, state: AgentState, call: ToolCall) -> str:
        if call.name != apply_patch_to_repository.name:
            return described(call)
        work = work_of(state)
        summary = call.args.get("summary") or call.name
        if work.evidence is None:
            return f"{summary}\n\nTest evidence: no evidence ({work.test_command})."
        evidence = f"{_counts(work.evidence)} in a fresh copy ({work.test_command})"
        lines = [f"Test evidence: {evidence}.", f"Sandbox level: {_sandbox(work, work.evidence)}."]
        if steering := [str(path) for path in _list(call.bound.get("paths")) if steers_tests(str(path))]:
            lines.append(f"Look closely: the patch changes how the tests are run ({', '.join(steering)}).")
        return "\n".join([f"{summary}\n", *lines])

    def again(self, work: Mapping[str, Any]) -> dict[str, Any]:
        found = RepairWork.model_validate(work)
        if found.opening is not None and found.opening.out_of_reach:
            found.opening = None
        return found.model_dump()


def existing_folder(path: str) -> Path:
    """The folder, absolute. Raises BadRepository in one sentence."""
    if not path:
        raise BadRepository("no repository was given; name the folder whose tests fail")
    folder = Path(path).absolute()
    if not folder.exists():
        raise BadRepository(f"there is no folder {folder}")
    if not folder.is_dir():
        raise BadRepository(f"{folder} is a file; name the folder of the repository")
    if folder.resolve() == folder.resolve().parent:
        raise BadRepository(f"{folder} is the root of the whole file system; name the folder of the repository")
    try:
        empty = not any(folder.iterdir())
    except OSError as error:
        raise BadRepository(f"{folder} can't be read: {error.strerror}") from None
    if empty:
        raise BadRepository(f"{folder} is empty; there is nothing to repair")
    return folder.resolve()


def check_command(command: str) -> None:
    """Raises Refused for a test command that no shell can read."""
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise Refused(f"the test command {command!r} can't be read: {error}") from None
    if not words:
        raise Refused("the test command is empty; leave it out, or name the command that runs the tests")


def _delivers(state: AgentState) -> bool:
    """Whether the patch is to be handed over: that is decided on the tests, other calls are not."""
    return any(call.name == apply_patch_to_repository.name for call in state.pending_actions)


def work_of(state: AgentState) -> RepairWork:
    return RepairWork.model_validate(state.work)


def _observe_tests(state: AgentState, work: RepairWork, facts: Mapping[str, JsonValue]) -> Observed:
    seen = Evidence(
        snapshot=str(facts.get("snapshot") or ""),
        outcome=str(facts.get("outcome")),
        tests=_count(facts.get("tests")),
        passed=_count(facts.get("passed")),
        failed=_count(facts.get("failed")) + _count(facts.get("errors")),
        skipped=_count(facts.get("skipped")),
        failing=[str(each) for each in _list(facts.get("failing"))][:50],
        reported=facts.get("reported") is True,
        mended=[str(each) for each in _list(facts.get("mended"))],
        text=str(facts.get("text") or "")[-4000:],
        sandbox_level=_count(facts.get("sandbox_level")) or None,
    )
    work.failing = seen.failing
    completed = [] if seen.out_of_reach or seen.outcome == "passed" else [REPRODUCE]
    if facts.get("call") == "opening":
        work.opening, work.failed_at_first = seen, seen.failing
    if facts.get("fresh"):
        work.evidence = seen
        proven = _is_proven(work) and seen.snapshot != work.base
        completed = [REPRODUCE, FIND, PROVE] if proven else completed
    tried = [Tried(what="ran the tests", outcome=_counts(seen))]
    return Observed(work=work.model_dump(), tried=tried, completed=completed)


def _is_proven(work: RepairWork) -> bool:
    return work.evidence is not None and work.evidence.outcome == "passed" and _doubt(work) is None


def _doubt(work: RepairWork) -> str | None:
    """Why the last run does not show that what failed at the opening works now, whatever its outcome: the same tests
    have to be seen to pass, and none of them may be gone. Tests that may be edited may be gone, too."""
    before, now = work.opening, work.evidence
    if before is None or now is None:
        return None
    if before.reported and not now.reported:
        return "pytest did not report what became of each test, as it did at first"
    if work.allow_test_edits:
        return None
    if now.tests < before.tests:
        return f"{now.tests} tests were there, and {before.tests} at first"
    if now.skipped > before.skipped:
        return f"{now.skipped} tests were skipped, and {before.skipped} at first"
    missing = [name for name in work.failed_at_first if name not in now.mended] if before.reported else []
    return f"{', '.join(missing[:5])} failed at first, and did not pass now" if missing else None


def _handed_over(applied: Mapping[str, JsonValue], evidence: Evidence) -> Verdict:
    """How a run ends whose patch is where it was asked for."""
    if gone := applied.get("gone"):
        summary = (
            f"Run {short(str(gone))}, from which this one branched, had handed over the same patch, which is not "
            "there any more; nothing was written this time. To write it once more, branch and approve with --again."
        )
        return Verdict(judgement="nothing_to_do", summary=summary)
    return Verdict(judgement="done", summary=f"The patch is {handed_over(applied)}; {_counts(evidence)} with it.")


def _nudge(state: AgentState, work: RepairWork) -> str:
    if work.evidence is not None and work.evidence.snapshot == state.snapshot and _is_proven(work):
        return "The tests pass. Call apply_patch_to_repository so that a person can approve the patch."
    if state.snapshot == work.base:
        return "Nothing has been changed yet and the tests still fail. Use the tools, or say what you would need."
    return "Run the tests on what you have changed; when they pass, call apply_patch_to_repository."


def _counts(facts: Evidence) -> str:
    if facts.outcome in {"passed", "failed"}:
        skipped = f", {facts.skipped} skipped" if facts.skipped else ""
        return f"{facts.passed} passed, {facts.failed} failed{skipped}"
    return {"timeout": "the tests ran into the time limit", "no_tests": "no tests were found"}.get(
        facts.outcome, "the tests could not be run"
    )


def _sandbox(work: RepairWork, evidence: Evidence) -> str:
    """Its level when the tests ran, and what the person who began the run opened for them."""
    opened = ["with network"] if work.allow_network else []
    opened += [f"with the variables {', '.join(work.env)}"] if work.env else []
    return ", ".join([str(evidence.sandbox_level or "unknown"), *opened])


def _count(value: JsonValue | None) -> int:
    return value if isinstance(value, int) else 0


def _list(value: JsonValue | None) -> list[JsonValue]:
    return value if isinstance(value, list) else []


REPAIR = Job(
    name="repair",
    rules=RepairRules(),
    toolbox=Toolbox.of(
        [
            list_files,
            read_file,
            search_text,
            run_tests,
            evaluate_candidates,
            edit_file,
            write_file,
            apply_patch_to_repository,
        ]
    ),
    work=RepairWork,
    default_model="search-repair",
)
