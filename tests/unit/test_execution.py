"""Effects: once. What becomes of each state of the ledger, and what a tool's trouble turns into."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

import pytest
from langgraph.errors import GraphInterrupt

from state.approvals import digest_of
from state.errors import DevfixError, EffectRefused, Fenced, NotReached
from state.holder import Holder, _started, this_process
from state.ledger import Intent
from tests.helpers.memory_stores import MemoryArtifacts, MemoryLedger, MemoryRuns
from tools.execution import Execution, Performed, effect_key
from tools.registry import Found, Tool, ToolContext, tool

RUN, CALL = "r", "c"


class Sink:
    """The other side: a post box that can be asked, and that can fail in several ways."""

    def __init__(self) -> None:
        self.letters: list[str] = []
        self.trouble: Exception | None = None
        self.deaf: Exception | None = None
        self.says = "posted"

    def tool(self, **options: Any) -> Tool:
        async def find(args: Mapping[str, Any], context: ToolContext) -> Found:
            if self.deaf:
                raise self.deaf
            return {"key": context.key} if context.key in self.letters else None

        async def post(to: str, *, context: ToolContext) -> str:
            """Post a letter."""
            if isinstance(self.trouble, EffectRefused):
                raise self.trouble
            self.letters.append(context.key)
            if self.trouble is not None:
                raise self.trouble
            return self.says

        return tool(kind="effect", **{"verify": find, **options})(post)


class Desk:
    """An execution with a run that somebody holds."""

    def __init__(self) -> None:
        self.ledger = MemoryLedger()
        self.runs = MemoryRuns()
        self.execution = Execution(ledger=self.ledger, runs=self.runs)
        self.artifacts = MemoryArtifacts()
        self.epoch = 0

    async def hold(self) -> None:
        await self.runs.register(RUN)
        self.runs.lose(RUN)
        self.epoch = (await self.runs.claim(RUN, this_process())).epoch
        self.ledger.epochs[RUN] = self.epoch

    async def do(self, made: Tool, call: str = CALL, *, run: str = RUN, again: bool = False, **args: Any) -> Performed:
        context = cast("Any", ToolContext)(
            run_id=run,
            call_id=call,
            key=effect_key(run, call),
            again=again,
            work={},
            workspace=None,
            sandbox=None,
            artifacts=self.artifacts,
            snapshots=None,
            settings=None,
        )
        return await self.execution.perform(made, args or {"to": "ada"}, context, epoch=self.epoch)

    async def state(self) -> list[str]:
        return [effect.state for effect in await self.ledger.of(RUN)]

    async def leave_claimed(self, made: Tool) -> None:
        """A process died between the intent and the receipt."""
        await self.ledger.claim(_claim(made, CALL, "ada"), epoch=self.epoch)


@pytest.fixture
async def desk() -> Desk:
    desk = Desk()
    await desk.hold()
    return desk


@pytest.fixture
def sink() -> Sink:
    return Sink()


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retries come at once."""
    monkeypatch.setattr("tools.execution._PAUSE_SECONDS", 0.0)


@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize(("failures", "posted"), [(0, 1), (3, 1), (4, 0)])
async def test_an_effect_that_certainly_did_not_happen_is_tried_again(desk: Desk, failures: int, posted: int) -> None:
    """Three times, under the same approval; then it is refused, and nothing is left in the ledger."""
    tries: list[str] = []

    async def post(to: str, *, context: ToolContext) -> str:
        """Post a letter."""
        tries.append(context.key)
        if len(tries) <= failures:
            raise NotReached("the post office is shut; nothing was posted")
        return "posted"

    desk.execution = Execution(ledger=desk.ledger, runs=desk.runs, retries=3)
    performed = await desk.do(tool(kind="effect", uncheckable=True)(post))
    assert len(tries) == min(failures, 3) + 1
    assert len(set(tries)) == 1
    assert performed.failure == (None if posted else "effect_refused")
    assert await desk.state() == ["settled"] * posted


@pytest.mark.usefixtures("hurried")
async def test_an_effect_that_may_have_happened_is_not_tried_again(desk: Desk, sink: Sink) -> None:
    """A connection that breaks says nothing of what came of it: the other side is asked."""
    desk.execution = Execution(ledger=desk.ledger, runs=desk.runs, retries=3)
    sink.trouble = ConnectionResetError("it broke")
    performed = await desk.do(sink.tool())
    assert (len(sink.letters), performed.failure) == (1, None)
    sink.trouble = EffectRefused("the box is full")
    assert (await desk.do(sink.tool(), "d", to="bob")).failure == "effect_refused"


@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize(
    ("trouble", "tried"),
    [(ConnectionRefusedError("shut"), 4), (FileNotFoundError("no such file"), 1), (ValueError("a bug"), 1)],
)
async def test_a_read_is_tried_again_after_trouble_that_may_pass(desk: Desk, trouble: Exception, tried: int) -> None:
    """What will be there again at the second try is told at once."""
    tries: list[int] = []

    async def look(to: str, *, context: ToolContext) -> str:
        """Look."""
        tries.append(1)
        raise trouble

    desk.execution = Execution(ledger=desk.ledger, runs=desk.runs, retries=3)
    assert (await desk.do(tool(kind="read")(look))).result.is_error
    assert len(tries) == tried


async def test_an_effect_is_performed_once_and_its_receipt_given_again(desk: Desk, sink: Sink) -> None:
    """The second time nothing is sent."""
    for _ in range(3):
        performed = await desk.do(sink.tool())
        assert (performed.result.content, performed.failure) == ("posted", None)
    assert len(sink.letters) == 1
    assert await desk.state() == ["settled"]


async def test_what_was_done_before_a_crash_is_found_and_settled(desk: Desk, sink: Sink) -> None:
    """Claimed by this machine's dead process, and the other side has it."""
    made = sink.tool()
    await desk.leave_claimed(made)
    sink.letters.append(effect_key(RUN, CALL))
    await desk.hold()
    _die(desk)
    assert (await desk.do(made)).failure is None
    assert len(sink.letters) == 1
    assert await desk.state() == ["settled"]


async def test_what_was_not_done_before_a_crash_is_performed(desk: Desk, sink: Sink) -> None:
    """Claimed by this machine's dead process, and the other side knows nothing of it."""
    made = sink.tool()
    await desk.leave_claimed(made)
    await desk.hold()
    _die(desk)
    assert (await desk.do(made)).failure is None
    assert len(sink.letters) == 1


async def test_absence_proves_nothing_while_the_former_holder_may_live(desk: Desk, sink: Sink) -> None:
    """It may be about to send: unknown, and never sent again by itself."""
    made = sink.tool()
    await desk.leave_claimed(made)
    await desk.hold()
    _elsewhere(desk)
    assert (await desk.do(made)).failure == "outcome_unknown"
    assert (await desk.do(made)).failure == "outcome_unknown"
    assert sink.letters == []
    assert await desk.state() == ["unknown"]


async def test_presence_settles_whoever_may_live(desk: Desk, sink: Sink) -> None:
    """What is there has happened."""
    made = sink.tool()
    await desk.leave_claimed(made)
    sink.letters.append(effect_key(RUN, CALL))
    await desk.hold()
    _elsewhere(desk)
    assert (await desk.do(made)).failure is None


async def test_a_sink_that_refuses_doubles_is_simply_asked_again(desk: Desk, sink: Sink) -> None:
    """Its own key does the rest."""
    made = sink.tool(idempotent=True)
    await desk.leave_claimed(made)
    await desk.hold()
    _elsewhere(desk)
    assert (await desk.do(made)).failure is None


@pytest.mark.parametrize("how", ["uncheckable", "deaf", "broken"])
async def test_where_nobody_can_know_a_person_decides(desk: Desk, sink: Sink, how: str) -> None:
    """Also when the other side does not answer."""
    made = sink.tool(verify=None, uncheckable=True) if how == "uncheckable" else sink.tool()
    sink.deaf = {"uncheckable": None, "deaf": DevfixError("no answer"), "broken": KeyError("a bug of verify's")}[how]
    await desk.leave_claimed(made)
    await desk.hold()
    _die(desk)
    assert (await desk.do(made)).failure == "outcome_unknown"
    assert sink.letters == []


async def test_an_effect_that_broke_after_it_happened_is_settled(desk: Desk, sink: Sink) -> None:
    """The connection was lost behind the letter: the other side has it."""
    sink.trouble = ConnectionError("lost")
    assert (await desk.do(sink.tool())).failure is None
    assert await desk.state() == ["settled"]


async def test_trouble_with_a_sink_that_refuses_doubles_is_no_persons_business(desk: Desk, sink: Sink) -> None:
    """It can't be asked, but it can be tried again, under the key that it knows."""
    made = sink.tool(verify=None, uncheckable=True, idempotent=True)
    sink.trouble = OSError("lost")
    assert (await desk.do(made)).failure == "tool_unavailable"
    sink.trouble = None
    assert (await desk.do(made, "another")).failure is None
    assert set(sink.letters) == {effect_key(RUN, CALL)}
    assert await desk.state() == ["settled"]


async def test_an_effect_that_is_refused_leaves_no_intent(desk: Desk, sink: Sink) -> None:
    """So that it can be asked for again."""
    sink.trouble = EffectRefused("not as it was approved")
    performed = await desk.do(sink.tool())
    assert (performed.failure, performed.result.content) == ("effect_refused", "not as it was approved")
    assert await desk.state() == []


async def test_the_same_effect_under_a_new_id_is_not_done_again(desk: Desk, sink: Sink) -> None:
    """A model that asks twice gets the first receipt, and reads that it is one; a person can say: again."""
    await desk.do(sink.tool())
    second = await desk.do(sink.tool(), "another")
    assert "not done again" in second.result.content
    assert second.result.content.endswith("posted")
    assert len(sink.letters) == 1
    assert (await desk.do(sink.tool(), "third", again=True)).result.content == "posted"
    assert len(sink.letters) == 2


async def test_what_failed_and_is_asked_for_again_is_looked_for_under_its_first_key(desk: Desk, sink: Sink) -> None:
    """A server that hung may have done it after all, by then."""

    class Lost(Exception):
        """The connection broke before the letter arrived."""

    made, first = sink.tool(), effect_key(RUN, CALL)

    async def hangs(to: str, *, context: ToolContext) -> str:
        """Post a letter."""
        raise Lost

    broken = replace(made, call=hangs)
    assert (await desk.do(broken)).failure == "tool_failed"
    assert await desk.state() == ["absent"]
    told = await desk.execution.done_before(RUN, "another", "post", {"to": "ada", "bound": {}})
    assert "Approving tries it once more" in str(told)
    sink.letters.append(first)  # late
    assert (await desk.do(made, "another")).failure is None
    assert sink.letters == [first]
    assert await desk.state() == ["settled"]


async def test_what_failed_and_is_tried_again_is_done_under_its_first_key(desk: Desk, sink: Sink) -> None:
    """One effect, one key, one row, however often it is asked for."""
    made = sink.tool()

    async def breaks(to: str, *, context: ToolContext) -> str:
        """Post a letter."""
        raise OSError("the way is shut")

    assert (await desk.do(replace(made, call=breaks))).failure == "tool_unavailable"
    await desk.hold()
    assert (await desk.do(made, "another")).failure is None
    assert sink.letters == [effect_key(RUN, CALL)]
    assert await desk.state() == ["settled"]


async def test_whoever_comes_third_looks_for_the_second_not_for_the_first(desk: Desk, sink: Sink) -> None:
    """The first died, the second began anew and froze on another machine: it may be about to send."""
    made = sink.tool()
    await desk.leave_claimed(made)
    await desk.hold()
    _die(desk)
    entered, never = asyncio.Event(), asyncio.Event()

    async def freezes(to: str, *, context: ToolContext) -> str:
        """Post a letter."""
        entered.set()
        await never.wait()
        return ""

    second = asyncio.create_task(desk.do(replace(made, call=freezes)))
    await entered.wait()
    await desk.hold()
    _elsewhere(desk)
    assert (await desk.do(made)).failure == "outcome_unknown"
    assert sink.letters == []
    second.cancel()


async def test_an_attempt_that_was_overtaken_is_given_time_to_stop(desk: Desk, sink: Sink) -> None:
    """It says so when nothing of it runs any more, and then absence proves something."""
    made = sink.tool()
    await desk.leave_claimed(made)
    await desk.hold()
    _elsewhere(desk)
    patient = Execution(ledger=desk.ledger, runs=desk.runs, stop_seconds=30)
    desk.execution = patient
    performing = asyncio.create_task(desk.do(made))
    await asyncio.sleep(0.2)
    assert sink.letters == []
    await desk.runs.stopped(RUN, desk.epoch - 1)
    assert (await performing).failure is None
    assert len(sink.letters) == 1


async def test_who_froze_is_ended_and_its_effect_done(desk: Desk, sink: Sink) -> None:
    """Once it is gone, which takes a large process a moment: nobody is asked about what is known then."""
    made = sink.tool()
    await desk.leave_claimed(made)
    await desk.hold()
    sleeping = [sys.executable, "-c", "import time; time.sleep(60)"]
    with subprocess.Popen(sleeping) as child:  # noqa: ASYNC220 - it only starts
        try:
            os.kill(child.pid, signal.SIGSTOP)
            frozen = this_process().model_copy(update={"pid": child.pid, "started": _started(child.pid)})
            _former(desk, ended=False, holder=frozen)
            assert (await desk.do(made)).failure is None
            assert child.wait(10) == -signal.SIGKILL
        finally:
            child.kill()
    assert len(sink.letters) == 1


async def test_a_branch_does_not_repeat_what_its_parent_did(desk: Desk, sink: Sink) -> None:
    """It gets the receipt of a settled effect; of one that hangs in the air only what the other side says."""
    made = sink.tool()
    desk.ledger.parents["branch"] = RUN
    await desk.do(made)
    assert "not done again" in (await desk.do(made, "b", run="branch")).result.content
    await desk.ledger.claim(_claim(made, "open", "bob"), epoch=desk.epoch)
    assert (await desk.do(made, "c", run="branch", to="bob")).failure == "outcome_unknown"
    sink.letters.append(effect_key(RUN, "open"))
    assert "not done again" in (await desk.do(made, "d", run="branch", to="bob")).result.content
    assert len(sink.letters) == 2
    assert await desk.ledger.of("branch") == []


async def test_a_person_is_told_of_the_first_before_they_approve_a_second(desk: Desk, sink: Sink) -> None:
    """And that approving does nothing unless they say so."""
    await desk.do(sink.tool())
    arguments = {"to": "ada", "bound": {}}
    assert await desk.execution.done_before(RUN, CALL, "post", arguments) is None
    assert await desk.execution.done_before(RUN, "c2", "post", {**arguments, "to": "bob"}) is None
    told = await desk.execution.done_before(RUN, "c2", "post", arguments)
    assert told is not None
    assert "again" in told


async def test_a_large_receipt_is_an_artifact_and_comes_back_whole(desk: Desk, sink: Sink) -> None:
    """The ledger's row stays small."""
    sink.says = "\ud800" + "x" * 500_000
    for _ in range(2):
        assert (await desk.do(sink.tool())).result.content == sink.says
    (effect,) = await desk.ledger.of(RUN)
    assert effect.receipt is not None
    assert len(str(effect.receipt)) < 2_000
    assert len(sink.letters) == 1


async def test_a_receipt_of_another_version_still_says_that_it_was_done(desk: Desk, sink: Sink) -> None:
    """Whatever its form."""
    made = sink.tool()
    await desk.leave_claimed(made)
    await desk.ledger.settle(RUN, CALL, {"form": 9, "id": "msg-7"}, epoch=desk.epoch)
    performed = await desk.do(made)
    assert performed.failure is None
    assert "msg-7" in performed.result.content
    assert sink.letters == []


async def test_a_fenced_attempt_begins_nothing(desk: Desk, sink: Sink) -> None:
    """The other attempt does it."""
    desk.ledger.epochs[RUN] = desk.epoch + 1
    with pytest.raises(Fenced):
        await desk.do(sink.tool())
    assert sink.letters == []


@pytest.mark.parametrize(
    ("trouble", "kind"),
    [
        (ValueError("bug"), "tool_failed"),
        (OSError("gone"), "tool_unavailable"),
        (DevfixError("no"), "tool_unavailable"),
    ],
)
async def test_a_read_tools_trouble_is_a_result(desk: Desk, trouble: Exception, kind: str) -> None:
    """The model reads it."""

    async def look(to: str, *, context: ToolContext) -> str:
        """Look."""
        raise trouble

    performed = await desk.do(tool(kind="read")(look))
    assert performed.failure == kind
    assert performed.result.is_error


class _Wordless(Exception):
    def __str__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize("trouble", [SystemExit(3), _Wordless()])
async def test_whatever_a_tool_raises_is_the_models_to_read(desk: Desk, trouble: BaseException) -> None:
    """A library that leaves by `sys.exit`, and an exception without words, end neither the process nor the run."""

    async def leave(to: str, *, context: ToolContext) -> str:
        """Leave."""
        raise trouble

    performed = await desk.do(tool(kind="read")(leave))
    assert performed.failure == "tool_failed"
    assert type(trouble).__name__ in performed.result.content


@pytest.mark.parametrize("given", [None, 7, {"a": 1}, b"x"])
async def test_a_tool_that_gives_no_text_is_told_so(desk: Desk, sink: Sink, given: object) -> None:
    """A read has failed, in words that say why; an effect is looked for, and settled as it had happened."""

    async def read(to: str, *, context: ToolContext) -> str:
        """Read."""
        return cast("str", given)

    performed = await desk.do(tool(kind="read")(read))
    assert performed.failure == "tool_failed"
    assert f"gave a {type(given).__name__}, not a text" in performed.result.content
    sink.says = cast("str", given)
    performed = await desk.do(sink.tool())
    assert (performed.failure, await desk.state()) == (None, ["settled"])


@pytest.mark.parametrize("answer", [True, "yes", {"x": object()}])
async def test_an_answer_that_is_no_receipt_is_no_answer(desk: Desk, sink: Sink, answer: Any) -> None:
    """What `verify` says can't be read: a person decides."""

    async def find(args: Mapping[str, Any], context: ToolContext) -> Found:
        return cast("Found", answer)

    sink.trouble = ConnectionError("gone")
    performed = await desk.do(sink.tool(verify=find))
    assert (performed.failure, await desk.state()) == ("outcome_unknown", ["unknown"])


async def test_b11_a_pause_inside_a_tool_is_no_error(desk: Desk) -> None:
    """LangGraph's control flow passes through the wrapper, and so does the fence."""

    async def asks(to: str, *, context: ToolContext) -> str:
        """Ask."""
        raise GraphInterrupt(())

    with pytest.raises(GraphInterrupt):
        await desk.do(tool(kind="read")(asks))


async def test_arguments_that_do_not_fit_are_told_to_the_model(desk: Desk, sink: Sink) -> None:
    """And nothing is performed: wrong type, missing, unknown."""
    for args in ({"to": ["x"]}, {"too": "ada"}, {"to": "ada", "cc": "bob"}):
        performed = await desk.do(sink.tool(), **args)
        assert performed.failure == "invalid_arguments"
    assert sink.letters == []


async def test_a_tool_that_takes_too_long_is_stopped(desk: Desk) -> None:
    """Within its own limit."""

    async def sleeps(to: str, *, context: ToolContext) -> str:
        """Sleep."""
        await asyncio.sleep(60)
        return ""

    performed = await desk.do(tool(kind="read", timeout=0.05)(sleeps))
    assert performed.failure == "tool_timeout"


def test_an_effect_without_verify_must_say_so(sink: Sink) -> None:
    """It does not register else."""
    with pytest.raises(TypeError, match="uncheckable"):
        sink.tool(verify=None)


def test_a_tool_of_no_kind_is_refused() -> None:
    """Mistyped, it would be found out in the middle of a run."""

    async def look(*, context: ToolContext) -> str:
        """Look."""
        return ""

    with pytest.raises(TypeError, match="the kinds are read, workspace, effect"):
        tool(kind=cast("Any", "Effect"))(look)


def _claim(made: Tool, call: str, to: str) -> Intent:
    digest = digest_of(made.name, {"to": to, "bound": {}})
    return Intent(RUN, call, made.name, digest, {}, effect_key(RUN, call))


def _die(desk: Desk) -> None:
    """The holder of the former attempt settled before it ended."""
    _former(desk, ended=True)


def _elsewhere(desk: Desk) -> None:
    """The holder of the former attempt is on another machine."""
    _former(desk, ended=False)


def _former(desk: Desk, *, ended: bool, holder: Holder | None = None) -> None:
    held = desk.runs._rows[RUN]
    holder = holder or this_process().model_copy(update={"host": "elsewhere"})
    held.attempts[desk.epoch - 1] = held.attempts[desk.epoch - 1]._replace(holder=holder, ended=ended)
