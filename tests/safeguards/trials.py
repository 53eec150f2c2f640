"""Short campaigns, each with blows that one safeguard or a few of them are there for.

A trial on sources that are whole sees nothing. `python -m tests.safeguards.trials NAME` runs one on the sources in the
current folder, and prints what it saw as JSON.
"""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from typing import Any

from graph.notices import send_due
from scripts.bench.crash.campaign import Campaign, OpenTrial, Server, campaign, own_server
from scripts.bench.crash.errands import ErrandTrial, errand_trial
from scripts.bench.crash.figures import Fault, Kind, Outcome, Point
from scripts.bench.crash.sinks import Receiver, receiver
from scripts.bench.crash.trial import Between, Trial, job_trial
from scripts.bench.crash.wire import Moment, Side
from state.agent_state import RunInput
from state.approvals import Decision, digest_of
from state.errors import AlreadyDecided, Fenced, Refused, RunBusy
from state.holder import this_process
from state.ledger import Intent
from state.status import Standing
from tests.helpers.app import Driver, application_on, calls
from tests.helpers.notes import letters
from tests.helpers.refunds import JOB, TURNS
from tests.helpers.shop import Shop, open_shop
from tests.safeguards import siblings
from tests.safeguards.jobs import LATE_SECONDS, SLOW_POST
from tools.carry import FolderChanges, PatchConflict, apply_changes
from tools.execution import effect_key
from tools.journal import Journal
from tools.unified import FileChange, Version

END_SECONDS = 60.0
"""A run that has not gone on for so long after a blow hangs; one that was put down is taken up within half of it."""
MAX_CRASHES = 3
SAVE = "record_step"
REFUND, LETTER, LOOK = "POST /orders/*/refunds", "POST /letters", "GET /orders/*"
ADA, BOB = {"to": "ada", "text": "hello"}, {"to": "bob", "text": "hello"}


class Ground:
    """Where a trial takes place, and what it saw."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.folder = server.folder
        self.wrong: list[str] = []
        self.missed: list[str] = []
        """Blows that did not fall: on whole sources, the trial is out of date."""

    def expect(self, so: bool, otherwise: str) -> None:
        if not so:
            self.wrong.append(otherwise)

    async def strike(self, under_way: Campaign, *faults: Fault) -> Outcome:
        """One run with these blows, which shall come through whole."""
        outcome = await under_way.run(faults)
        self.missed += [str(each) for each in faults if each not in under_way.fallen]
        if outcome.duplicates:
            self.wrong.append(f"{outcome.duplicates} too many: {outcome.effects}")
        self.wrong += outcome.trouble
        if outcome.lost and not outcome.trouble:
            self.wrong.append(f"{outcome.lost} lost: {outcome.effects}")
        if outcome.told:
            self.wrong.append(f"a person was asked for what can be known ({outcome.standing})")
        return outcome


def at(kind: Kind, side: Side, place: str, number: int = 1) -> Fault:
    return Fault(kind, Point(place, side, number))


def last(under_way: Campaign, kind: Kind, side: Side, beginning: str) -> Fault:
    """At the last of these in a run."""
    points = [each for each in under_way.points if each.side == side and each.place.startswith(beginning)]
    return Fault(kind, max(points, key=lambda point: point.number))


# -- runs of the refund job, and of its relatives ---------------------------------------------------------------------


@asynccontextmanager
async def equipped(open_trial: OpenTrial, variables: Mapping[str, str], between: Between) -> AsyncIterator[Trial]:
    """The trial, with more settings."""
    async with open_trial(between) as trial:
        trial.environment = {**trial.environment, **variables}
        yield trial


@asynccontextmanager
async def refunding(
    ground: Ground, *, job: str = JOB, turns: Sequence[Any] = TURNS, **variables: str
) -> AsyncIterator[tuple[Campaign, Shop]]:
    script = ground.folder / "script.json"
    script.write_text(json.dumps(turns))
    with open_shop() as shop:
        given = RunInput(options={"order": 7, "shop": shop.address}, model=f"scripted:{script}")
        opened = partial(equipped, partial(job_trial, job, given), variables)
        async with campaign(ground.server, opened, end_seconds=END_SECONDS) as under_way:
            yield under_way, shop


async def refunds(ground: Ground, *runs: Sequence[Fault]) -> None:
    async with refunding(ground) as (under_way, _):
        for faults in runs:
            await ground.strike(under_way, *faults)
            if ground.wrong:
                return


async def killed_after_an_effect(ground: Ground) -> None:
    """Before its receipt is stored."""
    await refunds(ground, [at("kill", "done", REFUND), at("kill", "done", LETTER)])


async def frozen_after_an_intent(ground: Ground) -> None:
    """Before the effect; thawed as soon as another has taken over, and again only when that has ended the run."""
    await refunds(ground, [at("freeze", "done", "claim_effect")], [at("freeze", "done", "claim_effect")])


async def frozen_before_a_save(ground: Ground) -> None:
    """Twice, as above."""
    before = at("freeze", "done", "save_writes", 3)
    await refunds(ground, [before], [before])


async def frozen_in_a_transaction(ground: Ground) -> None:
    """Whose rows are locked."""
    await refunds(ground, [at("freeze", "before", "update runs.status, update attempts.ended_at")])


async def cut_off_in_a_save(ground: Ground) -> None:
    """Before the commit has left, and after it is made, its answer being lost."""
    await refunds(ground, [at("cut", "before", SAVE, 8)], [at("cut", "done", SAVE, 10)])


async def frozen_while_it_went_on(ground: Ground) -> None:
    """One dies at the effect, the next has looked for it and freezes, a third one goes on."""
    blows = [at("kill", "before", REFUND), at("freeze", "done", "GET /refunds/*")]
    await refunds(ground, blows, blows)


async def killed_again_and_again(ground: Ground) -> None:
    """At the same place: the run is given up, and says so."""
    kills = [at("kill", "before", REFUND, number) for number in range(1, MAX_CRASHES + 4)]
    async with refunding(ground, DEVFIX_MAX_CRASHES=str(MAX_CRASHES)) as (under_way, _):
        outcome = await under_way.run(kills)
        ground.expect(
            outcome.standing == "failed: internal",
            f"{len(under_way.fallen)} processes in a row died at the same place, and it was tried again each time; it "
            f"stands {outcome.standing}",
        )


async def killed_after_a_receipt(ground: Ground) -> None:
    """Nobody can be asked whether the effect has happened, and nobody need be."""
    async with refunding(ground, job="tests.safeguards.jobs:BLIND") as (under_way, _):
        await ground.strike(under_way, at("kill", "before", "save_writes", 3))


async def killed_at_the_end(ground: Ground) -> None:
    """After the last save, and after the settlement: the run stands as it should, and people are told once."""
    async with receiver() as hooks:
        url = f"http://127.0.0.1:{hooks.port}"
        variables = {"DEVFIX_WEBHOOK_URL": f"{url}/hook", "DEVFIX_WEBHOOK_STATUS_URL": f"{url}/seen/{{key}}"}
        settle = {"DEVFIX_NOTIFY": "webhook", "DEVFIX_OUTWARD_SETTLE_SECONDS": "0.5"}
        async with refunding(ground, **variables, **settle) as (under_way, _):
            for fault in (last(under_way, "kill", "done", SAVE), last(under_way, "kill", "done", "update runs.status")):
                outcome = await ground.strike(under_way, fault)
                told = await _told(hooks, outcome.run_id)
                ground.expect(told == 1, f"nobody was told that it is {outcome.standing} ({told} messages)")
                if ground.wrong:
                    return


async def _told(hooks: Receiver, run_id: str) -> int:
    until = time.monotonic() + 15
    while not hooks.told[run_id] and time.monotonic() < until:  # noqa: ASYNC110 - the receiver is polled
        await asyncio.sleep(0.1)
    return hooks.told[run_id]


async def late_writer(ground: Ground) -> None:
    """A process that was overtaken goes on writing into the files of its run."""
    turns = [{"tool_calls": [{"name": name, "args": {}}]} for name in ("leave_a_file", "write_what_is_there")]
    async with refunding(ground, job="tests.safeguards.jobs:FILES", turns=turns) as (under_way, shop):
        await ground.strike(under_way, at("freeze", "done", LOOK))
        names = str(shop.letters[-1]["text"]).split()
        ground.expect(len(names) == 1, f"the files of the step are those of {len(names)} processes")


# -- errands ----------------------------------------------------------------------------------------------------------


async def killed_after_a_mail(ground: Ground) -> None:
    """Before its receipt is stored; the mailbox has it."""
    async with campaign(ground.server, errand_trial, end_seconds=END_SECONDS) as under_way:
        await ground.strike(under_way, at("kill", "done", "a mail"))


async def killed_after_a_push(ground: Ground) -> None:
    """And the branch is merged and removed before anybody looks."""
    async with campaign(ground.server, merging, end_seconds=END_SECONDS) as under_way:
        await ground.strike(under_way, at("kill", "done", "a push"))


@asynccontextmanager
async def merging(between: Between) -> AsyncIterator[ErrandTrial]:
    """Errands, at a remote where a branch is removed as soon as its push has been struck."""
    remote = between.folder / "remote.git"

    async def watch(moment: Moment) -> bool:
        go = await between.watch(moment)
        if not go and (moment.place, moment.side) == ("a push", "done"):
            for head in (remote / "refs" / "heads").iterdir():
                head.unlink()
        return go

    async with errand_trial(between._replace(watch=watch)) as trial:
        yield trial


# -- doors that no blow reaches ---------------------------------------------------------------------------------------


@asynccontextmanager
async def processes(ground: Ground, number: int = 1, **settings: Any) -> AsyncIterator[list[Driver]]:
    """So many processes with the notes job, as far as the database can tell, that share one run."""
    async with AsyncExitStack() as stack:
        drivers: list[Driver] = []
        for _ in range(number):
            application = application_on(ground.server.url, ground.folder, **settings)
            stack.push_async_callback(application.services.close)
            drivers.append(Driver(application, ground.folder))
            drivers[-1].run_id = drivers[0].run_id
        yield drivers


async def the_call(driver: Driver) -> str:
    """The newest call that a person is asked about."""
    return (await driver.services.approvals.of(driver.run_id))[-1].question.call_id


async def approve(driver: Driver) -> None:
    await driver.services.approvals.decide(
        driver.run_id, await the_call(driver), Decision(type="approve"), by="eve", wake=True
    )


def posted(driver: Driver) -> list[str]:
    return [str(letter["to"]) for letter in letters(driver.letters)]


async def two_at_one_run(ground: Ground) -> None:
    """A second process goes on with a run that is being advanced."""
    async with processes(ground, 2) as (first, second):
        going = asyncio.create_task(first.start([calls(("look", {"what": "x", "seconds": 2.0})), "done"], wanted=0))
        await asyncio.sleep(1)
        try:
            await second.go_on()
            ground.wrong.append("a second process went on with a run that another one was at")
        except RunBusy:
            pass
        (thrown_out,) = await asyncio.gather(going, return_exceptions=True)
        ground.expect(not isinstance(thrown_out, Fenced), "the first one, which lived, lost what it had done")


async def changed_after_the_approval(ground: Ground) -> None:
    """Somebody edits the state between the answer and the effect."""
    async with processes(ground) as (driver,):
        await driver.start([calls(("post", ADA)), "done"])
        await approve(driver)
        (call,) = (await driver.state())["pending_actions"]
        await driver.agent.aupdate_state(driver.config, {"pending_actions": [{**call, "args": BOB}]}, as_node="act")
        with suppress(Refused):
            await driver.go_on()
        ground.expect("bob" not in posted(driver), "a letter to ada was approved, and one to bob was posted")


async def a_job_is_there_already(ground: Ground) -> None:
    """When the answer would wake a worker."""
    async with processes(ground) as (driver,):
        await driver.start([calls(("post", ADA)), "done"])
        await driver.application.queue.put(driver.run_id, after_seconds=3600)
        await approve(driver)
        (row,) = await driver.services.approvals.of(driver.run_id)
        ground.expect(row.decision is not None, "an answer was taken with thanks, and is not there")


async def many_answers_at_once(ground: Ground) -> None:
    """From several processes, yes and no."""
    async with processes(ground, 3) as drivers:
        await drivers[0].start([calls(("post", ADA)), "done"])
        call = await the_call(drivers[0])

        async def answer(number: int) -> str | None:
            decision = Decision.model_validate({"type": "approve" if number % 2 else "reject"})
            approvals = drivers[number % 3].services.approvals
            try:
                await approvals.decide(drivers[0].run_id, call, decision, by=f"person {number}")
            except AlreadyDecided:
                return None
            return f"person {number}: {decision.type}"

        taken = [each for each in await asyncio.gather(*map(answer, range(60))) if each]
        ground.expect(len(taken) == 1, f"{len(taken)} of 60 were told that their answer counts")


async def answered_too_late(ground: Ground) -> None:
    """The question has expired."""
    async with processes(ground, approval_ttl_seconds=0.3) as (driver,):
        await driver.start([calls(("post", ADA)), "done"])
        await asyncio.sleep(0.5)
        try:
            await approve(driver)
            ground.wrong.append("an answer was taken after the question had expired")
        except AlreadyDecided:
            pass
        await driver.go_on()
        ground.expect(not posted(driver), "the letter was posted all the same")


async def begun_elsewhere(ground: Ground) -> None:
    """By a process of a machine that nobody can look at; it is slow, not dead."""
    async with processes(ground) as (driver,):
        intent, epoch = await held_elsewhere(driver)
        await driver.services.ledger.claim(intent, epoch=epoch)
        run = await driver.go_on()
        arrived(driver, intent)
        ground.expect(len(posted(driver)) == 1, f"{len(posted(driver))} letters; it stands {run.standing}")


async def woken_elsewhere(ground: Ground) -> None:
    """A process of such a machine was frozen, and would begin what another one is about to do."""
    async with processes(ground) as (driver,):
        intent, epoch = await held_elsewhere(driver)
        runs, run_id = driver.services.runs, driver.run_id
        claim = await runs.claim(run_id, this_process("here"))
        with suppress(Fenced):
            await driver.services.ledger.claim(intent, epoch=epoch)
        await runs.settle(run_id, claim.epoch, Standing("queued", "released"))
        run = await driver.go_on()
        ground.expect(run.status == "completed", f"nobody knows whether it was done: it stands {run.standing}")


async def held_elsewhere(driver: Driver) -> tuple[Intent, int]:
    """A letter is approved, and a process far away, not heard of for long, holds the run; what it would begin."""
    await driver.start([calls(("post", ADA)), "done"])
    await approve(driver)
    run_id, call = driver.run_id, await the_call(driver)
    claim = await driver.services.runs.claim(run_id, this_process("far").model_copy(update={"host": "elsewhere"}))
    async with driver.application.database.transaction() as connection:
        await connection.execute("UPDATE runs SET heartbeat_at = now() - interval '1 hour'")
    arguments = {**ADA, "bound": {}}
    key = effect_key(run_id, call)
    return Intent(run_id, call, "post", digest_of("post", arguments), arguments, key), claim.epoch


def arrived(driver: Driver, intent: Intent) -> None:
    with driver.letters.open("a") as sink:
        sink.write(json.dumps({**ADA, "key": intent.key}) + "\n")


async def delivered_late(ground: Ground) -> None:
    """It failed, nobody had it, and the model asks for it again; then the first one arrives."""
    async with processes(ground) as (driver,):
        driver.services.jobs = {**driver.services.jobs, "notes": SLOW_POST}  # type: ignore[misc]
        await driver.start([calls(("post_slowly", {"to": "ada"}))] * 2, wanted=1)
        await approve(driver)
        await driver.go_on()
        await asyncio.sleep(LATE_SECONDS + 0.3)
        await approve(driver)
        await driver.go_on()
        await asyncio.sleep(LATE_SECONDS + 0.3)
        ground.expect(len(posted(driver)) == 1, f"{len(posted(driver))} letters for one")


async def asked_for_twice(ground: Ground) -> None:
    """The model has forgotten that it is done, and a person says yes without looking."""
    async with processes(ground) as (driver,):
        await driver.start([calls(("post", ADA)), calls(("post", ADA)), "done"], wanted=2)
        for _ in range(2):
            await approve(driver)
            await driver.go_on()
        ground.expect(len(posted(driver)) == 1, f"{len(posted(driver))} equal letters")


async def a_slow_receiver(ground: Ground) -> None:
    """Several processes send what is due, while one is at it."""
    hooks, seconds = Receiver(), [1.5]

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(seconds.pop() if seconds else 0)
        await hooks.serve(reader, writer)

    server = await asyncio.start_server(serve, "127.0.0.1")
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    told: dict[str, Any] = {"notify": ["webhook"], "webhook_url": f"{url}/hook", "outward_settle_seconds": 0.2}
    async with server, processes(ground, 3, **told, webhook_status_url=f"{url}/seen/{{key}}") as drivers:
        await drivers[0].start([calls(("post", ADA)), "done"])

        async def send(number: int, driver: Driver) -> None:
            await asyncio.sleep(number * 0.3)
            await send_due(driver.services)

        await asyncio.gather(*(send(number, driver) for number, driver in enumerate(drivers)))
        ground.expect(len(hooks.keys) == 1, f"one message was sent {len(hooks.keys)} times")


async def killed_beside_a_sibling(ground: Ground) -> None:
    """The quick node of a superstep has ended, the slow one is at work."""
    command = [sys.executable, "-m", siblings.__name__, ground.server.url, str(ground.folder)]
    with subprocess.Popen(command) as process:  # noqa: ASYNC220 - it only starts
        while sorted(siblings.ran(ground.folder)) != ["quick", "slow"]:  # noqa: ASYNC110 - it is another process
            await asyncio.sleep(0.02)
        await asyncio.sleep(0.5)
        process.send_signal(signal.SIGKILL)
    await siblings.run(ground.server.url, ground.folder)
    quick = siblings.ran(ground.folder).count("quick")
    ground.expect(quick == 1, f"a node that had ended ran {quick} times")


async def a_patch_that_does_not_fit(ground: Ground) -> None:
    """One of its two files was changed meanwhile."""
    folder = ground.folder / "theirs"
    folder.mkdir()
    (folder / "a").write_bytes(b"old\n")
    (folder / "b").write_bytes(b"their own\n")
    old, new = Version("100644", b"old\n"), Version("100644", b"new\n")
    changes = FolderChanges([FileChange(name, old, new) for name in ("a", "b")])
    try:
        apply_changes(folder, changes, journal=Journal(ground.folder, "key"))
        ground.wrong.append("a patch that does not fit was applied")
    except PatchConflict:
        pass
    ground.expect((folder / "a").read_bytes() == b"old\n", "one of its files was written")


TRIALS: Mapping[str, Callable[[Ground], Awaitable[None]]] = {
    each.__name__: each
    for each in (
        killed_after_an_effect,
        frozen_after_an_intent,
        frozen_before_a_save,
        frozen_in_a_transaction,
        cut_off_in_a_save,
        frozen_while_it_went_on,
        killed_again_and_again,
        killed_after_a_receipt,
        killed_at_the_end,
        late_writer,
        killed_after_a_mail,
        killed_after_a_push,
        two_at_one_run,
        changed_after_the_approval,
        a_job_is_there_already,
        many_answers_at_once,
        answered_too_late,
        begun_elsewhere,
        woken_elsewhere,
        delivered_late,
        asked_for_twice,
        a_slow_receiver,
        killed_beside_a_sibling,
        a_patch_that_does_not_fit,
    )
}


async def run(name: str) -> Ground:
    """SIGTERM ends it, and all that it started."""
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    async with own_server() as server:
        ground = Ground(server)
        await TRIALS[name](ground)
        return ground


if __name__ == "__main__":
    seen = asyncio.run(run(sys.argv[1]))
    print(json.dumps({"wrong": seen.wrong, "missed": seen.missed}))
