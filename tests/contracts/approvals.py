"""The promise of an approval store."""

from __future__ import annotations

from datetime import timedelta

import pytest

from state.approvals import Approvals, Decision, Question
from state.errors import AlreadyDecided, CallNotFound, Refused

ASK = Question(call_id="c1", tool="post", arguments={"to": "ada\0"}, bound={"patch": "p"})
YES = Decision(type="approve")


class ApprovalsContract:
    """Subclasses give `approvals` as a fixture."""

    async def test_a_question_is_put_once(self, approvals: Approvals) -> None:
        """In order, with its answer where it has one."""
        second = ASK.model_copy(update={"call_id": "c2"})
        rows = await approvals.ask("r", [ASK, second], ttl_seconds=60)
        assert [row.question for row in rows] == [ASK, second]
        await approvals.decide("r", "c2", YES, by="eve")
        rows = await approvals.ask("r", [ASK, second], ttl_seconds=60)
        assert [row.decided_by for row in rows] == [None, "eve"]
        assert len(await approvals.of("r")) == 2

    async def test_the_first_answer_wins(self, approvals: Approvals) -> None:
        """Later ones are told who decided what."""
        await approvals.ask("r", [ASK], ttl_seconds=60)
        await approvals.decide("r", "c1", Decision(type="reject", message="no"), by="eve")
        with pytest.raises(AlreadyDecided, match="eve already decided c1: reject"):
            await approvals.decide("r", "c1", YES, by="bob")

    async def test_an_unknown_call_is_refused(self, approvals: Approvals) -> None:
        """No such pending approval."""
        with pytest.raises(CallNotFound):
            await approvals.decide("r", "nobody", YES, by="eve")

    async def test_a_late_answer_is_refused(self, approvals: Approvals) -> None:
        """An expired question is not answered any more."""
        (row,) = await approvals.ask("r", [ASK], ttl_seconds=-1)
        assert row.expired(row.asked_at)
        with pytest.raises(AlreadyDecided, match="expired"):
            await approvals.decide("r", "c1", YES, by="eve")

    async def test_a_question_without_end_does_not_expire(self, approvals: Approvals) -> None:
        """It can be answered however late."""
        (row,) = await approvals.ask("r", [ASK], ttl_seconds=None)
        assert row.expires_at is None
        assert not row.expired(row.asked_at + timedelta(days=36500))
        await approvals.decide("r", "c1", YES, by="eve")

    async def test_changed_arguments_are_refused(self, approvals: Approvals) -> None:
        """Also where only what DevFix bound has changed."""
        await approvals.ask("r", [ASK], ttl_seconds=60)
        with pytest.raises(Refused, match="other arguments"):
            await approvals.ask("r", [ASK.model_copy(update={"bound": {"patch": "q"}})], ttl_seconds=60)

    async def test_only_allowed_answers_are_taken(self, approvals: Approvals) -> None:
        """And an edit needs its arguments."""
        await approvals.ask("r", [ASK.model_copy(update={"allowed": ("approve", "edit")})], ttl_seconds=60)
        with pytest.raises(Refused, match="it takes approve, edit"):
            await approvals.decide("r", "c1", Decision(type="reject"), by="eve")
        with pytest.raises(Refused, match="needs the edited arguments"):
            await approvals.decide("r", "c1", Decision(type="edit"), by="eve")
