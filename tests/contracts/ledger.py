"""The promise of a ledger. In the fixture epoch 1 holds run `r`, and run `branch`, which branched from it."""

from __future__ import annotations

import asyncio

import pytest

from state.errors import EffectRefused, Fenced
from state.ledger import Intent, Ledger


def intent(call: str = "c1", digest: str = "d", *, run: str = "r", again: bool = False) -> Intent:
    return Intent(run, call, "post", digest, {"to": "ada"}, f"key-{run}-{call}", again)


class LedgerContract:
    """Subclasses give `ledger` as a fixture."""

    async def test_the_first_claim_is_fresh_and_later_ones_are_not(self, ledger: Ledger) -> None:
        """Whoever finds the row knows that somebody began."""
        assert await ledger.claim(intent(), epoch=1) is None
        known = await ledger.claim(intent(), epoch=1)
        assert known is not None
        assert known.state == "claimed"

    async def test_of_many_claims_at_once_one_is_fresh(self, ledger: Ledger) -> None:
        """The database decides."""
        claims = await asyncio.gather(*(ledger.claim(intent(), epoch=1) for _ in range(5)), return_exceptions=True)
        assert claims.count(None) == 1

    async def test_a_receipt_is_given_back(self, ledger: Ledger) -> None:
        """Exactly, and once it is there it stays."""
        await ledger.claim(intent(), epoch=1)
        await ledger.settle("r", "c1", {"at": "sink", "text": "a\0b"}, epoch=1)
        await ledger.settle("r", "c1", {"at": "elsewhere"}, epoch=1)
        known = await ledger.claim(intent(), epoch=1)
        assert known is not None
        assert known.receipt == {"at": "sink", "text": "a\0b"}

    async def test_an_equal_effect_under_a_new_id_gets_the_first_receipt(self, ledger: Ledger) -> None:
        """Unless a person says: again."""
        await ledger.claim(intent(), epoch=1)
        await ledger.settle("r", "c1", {"n": 1}, epoch=1)
        known = await ledger.claim(intent("c2"), epoch=1)
        assert known is not None
        assert known.receipt == {"n": 1}
        assert await ledger.claim(intent("c3", again=True), epoch=1) is None

    async def test_a_branch_gets_the_receipts_of_the_run_that_it_branched_from(self, ledger: Ledger) -> None:
        """Not the other way round; and what is settled speaks before what is not."""
        await ledger.claim(intent("c0"), epoch=1)
        await ledger.missed("r", "c0", epoch=1)
        await ledger.claim(intent("c1", again=True), epoch=1)
        await ledger.settle("r", "c1", {"n": 1}, epoch=1)
        for known in (
            await ledger.alike(intent("c0", run="branch")),
            await ledger.claim(intent("c0", run="branch"), epoch=1),
        ):
            assert known is not None
            assert (known.run_id, known.call_id, known.receipt) == ("r", "c1", {"n": 1})
        assert await ledger.alike(intent("c5", "other", run="branch")) is None
        assert await ledger.claim(intent("c9", "e", run="branch"), epoch=1) is None
        assert await ledger.claim(intent("c9", "e"), epoch=1) is None

    async def test_who_performs_it_is_in_the_row(self, ledger: Ledger) -> None:
        """Also of what another attempt began, and of what failed and is tried again; a receipt is not taken back."""
        await ledger.claim(intent(), epoch=1)
        assert (await ledger.missed("r", "c1", epoch=1)).state == "absent"
        again = await ledger.retake("r", "c1", epoch=1)
        assert (again.state, again.epoch, again.settled_at) == ("claimed", 1, None)
        await ledger.settle("r", "c1", {}, epoch=1)
        assert (await ledger.retake("r", "c1", epoch=1)).state == "settled"
        assert (await ledger.missed("r", "c1", epoch=1)).state == "settled"
        with pytest.raises(Fenced):
            await ledger.retake("r", "c1", epoch=7)

    async def test_a_known_call_with_other_arguments_is_refused(self, ledger: Ledger) -> None:
        """The digest is the effect's identity."""
        await ledger.claim(intent(), epoch=1)
        with pytest.raises(EffectRefused, match="other arguments"):
            await ledger.claim(intent(digest="other"), epoch=1)

    async def test_whoever_does_not_hold_the_run_is_fenced(self, ledger: Ledger) -> None:
        """At the claim and at the receipt."""
        await ledger.claim(intent(), epoch=1)
        with pytest.raises(Fenced):
            await ledger.claim(intent("c2", "e"), epoch=7)
        with pytest.raises(Fenced):
            await ledger.settle("r", "c1", {}, epoch=7)

    async def test_doubt_stays_until_somebody_knows(self, ledger: Ledger) -> None:
        """An intent that certainly came to nothing is taken back."""
        await ledger.claim(intent(), epoch=1)
        assert (await ledger.doubt("r", "c1", epoch=1)).state == "unknown"
        known = await ledger.claim(intent(), epoch=1)
        assert known is not None
        assert known.state == "unknown"
        await ledger.claim(intent("c2", "e"), epoch=1)
        await ledger.release("r", "c2", epoch=1)
        assert [effect.call_id for effect in await ledger.of("r")] == ["c1"]
