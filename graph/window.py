"""A conversation that fits into the model's context window: what is old is shortened first, then left out.

Only what is sent is made smaller. The history stays whole in the checkpoints, and the same history gives the same
conversation each time. The prompt, the goal and a person's words are always sent; in place of turns that are left out
stands what was planned and tried.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage

from graph.models.trouble import ModelTrouble
from graph.progress import WORDS_OF_DEVFIX
from graph.spending import tokens_of

RECENT_TURNS: Final = 4
"""Turns that are sent whole for as long as there is room."""
SHORT_CHARACTERS: Final = 600
"""What is left of a long text in an older turn."""
_LENGTHS: Final = (16_000, 6_000, 2_000, 600, 200)
"""To which the texts that are left are shortened, one after the other, until there is room."""
_NOTE: Final = "[… {left} of {whole} characters left out here; make the call again to see them …]"


_LEFT_OUT: Final = "left-out"
CONDENSATIONS: Final = 2
"""How often a conversation is halved that a server finds too long all the same."""

Answer = TypeVar("Answer")


class TooLong(ModelTrouble):
    """What must be sent does not fit: the prompt, the goal, a person's words and the last turn."""

    def __init__(self, parts: Sequence[_Part], most_tokens: int) -> None:
        largest = max(parts, key=lambda part: part.tokens)
        super().__init__(
            "model_error",
            f"the conversation takes about {_total(parts)} tokens even without its older turns, and there is room for "
            f"{most_tokens} in the model's window; most of it is {_named(largest, parts)}, with {largest.tokens}",
            remedy="another",
        )


async def condensed(
    put: Callable[[list[BaseMessage]], Awaitable[Answer]],
    messages: Sequence[BaseMessage],
    *,
    most_tokens: int,
    digest: str,
) -> Answer:
    """What `put` makes of the conversation, made to fit; where its server says that it does not, of less of it.

    Raises what `put` raises, and TooLong.
    """
    for _ in range(CONDENSATIONS):
        fitting = fitted(messages, most_tokens=most_tokens, digest=digest)
        try:
            return await put(fitting)
        except ModelTrouble as trouble:
            if not trouble.overflow:
                raise
            most_tokens = sum(map(tokens_of, fitting)) // 2
    return await put(fitted(messages, most_tokens=most_tokens, digest=digest))


class _Part(NamedTuple):
    messages: list[BaseMessage]
    """A turn with its results, or one other message."""
    stays: bool
    tokens: int

    @classmethod
    def of(cls, messages: list[BaseMessage], *, stays: bool) -> _Part:
        return cls(messages, stays, sum(map(tokens_of, messages)))


def fitted(messages: Sequence[BaseMessage], *, most_tokens: int, digest: str) -> list[BaseMessage]:
    """The conversation in at most so many tokens, as they are estimated; itself where it fits.

    `digest` stands for what is left out. Raises TooLong.
    """
    parts = list(_parts(messages))
    if _total(parts) <= most_tokens:
        return list(messages)
    turns = [place for place, part in enumerate(parts) if isinstance(part.messages[0], AIMessage)]
    old = set(turns[:-RECENT_TURNS])
    parts = [_shortened(part, SHORT_CHARACTERS) if place in old else part for place, part in enumerate(parts)]
    if _total(parts) > most_tokens:
        last = turns[-1] if turns else len(parts)
        parts = _without_the_oldest(parts, until=last, most_tokens=most_tokens, digest=digest)
    for length in _LENGTHS:
        if _total(parts) > most_tokens:
            parts = [_shortened(part, length) for part in parts]
    if _total(parts) > most_tokens:
        raise TooLong(parts, most_tokens)
    return [message for part in parts for message in part.messages]


def _parts(messages: Sequence[BaseMessage]) -> Iterator[_Part]:
    """A turn's results stand right behind it, as `render` puts them."""
    turn: list[BaseMessage] = []
    goal_seen = False
    for message in messages:
        if isinstance(message, ToolMessage) and turn:
            turn.append(message)
            continue
        if turn:
            yield _Part.of(turn, stays=False)
            turn = []
        if isinstance(message, AIMessage):
            turn = [message]
            continue
        is_goal = isinstance(message, HumanMessage) and not goal_seen
        goal_seen = goal_seen or is_goal
        yield _Part.of([message], stays=isinstance(message, SystemMessage) or is_goal or not _is_devfix(message))
    if turn:
        yield _Part.of(turn, stays=False)


def _is_devfix(message: BaseMessage) -> bool:
    """A word of DevFix's own, which a later one makes old."""
    return str(message.id or "").startswith(WORDS_OF_DEVFIX)


def _total(parts: Sequence[_Part]) -> int:
    return sum(part.tokens for part in parts)


def _named(part: _Part, parts: Sequence[_Part]) -> str:
    """What a part is, for people."""
    match part.messages[0]:
        case SystemMessage():
            return "the job's prompt"
        case AIMessage():
            return "the last turn with its results"
        case message if part is next((each for each in parts if isinstance(each.messages[0], HumanMessage)), None):
            return "the goal"
        case message if message.id == _LEFT_OUT:
            return "what was tried so far"
        case message:
            return f"a person's word ({message.id})"


def _without_the_oldest(parts: Sequence[_Part], *, until: int, most_tokens: int, digest: str) -> list[_Part]:
    """Leave out from the oldest on, up to the last turn, until the rest fits with the digest in its place."""
    summary = _Part.of([HumanMessage(f"Earlier turns are left out here. {digest}", id=_LEFT_OUT)], stays=True)
    total = _total(parts) + summary.tokens
    gone: set[int] = set()
    for place, part in enumerate(parts[:until]):
        if total <= most_tokens:
            break
        if not part.stays:
            gone.add(place)
            total -= part.tokens
    if not gone:
        return list(parts)
    first = min(gone)
    kept = [part for place, part in enumerate(parts) if place not in gone]
    return [*kept[:first], summary, *kept[first:]]


def _shortened(part: _Part, length: int) -> _Part:
    return _Part.of([_short(message, partial(_cut, length)) for message in part.messages], stays=part.stays)


def _short(message: BaseMessage, cut: Callable[[str], str]) -> BaseMessage:
    if isinstance(message, ToolMessage):
        return message.model_copy(update={"content": _within(message.content, cut)})
    if isinstance(message, AIMessage):
        calls = [{**call, "args": _within(call["args"], cut)} for call in message.tool_calls]
        return message.model_copy(update={"content": _within(message.content, cut), "tool_calls": calls})
    return message


def _within(value: Any, change: Callable[[str], str]) -> Any:
    """The value with each text in it changed, names too."""
    match value:
        case str():
            return change(value)
        case dict():
            return {change(name): _within(each, change) for name, each in value.items()}
        case list():
            return [_within(each, change) for each in value]
    return value


def _cut(length: int, text: str) -> str:
    """Its beginning and its end, where it is more than twice as long."""
    if len(text) <= 2 * length:
        return text
    half = length // 2
    note = _NOTE.format(left=len(text) - 2 * half, whole=len(text))
    return f"{text[:half]}\n{note}\n{text[-half:]}"
