"""The promise of a run store."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from state.errors import Refused, RunBusy, RunNotFound
from state.holder import this_process
from state.runs import Runs
from state.status import Standing

HOLDER = this_process("test")


class RunsContract:
    """Subclasses give `runs` and `lose` (the holder's process dies) as fixtures."""

    async def test_registering_twice_keeps_the_first(self, runs: Runs) -> None:
        """A run is registered on first sight, by whoever drives it."""
        await runs.register("a", goal="first", job="repair")
        await runs.register("a", goal="second")
        run = await runs.get("a")
        assert (run.goal, str(run.standing)) == ("first", "queued: new")

    async def test_a_run_is_described_once_its_job_has_begun_it(self, runs: Runs) -> None:
        """Whoever started it may have named no goal."""
        await runs.register("a")
        await runs.describe("a", goal="make it pass", job="repair", model="search-repair")
        run = await runs.get("a")
        assert (run.goal, run.job, run.model) == ("make it pass", "repair", "search-repair")

    async def test_a_claim_holds_the_run_under_a_new_epoch(self, runs: Runs) -> None:
        """And the run is running."""
        await runs.register("a")
        claim = await runs.claim("a", HOLDER)
        assert (claim.epoch, claim.step, claim.former) == (1, 0, None)
        assert str((await runs.get("a")).standing) == "running"

    async def test_a_live_holder_is_not_overtaken(self, runs: Runs) -> None:
        """RunBusy, and nothing changes."""
        await runs.register("a")
        await runs.claim("a", HOLDER)
        with pytest.raises(RunBusy):
            await runs.claim("a", HOLDER)
        with pytest.raises(RunBusy):
            await runs.seize("a")
        assert (await runs.get("a")).epoch == 1

    async def test_a_dead_holder_is_overtaken_and_named(
        self, runs: Runs, lose: Callable[[str], Awaitable[None]]
    ) -> None:
        """The next attempt learns who died."""
        await runs.register("a")
        await runs.claim("a", HOLDER)
        await lose("a")
        claim = await runs.claim("a", HOLDER)
        assert (claim.epoch, claim.former) == (2, HOLDER)
        assert not (await runs.attempt("a", 1)).ended

    async def test_an_attempt_is_past_when_its_run_has_ended_or_another_came(self, runs: Runs) -> None:
        """Not the newest of a run that may go on; and of an unknown run nothing is known."""
        await runs.register("a")
        await runs.register("b")
        first = await runs.claim("a", HOLDER)
        await runs.settle("a", first.epoch, Standing("waiting", "approval"))
        await runs.claim("b", HOLDER)
        assert not await runs.past(["a", "b", "c"])
        second = await runs.claim("a", HOLDER)
        assert [(each.run_id, each.epoch) for each in await runs.past(["a", "b", "c"])] == [("a", 1)]
        await runs.settle("a", second.epoch, Standing("completed", "done"))
        past = await runs.past(["a", "b", "c"])
        assert sorted((each.epoch, each.former.holder, each.former.ended) for each in past) == [
            (1, HOLDER, True),
            (2, HOLDER, True),
        ]
        assert not await runs.past(["b"])

    async def test_a_settled_attempt_leaves_the_run_free(self, runs: Runs) -> None:
        """With its standing and its report."""
        await runs.register("a")
        claim = await runs.claim("a", HOLDER)
        assert await runs.settle("a", claim.epoch, Standing("waiting", "approval"), {"summary": "asks"})
        run = await runs.get("a")
        assert (str(run.standing), run.report) == ("waiting: approval", {"summary": "asks"})
        assert (await runs.attempt("a", 1)).ended
        assert (await runs.claim("a", HOLDER)).former is None

    async def test_a_report_belongs_to_the_attempt_that_it_is_of(
        self, runs: Runs, lose: Callable[[str], Awaitable[None]]
    ) -> None:
        """A run that goes on, or whose process died, is not described by what an earlier attempt left behind."""
        await runs.register("a")
        claim = await runs.claim("a", HOLDER)
        await runs.settle("a", claim.epoch, Standing("waiting", "approval"), {"summary": "asks"})
        await runs.claim("a", HOLDER)
        assert (await runs.get("a")).report is None
        await lose("a")
        assert (await runs.get("a")).report is None

    async def test_an_overtaken_attempt_settles_nothing(
        self, runs: Runs, lose: Callable[[str], Awaitable[None]]
    ) -> None:
        """Its word comes too late."""
        await runs.register("a")
        await runs.claim("a", HOLDER)
        await lose("a")
        await runs.claim("a", HOLDER)
        assert not await runs.settle("a", 1, Standing("failed", "internal"))
        assert str((await runs.get("a")).standing) == "running"
        assert not (await runs.beat("a", 1)).held
        assert (await runs.beat("a", 2)).held

    async def test_a_save_from_outside_raises_the_epoch(self, runs: Runs) -> None:
        """Whoever held the run before stays out."""
        await runs.register("a")
        assert await runs.seize("a") == 1
        assert await runs.seize("unknown") is None

    async def test_a_terminal_status_is_not_overwritten_by_a_claim(self, runs: Runs) -> None:
        """Only what the attempt then saves changes it."""
        await runs.register("a")
        claim = await runs.claim("a", HOLDER)
        await runs.settle("a", claim.epoch, Standing("completed", "done"))
        assert (await runs.claim("a", HOLDER)).standing == Standing("completed", "done")
        assert str((await runs.get("a")).standing) == "completed: done"

    async def test_a_cancel_reaches_a_live_attempt_at_its_next_beat(self, runs: Runs) -> None:
        """The status is the attempt's to write."""
        await runs.register("a")
        claim = await runs.claim("a", HOLDER)
        await runs.request_cancel("a", "eve")
        assert (await runs.beat("a", claim.epoch)).cancel_requested_by == "eve"
        assert str((await runs.get("a")).standing) == "running"

    async def test_a_run_that_nobody_holds_is_cancelled_at_once(self, runs: Runs) -> None:
        """And one that has ended is not cancelled any more."""
        await runs.register("a")
        assert str((await runs.request_cancel("a", "eve")).standing) == "cancelled: by_person"
        with pytest.raises(Refused, match="has ended"):
            await runs.request_cancel("a", "eve")

    async def test_an_old_cancel_does_not_reach_a_later_attempt(self, runs: Runs) -> None:
        """Whoever resumes a cancelled run means it."""
        await runs.register("a")
        await runs.request_cancel("a", "eve")
        claim = await runs.claim("a", HOLDER)
        assert (await runs.beat("a", claim.epoch)).cancel_requested_by is None

    async def test_runs_are_found_by_prefix(self, runs: Runs) -> None:
        """An ambiguous one is refused, `last` is the newest."""
        for name in ("abc", "abd", "x"):
            await runs.register(name)
        assert (await runs.find("x")).run_id == "x"
        assert (await runs.find("last")).run_id == "x"
        assert (await runs.find("abc")).run_id == "abc"
        with pytest.raises(Refused, match="several"):
            await runs.find("ab")
        for unknown in ("nobody", ""):
            with pytest.raises(RunNotFound):
                await runs.find(unknown)
        assert [run.run_id for run in await runs.newest(2)] == ["x", "abd"]
