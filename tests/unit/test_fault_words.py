"""The table's answers in the words of llmock and aimock."""

from __future__ import annotations

from scripts.bench.faults.endpoint import Dropped, Hangup, Reply, Trickle, calling, chunk, saying
from scripts.bench.faults.servers import Aimock, Llmock
from scripts.bench.faults.table import LOOK, POST, TABLE, error, used
from scripts.bench.faults.words import for_aimock, for_llmock, heard

LLMOCK, AIMOCK = Llmock(0, None), Aimock(0, {})  # type: ignore[arg-type]


def test_what_a_stream_says() -> None:
    """Its text, calls, finish and usage; nothing of it where it has what only our endpoint sends."""
    turn = heard(used(POST))
    assert turn is not None
    assert (turn.calls, turn.finish, turn.whole) == ((("p", "post", '{"to": "ada"}'),), "tool_calls", True)
    assert turn.usage == {"prompt_tokens": 1000, "completion_tokens": 200, "total_tokens": 1200}
    assert heard(saying(refusal="not that")) is None
    assert heard([": keep-alive\n\n", *POST]) is None


def test_llmock_is_told_where_a_stream_ends() -> None:
    """After the words, and in a call after its name: its arguments come in pieces."""
    cut = for_llmock([chunk(content="I po")])
    half = for_llmock(calling(("a", "post", '{"to": "a'))[:1])
    whole = for_llmock(LOOK[:1])
    assert [each and each[1]["after_chunks"] for each in (cut, half, whole)] == [3, 2, 4]
    dropped = for_llmock(Dropped([chunk(content="I po")]))
    assert dropped is not None
    assert (dropped[1]["kind"], dropped[1]["after_chunks"]) == ("disconnect", 3)


def test_each_server_says_only_what_it_can() -> None:
    """A 429 always has a time with them; llmock cuts arguments, and gives ids itself; aimock closes what it cuts."""
    assert for_llmock(error(503)) == [{"type": "fail", "status": 503, "message": "no"}]
    assert for_aimock(error(429, retry_after="7")) == {
        "response": {"error": {"message": "no"}, "status": 429, "retryAfter": 7}
    }
    unsaid = (error(429), Reply(502, "<html>"), Reply(200, {"hello": []}), ["data: [DONE]\n\n"])
    assert all(for_llmock(each) is None and for_aimock(each) is None for each in unsaid)
    assert for_llmock(calling(("a", "post", "[]"))) is None
    assert for_llmock(Hangup()) is None
    assert for_aimock([chunk(content="I po")]) is None
    assert for_aimock(calling((None, "post", "{}"))) is None
    assert for_aimock(Trickle([chunk(content="x")])) is not None


def test_they_say_most_of_the_table() -> None:
    """What neither says is left to the campaign's endpoint; who does not count as told has no row of tokens."""
    theirs = [row for row in TABLE if row.group != "database"]
    said = [row for row in theirs if LLMOCK.serves(row) or AIMOCK.serves(row)]
    assert len(said) >= 0.8 * len(theirs)
    assert not any(LLMOCK.serves(row) for row in TABLE if "budget_tokens" in row.limits)
    assert not any(server.serves(row) for server in (LLMOCK, AIMOCK) for row in TABLE if row.group == "database")
