"""The table's answers in the words of servers that others wrote; None where a server has none for it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import ceil
from typing import Any, Final, NamedTuple

from scripts.bench.faults.endpoint import Answer, Chunks, Dropped, Hangup, Reply, Trickle

Words = dict[str, Any]
_DONE: Final = "data: [DONE]\n\n"
_NO_JSON: Final = 'data: {"id": \n\n'
_SILENCE_SECONDS: Final = 30.0
"""A pause between chunks from which on a stream counts as silent, and no longer as slow."""
_ENDLESS: Final = 100_000
"""Characters of an answer that nobody hears to its end."""
_FRAGMENT: Final = 12
"""Characters of arguments in one of llmock's chunks."""
_COMMON: Final = {"role", "content", "tool_calls"}
_COUNTED: Final = {"prompt_tokens", "completion_tokens", "total_tokens"}


class Turn(NamedTuple):
    """What a stream says, as far as other servers can say it."""

    text: str = ""
    calls: tuple[tuple[str | None, str, str], ...] = ()
    """Id, name, and arguments as they are on the wire."""
    finish: str | None = None
    usage: Mapping[str, Any] | None = None
    whole: bool = False
    """It ends as a stream must."""


def heard(chunks: Chunks) -> Turn | None:
    """None where it has what no server but ours says: a refusal, an error, a comment."""
    turn = Turn()
    for each in chunks:
        if each == _DONE:
            turn = turn._replace(whole=True)
            continue
        if isinstance(each, str):
            return None
        turn = turn._replace(usage=each.get("usage") or turn.usage)
        for choice in each["choices"]:
            delta = choice["delta"]
            if not set(delta) <= _COMMON:
                return None
            calls = [
                (call["id"], call["function"]["name"], call["function"]["arguments"])
                for call in delta.get("tool_calls", ())
            ]
            turn = turn._replace(
                text=turn.text + delta.get("content", ""),
                calls=(*turn.calls, *calls),
                finish=choice["finish_reason"] or turn.finish,
            )
    return turn


# -- llmock -----------------------------------------------------------------------------------------------------------


def for_llmock(answer: Answer) -> list[Words] | None:
    """Behaviours of one request. It gives calls ids of its own, and counts tokens itself."""
    match answer:
        case Reply():
            return _llmock_error(answer)
        case Trickle(chunks, pause) if pause >= _SILENCE_SECONDS:
            return _llmock_fault("stall", chunks, stall_seconds=pause)
        case Dropped(chunks):
            return _llmock_fault("disconnect", chunks)
        case [str() as raw] if raw == _NO_JSON:
            return [
                {"type": "reply", "text": "hello"},
                {"type": "stream_fault", "kind": "malformed", "after_chunks": 0},
            ]
        case list():
            turn = heard(answer)
            if turn is not None and not turn.whole and turn.finish is None:
                return _llmock_fault("truncate", answer)
            return _llmock_turn(turn) if turn is not None and turn.whole and turn.finish else None
        case _:
            return None


def _llmock_error(reply: Reply) -> list[Words] | None:
    """To what passes it gives a time to wait, of its own where it is told none."""
    told = reply.body.get("error") if isinstance(reply.body, dict) else None
    wait = reply.headers.get("retry-after", "")
    said = reply.status == 429 and not wait.isdecimal()
    if reply.status < 400 or told is None or said or (wait and not wait.isdecimal()):
        return None
    given = {"retry_after": float(wait)} if wait else {}
    return [{"type": "fail", "status": reply.status, **told, **given}]


def _llmock_fault(kind: str, chunks: Chunks, **more: float) -> list[Words] | None:
    """It streams a role, then words, or a call's name and then its arguments in pieces."""
    turn = heard(chunks)
    if turn is None:
        return None
    whole = Turn(turn.text, tuple((identifier, name, _mended(args)) for identifier, name, args in turn.calls))
    pieces = len(turn.text.split()) + sum(1 + _fragments(args) for _, _, args in turn.calls)
    words = _llmock_turn(whole)
    return words and [*words, {"type": "stream_fault", "kind": kind, "after_chunks": 1 + pieces, **more}]


def _llmock_turn(turn: Turn) -> list[Words] | None:
    arguments = [_parsed(_mended(args)) for _, _, args in turn.calls]
    cut = [place for place, (_, _, args) in enumerate(turn.calls) if not isinstance(_parsed(args), dict)]
    if cut not in ([], [0]) or not all(isinstance(each, dict) for each in arguments):
        return None
    calls = [{"name": name, "arguments": args} for (_, name, _), args in zip(turn.calls, arguments, strict=True)]
    reply = {"type": "reply", "text": turn.text, "tool_calls": calls, "finish_reason": turn.finish}
    return [reply, *([{"type": "tool_fault", "kind": "malformed_arguments"}] if cut else [])]


def _fragments(args: str) -> int:
    """What of these arguments is streamed before the fault: all, or what is whole of those that are cut."""
    return ceil(len(args) / _FRAGMENT) if isinstance(_parsed(args), dict) else len(args) // _FRAGMENT


def _mended(args: str) -> str:
    """Arguments that are cut, whole again: llmock cuts them itself."""
    if not args.startswith("{") or args.count("{") <= args.count("}"):
        return args
    ends = ('"}', "}", '""}', "null}")
    return next((args + end for end in ends if isinstance(_parsed(args + end), dict)), '{"what": "sea"}')


# -- aimock -----------------------------------------------------------------------------------------------------------


def for_aimock(answer: Answer) -> Words | None:
    """A fixture, but for what it matches."""
    match answer:
        case Reply(status, str() as body) if status == 200 and body:
            return {"response": {"content": "hello"}, "chaos": {"malformedRate": 1}}
        case Reply():
            return _aimock_error(answer)
        case Hangup():
            return {"response": {"content": "hello"}, "chaos": {"disconnectRate": 1}}
        case Trickle(chunks, pause):
            return _aimock_slow(chunks, pause * 1000)
        case Dropped(chunks):
            return _aimock_dropped(chunks)
        case list():
            turn = heard(answer)
            return _aimock_turn(turn) if turn is not None and turn.whole and turn.finish else None
        case _:
            return None


def _aimock_error(reply: Reply) -> Words | None:
    told = reply.body.get("error") if isinstance(reply.body, dict) else None
    wait = reply.headers.get("retry-after", "")
    unsaid = reply.status == 429 and not wait.isdecimal()
    if reply.status < 400 or told is None or unsaid or (wait and reply.status != 429):
        return None
    given = {"retryAfter": int(wait)} if wait else {}
    return {"response": {"error": told, "status": reply.status, **given}}


def _aimock_slow(chunks: Chunks, pause_ms: float) -> Words | None:
    turn = heard(chunks)
    if turn is None:
        return None
    if pause_ms < _SILENCE_SECONDS * 1000:
        return {"response": {"content": turn.text * _ENDLESS}, "chunkSize": len(turn.text), "latency": pause_ms}
    timings = {"ttftMs": 0, "interChunkDelaysMs": [0, pause_ms], "totalDurationMs": pause_ms}
    return {"response": {"content": turn.text * 4}, "chunkSize": 1, "recordedTimings": timings}


def _aimock_dropped(chunks: Chunks) -> Words | None:
    """It streams a role, then the text, or a call's name and its arguments, by the character; what it has not sent yet
    when it closes the connection is lost, so it takes its time."""
    turn = heard(chunks)
    words = turn and _aimock_turn(turn)
    return words and {**words, "chunkSize": 1, "latency": 20, "truncateAfterChunks": 3}


def _aimock_turn(turn: Turn) -> Words | None:
    """It gives an id to a call that has none, and counts tokens where nobody else did."""
    if not all(identifier for identifier, _, _ in turn.calls) or set(turn.usage or ()) > _COUNTED:
        return None
    calls = [{"id": identifier, "name": name, "arguments": args} for identifier, name, args in turn.calls]
    said = {"toolCalls": calls} if calls or turn.finish == "tool_calls" else {"content": turn.text}
    finish = {"finishReason": turn.finish} if turn.finish else {}
    return {"response": {**said, **finish, **({"usage": dict(turn.usage)} if turn.usage else {})}}


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return None
