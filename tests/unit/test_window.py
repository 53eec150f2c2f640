"""A conversation that is too long is made to fit, and stays one that every provider takes."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage

from graph.spending import tokens_of
from graph.window import RECENT_TURNS, TooLong, fitted

PROMPT, GOAL = SystemMessage("prompt"), HumanMessage("the goal", id="goal")
DIGEST = "Tried: nothing that helped."


def turn(number: int, size: int, *, calls: int = 1) -> list[BaseMessage]:
    made = [
        {"name": "look", "args": {"what": f"{number}-{place}"}, "id": f"c{number}-{place}", "type": "tool_call"}
        for place in range(calls)
    ]
    results = [ToolMessage(f"{number}:" + "x" * size, tool_call_id=str(call["id"])) for call in made]
    return [AIMessage("", tool_calls=made, id=f"m{number}"), *results]


def conversation(turns: int, size: int, *, between: Sequence[BaseMessage] = (), calls: int = 1) -> list[BaseMessage]:
    made: list[BaseMessage] = [PROMPT, GOAL]
    for number in range(turns):
        made += turn(number, size, calls=calls)
        made += between if number == 1 else ()
    return made


def tokens(messages: Sequence[BaseMessage]) -> int:
    return sum(map(tokens_of, messages))


def is_valid(messages: Sequence[BaseMessage]) -> bool:
    """The prompt and the goal first, and each call answered right behind its turn, once."""
    open_calls: list[str] = []
    for message in messages[2:]:
        if isinstance(message, ToolMessage):
            assert message.tool_call_id == open_calls.pop(0)
            continue
        assert not open_calls
        if isinstance(message, AIMessage):
            open_calls = [str(call["id"]) for call in message.tool_calls]
    return list(messages[:2]) == [PROMPT, GOAL] and not open_calls


def test_what_fits_is_sent_as_it_is() -> None:
    """Nothing is touched."""
    made = conversation(5, 100)
    assert fitted(made, most_tokens=tokens(made), digest=DIGEST) == made


def test_old_results_are_shortened_first_and_recent_turns_stay_whole() -> None:
    """No turn is left out as long as that is enough."""
    made = conversation(10, 6000)
    found = fitted(made, most_tokens=tokens(made) // 2, digest=DIGEST)
    assert len(found) == len(made)
    assert is_valid(found)
    assert found[-2 * RECENT_TURNS :] == made[-2 * RECENT_TURNS :]
    assert "left out here" in str(found[3].content)
    assert str(found[3].content).startswith("0:x")


@pytest.mark.parametrize("turns", [3, 30, 300])
@pytest.mark.parametrize("calls", [1, 3])
@pytest.mark.parametrize("most", [4000, 9000, 40_000])
def test_then_the_oldest_turns_are_left_out(turns: int, calls: int, most: int) -> None:
    """With what was tried in their place; the last turn is always there, and the whole fits."""
    made = conversation(turns, 2500, calls=calls)
    found = fitted(made, most_tokens=most, digest=DIGEST)
    assert tokens(found) <= most
    assert is_valid(found)
    assert found[-1 - calls].id == f"m{turns - 1}"
    left_out = len(found) < len(made)
    assert left_out == any(DIGEST in str(message.content) for message in found)


def test_a_persons_word_stays_and_devfixs_own_may_go() -> None:
    """Advice holds, however old it is; a nudge does not."""
    advice = HumanMessage("ada: look into rates.py", id="answer-c1")
    nudge = HumanMessage("You asked for nothing.", id="nudge-4")
    found = fitted(conversation(200, 2500, between=[advice, nudge]), most_tokens=6000, digest=DIGEST)
    assert advice in found
    assert nudge not in found


def test_long_arguments_of_old_calls_are_shortened_too() -> None:
    """A file that was written is in the workspace, not in the conversation."""
    made = conversation(8, 10)
    wrote = AIMessage("", tool_calls=[{"name": "write_file", "args": {"path": "a", "content": "y" * 9000}, "id": "w"}])
    made[2:2] = [wrote, ToolMessage("wrote it", tool_call_id="w")]
    found = fitted(made, most_tokens=tokens(made) - 1000, digest=DIGEST)
    assert len(found) == len(made)
    assert isinstance(found[2], AIMessage)
    assert len(found[2].tool_calls[0]["args"]["content"]) < 1000
    assert found[2].tool_calls[0]["args"]["path"] == "a"


def test_the_same_history_gives_the_same_conversation() -> None:
    """So that a record of what was asked tells it."""
    made = conversation(50, 2500)
    assert fitted(made, most_tokens=5000, digest=DIGEST) == fitted(made, most_tokens=5000, digest=DIGEST)


def test_what_must_be_sent_and_does_not_fit_is_told() -> None:
    """A goal as long as the window, say."""
    made = [PROMPT, HumanMessage("z" * 30_000, id="goal"), *turn(1, 100)]
    with pytest.raises(TooLong, match="room for 5000"):
        fitted(made, most_tokens=5000, digest=DIGEST)
