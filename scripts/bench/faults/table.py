"""The faults, one row each: what goes wrong, how the run then ends, and what must not happen on the way."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any, Final, Literal

from scripts.bench.faults.endpoint import Answer, Blow, Chunks, Dropped, Hangup, Reply, Trickle, calling, chunk, saying

Group = Literal["model", "tool", "database", "budget", "judgement"]

DONE: Final = "completed: done"
ASKED: Final = "waiting: approval"
ESCALATED: Final = "waiting: escalation"
UNREADABLE: Final = "failed: unparsable_output"
REFUSED: Final = "failed: refused"
UNAVAILABLE: Final = "failed: model_unavailable"
BUDGET: Final = "failed: budget"
STEP_LIMIT: Final = "failed: step_limit"
DEADLINE: Final = "failed: deadline"

TRIES: Final = 5
"""How often a model that fails is asked in a turn, by the failure table."""
IN_VAIN: Final = 9
"""How many turns may fail in a row, in whatever ways, before a person is asked."""
TURN_TOKENS: Final = 1200
TURN_USD: Final = (1000 * 2.5 + 200 * 10) / 1e6
"""What each turn before the fault uses of gpt-4o."""
TURN_STEPS: Final = 3
DEEPEST: Final = 4
"""Honest turns before the fault, at most."""
MANY: Final = 40
DAY: Final = "86400"


@dataclass(frozen=True, kw_only=True)
class Row:
    """One fault. Before it, the run takes as many honest turns as the seed says."""

    name: str
    group: Group
    says: Sequence[Answer]
    """What the model says from the fault on; the last of it, or else `again` in a circle, for ever."""
    again: Sequence[Answer] = ()
    ends: str
    """How the run stands in the end. Where it waits for an approval on the way, a person approves."""
    asks: int | None = None
    """How often the model is asked, from the fault on, at most."""
    least: int = 0
    """And at least."""
    second: Sequence[Answer] = ()
    """What the model says that the run falls back to; without it there is none."""
    second_asks: int | None = None
    never: Sequence[str] = ()
    """Tools that must not run, from the fault on."""
    told: str = ""
    """What the model reads of it, sooner or later."""
    waits: float = 0.0
    """Seconds that pass at least before the model is asked again."""
    put_down: bool = False
    """Whether the fault may make a process put the run down, for the next one to go on with."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    limits: Mapping[str, float] = field(default_factory=dict)
    limits_a_turn: Mapping[str, float] = field(default_factory=dict)
    """What is added to them for each turn before the fault."""

    def script(self, before: Sequence[Answer]) -> list[Answer]:
        """All that the model says."""
        return [*before, *self.says, *(list(self.again) * MANY)]

    def given(self, place: int) -> dict[str, float]:
        """The run's limits, with the fault at this place."""
        both = {**self.limits_a_turn, **self.limits}
        given = {name: self.limits.get(name, 0) + place * self.limits_a_turn.get(name, 0) for name in both}
        return {name: int(value) if name in {"budget_tokens", "step_limit"} else value for name, value in given.items()}


# -- what models say --------------------------------------------------------------------------------------------------


def does(name: str, identifier: str | None = "a", finish: str = "tool_calls", **args: Any) -> Chunks:
    """A turn with one call."""
    return calling((identifier, name, json.dumps(args)), finish=finish)


def used(answer: Chunks, prompt: int = 1000, completion: int = 200, **details: Any) -> Chunks:
    """The same turn, with what its server says that it used."""
    usage = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion, **details}
    counted = {**chunk(), "choices": [], "usage": usage}
    return [*answer[:-1], counted, answer[-1]]


def said(*pieces: str) -> Chunks:
    """Raw lines of a stream."""
    return [*pieces]


def each(name: str, number: int = MANY, **args: Any) -> list[Chunks]:
    """The same call with another `turn` each time: a fault again and again that is no circle."""
    return [does(name, f"t{turn}", turn=turn, **args) for turn in range(number)]


def error(status: int, message: str = "no", code: str | None = None, **headers: str) -> Reply:
    told = {"error": {"message": message, **({"code": code} if code else {})}}
    return Reply(status, told, {name.replace("_", "-"): value for name, value in headers.items()})


def before(place: int) -> list[Chunks]:
    """Honest turns, each another one."""
    return [used(does("look", f"b{turn}", what=f"thing {turn}")) for turn in range(place)]


POST: Final = does("post", "p", to="ada")
LOOK: Final = does("look", "l", what="sea")
NOTE: Final = {"path": "a", "text": "x"}
_TEXT_CALL: Final = '{"name": "post", "arguments": {"to": "ada"}}'
_TOO_LONG: Final = error(400, "maximum context length exceeded", "context_length_exceeded")
_LARGE: Final = does("moody", mood="says too much")
_FILTERED: Final = error(400, "filtered", "content_filter")
_CUT_OFF: Final = "your answer was cut off before its end"
_NONE_MADE: Final = "none of your calls was made"
_OUR_IDS: Final = [(f"model-{step}-20", "look", json.dumps({"what": f"isle {step}"})) for step in range(1, 21)]
"""Of whatever step, the one that DevFix gives to a call without an id which stands behind twenty others."""
_HALF: Final = calling(("a", "post", '{"to": "a'))[:1]


def _date(seconds: float) -> str:
    return format_datetime(datetime.now(UTC) + timedelta(seconds=seconds), usegmt=True)


# -- the model does not answer ----------------------------------------------------------------------------------------


def _model(name: str, *says: Answer, ends: str = DONE, **more: Any) -> Row:
    return Row(name=name, group="model", says=says, ends=ends, **more)


_NO_PATIENCE: Final = {"model_retry_seconds": 0.0}
_SERVER_ERRORS: Final = (408, 409, 500, 502, 503, 504, 529)

_HTTP: Final = [
    *[_model(f"HTTP {status} once", error(status), POST, asks=2) for status in _SERVER_ERRORS],
    *[
        _model(f"HTTP {status} for ever", error(status), ends=UNAVAILABLE, asks=TRIES)
        for status in (500, 502, 503, 504)
    ],
    _model("HTTP 500 for ever, a fallback answers", error(500), second=[POST], asks=TRIES, second_asks=1),
    _model(
        "HTTP 503 for ever, of the fallback too",
        error(503),
        second=[error(503)],
        ends=UNAVAILABLE,
        asks=TRIES,
        second_asks=TRIES,
    ),
    *[
        _model(
            f"HTTP {status}: the key is refused", error(status), second=[POST], ends=UNAVAILABLE, asks=1, second_asks=0
        )
        for status in (401, 403)
    ],
    _model("HTTP 401 of the fallback", error(404), second=[error(401)], ends=UNAVAILABLE, asks=1, second_asks=1),
    _model("HTTP 404: no such model", error(404, code="model_not_found"), ends=UNAVAILABLE, asks=1),
    _model("HTTP 404, a fallback answers", error(404), second=[POST], asks=1, second_asks=1),
    _model("HTTP 400: not understood", error(400), ends=UNAVAILABLE, asks=1),
    _model("HTTP 422, a fallback answers", error(422), second=[POST], asks=1, second_asks=1),
    _model("too long for the window once", _LARGE, _TOO_LONG, POST, asks=3),
    _model("too long for the window, whatever is left out", _LARGE, _TOO_LONG, ends=UNAVAILABLE, asks=4),
    _model("too long for the window, and nothing to leave out", _TOO_LONG, ends=UNAVAILABLE, asks=3),
    _model("429 once, retry after 1 s", error(429, retry_after="1"), POST, asks=2, waits=1.0),
    _model("429 once, retry at a date", error(429, retry_after=_date(1), date=_date(0)), POST, asks=2, waits=0.9),
    _model("429 once, retry after milliseconds", error(429, retry_after_ms="600"), POST, asks=2, waits=0.6),
    _model("429 once without a word", error(429), POST, asks=2),
    _model("429 once, nonsense instead of seconds", error(429, retry_after="soon"), POST, asks=2),
    _model("429 for ever", error(429, retry_after_ms="5"), ends=UNAVAILABLE, asks=TRIES),
    _model("429 asks for a day", error(429, retry_after=DAY), ends=UNAVAILABLE, asks=1),
    _model("429 asks for a day, a fallback answers", error(429, retry_after=DAY), second=[POST], asks=1, second_asks=1),
    _model("429: the account is empty", error(429, code="insufficient_quota"), ends=UNAVAILABLE, asks=1),
    _model("HTTP 400: the content is filtered, once", _FILTERED, POST, asks=2),
    _model("HTTP 400: the content is filtered, for ever", _FILTERED, ends=REFUSED, asks=2),
    _model("the connection is closed once", Hangup(), POST, asks=2),
    _model("the connection is closed for ever", Hangup(), ends=UNAVAILABLE, asks=TRIES),
    _model("a page of HTML once", Reply(200, "<html>hello</html>"), POST, asks=2),
    _model("a page of HTML for ever", Reply(200, "<html>hello</html>"), ends=UNAVAILABLE, asks=TRIES),
    _model("an empty body once", Reply(200, ""), POST, asks=2),
    _model("JSON that is no answer once", Reply(200, {"hello": []}), POST, asks=2),
    _model("HTTP 502 as a page of HTML", Reply(502, "<html>bad gateway</html>"), POST, asks=2),
]

_STREAMS: Final = [
    _model("a stream that is cut in the text, once", [chunk(content="I po")], POST, asks=2, told=_CUT_OFF),
    _model("a stream that is cut in the text, for ever", [chunk(content="I po")], ends=UNREADABLE, asks=3),
    _model("a stream that is cut in a call, once", _HALF, POST, asks=2, told=_CUT_OFF),
    _model("a stream that is cut in a call, for ever", _HALF, ends=UNREADABLE, asks=3, never=["post"]),
    _model("a whole call in a stream that is cut", LOOK[:1], ends=UNREADABLE, asks=3, never=["look"]),
    _model("a stream that breaks off in the text, once", Dropped([chunk(content="I po")]), POST, asks=2),
    _model(
        "a stream that breaks off in the text, for ever", Dropped([chunk(content="I po")]), ends=UNAVAILABLE, asks=TRIES
    ),
    _model("a stream that breaks off in a call, once", Dropped(_HALF), POST, asks=2),
    _model(
        "a stream that breaks off in a call, for ever", Dropped(_HALF), ends=UNAVAILABLE, asks=TRIES, never=["post"]
    ),
    _model("a stream with an error in it, once", said('data: {"error": {"message": "overloaded"}}\n\n'), POST, asks=2),
    _model(
        "a stream with an error in it, for ever",
        said('data: {"error": {"message": "overloaded"}}\n\n'),
        ends=UNAVAILABLE,
        asks=TRIES,
    ),
    _model("a stream of broken JSON, once", said('data: {"id": \n\n'), POST, asks=2),
    _model("a stream of broken JSON, for ever", said('data: {"id": \n\n'), ends=UNAVAILABLE, asks=TRIES),
    _model("a stream that ends before it begins, once", said("data: [DONE]\n\n"), POST, asks=2),
    _model("a stream that ends before it begins, for ever", said("data: [DONE]\n\n"), ends=UNAVAILABLE, asks=TRIES),
    _model("a stream of comments, then an answer", [": keep-alive\n\n", *POST], asks=1),
    _model(
        "a stream that trickles for ever",
        Trickle([chunk(content="x")]),
        second=[POST],
        asks=1,
        second_asks=1,
        settings={**_NO_PATIENCE, "model_call_seconds": 2.0},
    ),
    _model(
        "a stream that falls silent",
        Trickle([chunk(content="x")], pause=60.0),
        ends=UNAVAILABLE,
        asks=1,
        settings={**_NO_PATIENCE, "model_silence_seconds": 1.0},
    ),
]


# -- the answer can't be used -----------------------------------------------------------------------------------------

_BROKEN: Final = {
    "cut": '{"to": "ad',
    "a text": '"ada"',
    "a list": "[]",
    "a number": "7",
    "null": "null",
    "no JSON": "{to: ada}",
    "two objects": '{"to": "ada"}{"to": "bob"}',
}

_ANSWERS: Final = [
    *[
        _model(
            f"arguments that are {what}, once",
            calling(("a", "post", args), ("b", "note", json.dumps(NOTE))),
            POST,
            asks=2,
            never=["note"],
            told=_NONE_MADE,
        )
        for what, args in _BROKEN.items()
    ],
    _model("broken arguments for ever", calling(("a", "note", '{"path": ')), ends=UNREADABLE, asks=2, never=["note"]),
    _model("calls without ids", calling((None, "look", '{"what": "a"}'), ("", "look", '{"what": "b"}')), POST, asks=2),
    _model(
        "calls with the same id", calling(("x", "look", '{"what": "a"}'), ("x", "look", '{"what": "b"}')), POST, asks=2
    ),
    _model("an id of an earlier turn", does("look", "z", what="a"), does("look", "z", what="b"), POST, asks=3),
    _model("an id that is far too long", does("look", "z" * 500, what="a"), POST, asks=2),
    _model("ids that DevFix gives itself", calling(*_OUR_IDS, (None, "look", '{"what": "a"}')), POST, asks=2),
    _model("an unknown tool once", does("teleport", to="ada"), POST, asks=2, told="There is no tool teleport"),
    _model("an unknown tool for ever", *each("teleport"), ends=ESCALATED, asks=4),
    _model("a tool's name that no provider takes back", does("post the letter!"), POST, asks=2, told=_NONE_MADE),
    _model("an empty answer once", saying(content=""), POST, asks=2, told="your answer was empty"),
    _model("an empty answer for ever", saying(content=""), ends=UNREADABLE, asks=2),
    _model("only spaces for ever", saying(content=" \n"), ends=UNREADABLE, asks=2),
    _model("calls are announced, and none is there", calling(), ends=UNREADABLE, asks=2),
    _model(
        "empty and broken answers take turns",
        again=[saying(content=""), calling(("a", "note", "{"))],
        ends=UNREADABLE,
        asks=2,
        never=["note"],
    ),
    *[
        _model(
            f"an answer that is cut ({finish}), once", does("note", finish=finish, **NOTE), POST, asks=2, never=["note"]
        )
        for finish in ("length", "max_tokens", "error", "abort")
    ],
    _model(
        "an answer that is cut for ever", does("note", finish="length", **NOTE), ends=UNREADABLE, asks=3, never=["note"]
    ),
    _model(
        "an answer just as long as it may be",
        used(does("note", **NOTE), completion=300),
        used(POST, completion=9),
        asks=2,
        never=["note"],
        settings={"model_max_tokens": 300},
    ),
    _model("a refusal once", saying(refusal="not that"), POST, asks=2, told="the model refused: not that"),
    _model("a refusal for ever", saying(refusal="not that"), ends=REFUSED, asks=2),
    _model("a filtered answer for ever", saying(content="I can", finish="content_filter"), ends=REFUSED, asks=2),
    _model(
        "a filtered answer with a call",
        does("note", finish="content_filter", **NOTE),
        ends=REFUSED,
        asks=2,
        never=["note"],
    ),
    _model("an unsafe answer for ever", saying(content="", finish="SAFETY"), ends=REFUSED, asks=2),
    _model("a call in the text, in tags", saying(content=f"<tool_call>{_TEXT_CALL}</tool_call>"), asks=1),
    _model("a call in the text, in a fence", saying(content=f"```json\n{_TEXT_CALL}\n```"), asks=1),
    _model(
        "a broken call in the text",
        saying(content='<tool_call>{"name": "post", "arguments": {"to"'),
        POST,
        asks=2,
        told=_NONE_MADE,
    ),
    _model(
        "a call in a text that is cut",
        saying(content=f"<tool_call>{_TEXT_CALL}</tool_call>", finish="length"),
        ends=UNREADABLE,
        asks=3,
        never=["post"],
    ),
    _model("a call that is said to be none", does("post", finish="stop", to="ada"), asks=1),
    _model(
        "arguments with a NUL and half a character", calling(("a", "look", '{"what": "\\u0000\\ud800"}')), POST, asks=2
    ),
    _model(
        "usage that can't be",
        used(LOOK, prompt=-5, completion=10**15),
        POST,
        asks=2,
        limits={"budget_tokens": 10**6},
    ),
]


# -- tools ------------------------------------------------------------------------------------------------------------


def _tool(name: str, *says: Answer, ends: str = DONE, **more: Any) -> Row:
    return Row(name=name, group="tool", says=says, ends=ends, **more)


_ONCE: Final = {
    "raises": "raises",
    "tells an error": "tells an error",
    "hangs": "hangs",
    "refuses the connection": "is not reached",
    "exits": "ends the process, or wants to",
    "recurses for ever": "recurses for ever",
    "says too much": "says 1 MB",
    "says what no text holds": "says what no text holds",
    "returns nothing": "returns nothing",
    "returns what is no number": "returns what is no number",
}
_HEARD: Final = {
    "raises": "ValueError: nobody can look at that",
    "tells an error": "it is broken",
    "hangs": "did not finish within",
    "refuses the connection": "nobody listens",
    "exits": "SystemExit: 3",
    "recurses for ever": "RecursionError",
    "says too much": "bytes in all; artifact",
    "returns nothing": "gave a NoneType",
}
_NOT_TAKEN: Final[Mapping[str, Mapping[str, Any]]] = {
    "none": {},
    "unknown": {"what": "a", "colour": 1},
    "of another type": {"what": []},
}
_REFUSED: Final = {"none": "Field required", "unknown": "takes no argument colour", "of another type": "valid string"}
_UNHAPPY: Final = ("raises", "tells an error", "hangs", "refuses the connection", "exits")

_TOOLS: Final = [
    *[
        _tool(f"a tool {what}, once", does("moody", mood=mood), POST, asks=2, told=_HEARD.get(mood, ""))
        for mood, what in _ONCE.items()
    ],
    *[
        _tool(f"a tool {_ONCE[mood]}, each time", *each("moody", mood=mood), ends=ESCALATED, asks=6)
        for mood in _UNHAPPY
    ],
    _tool(
        "a connection that is refused once is made again",
        does("moody", mood="refuses it once"),
        POST,
        asks=2,
        told="somebody listens",
        settings={"tool_retries": 1},
    ),
    _tool(
        "one of three calls fails",
        calling(*[(f"c{n}", "moody", json.dumps({"mood": mood})) for n, mood in enumerate(("sees", "raises", "sees"))]),
        POST,
        asks=2,
    ),
    *[
        _tool(
            f"arguments that a tool does not take: {what}, once",
            does("look", **args),
            POST,
            asks=2,
            told=_REFUSED[what],
        )
        for what, args in _NOT_TAKEN.items()
    ],
    _tool("arguments that a tool does not take, each time", *each("look", what="a"), ends=ESCALATED, asks=6),
    _tool(
        "failures of two kinds take turns",
        *[does("moody", mood=mood, turn=turn) for turn in range(8) for mood in ("raises", "refuses the connection")],
        ends=STEP_LIMIT,
        asks=4,
        limits={"step_limit": 13},
        limits_a_turn={"step_limit": TURN_STEPS},
    ),
    _tool(
        "a path that leads out of the workspace",
        does("note", path="../../a", text="x"),
        POST,
        asks=2,
        told="paths stay inside",
    ),
    _tool("an effect that fails before it happens", does("post", "q", to="bob", mood="fails before"), POST, asks=2),
    _tool("an effect that happens, and then fails", does("post", to="ada", mood="fails after"), asks=1),
    _tool("an effect that happens, and then hangs", does("post", to="ada", mood="hangs after"), asks=1),
    _tool(
        "an effect whose outcome nobody knows", does("shout", to="ada"), POST, ends=ESCALATED, asks=1, never=["post"]
    ),
    _tool("an effect that is refused", does("post", to="ada", mood="refuses"), POST, ends=ESCALATED, asks=1),
    _tool(
        "failures of two kinds take turns, for ever",
        *[does("moody", mood=mood, turn=turn) for turn in range(MANY) for mood in ("raises", "refuses the connection")],
        ends=ESCALATED,
        asks=IN_VAIN,
    ),
    _tool(
        "failed calls and broken answers take turns, for ever",
        *[each for n in range(MANY) for each in (does("moody", mood="raises", turn=n), saying(content=""))],
        ends=ESCALATED,
        asks=IN_VAIN,
    ),
    _tool(
        "failures of two kinds take turns, with a look in between",
        *[
            each
            for n in range(6)
            for each in (
                does("moody", mood="raises", turn=n),
                does("moody", mood="refuses the connection", turn=n),
                does("look", what=f"{n}"),
            )
        ],
        POST,
        asks=19,
    ),
    _tool(
        "DevFix's own disk is full while a tool runs",
        does("moody", mood="finds no room, once"),
        POST,
        asks=2,
        put_down=True,
        told="there is room",
    ),
]


# -- the database -----------------------------------------------------------------------------------------------------


def _database(name: str, *says: Answer, **more: Any) -> Row:
    return Row(name=name, group="database", says=says, ends=DONE, put_down=True, **more)


_BLOWS: Final = {
    "cut": "all connections are cut",
    "restart": "PostgreSQL is started anew",
    "read-only": "it can't be written for a second",
    "locked": "its tables are locked for a second",
}
_WITHIN: Final[Mapping[str, Mapping[str, Any]]] = {"locked": {"lease_seconds": 0.1}}
"""A transaction may last six leases: who waits for the locks is cut off."""
_SLOW_LOOK: Final = does("look", "s", what="sea", seconds=0.5)

_DATABASE: Final = [
    *[
        _database(f"{what}, while the model thinks", Blow(kind, LOOK), POST, asks=2, settings=_WITHIN.get(kind, {}))
        for kind, what in _BLOWS.items()
    ],
    *[
        _database(
            f"{what}, while a tool runs",
            Blow(kind, _SLOW_LOOK, after_seconds=0.2),
            POST,
            asks=2,
            settings=_WITHIN.get(kind, {}),
        )
        for kind, what in _BLOWS.items()
    ],
    _database("all connections are cut, then the model fails", Blow("cut", error(503)), POST, asks=2),
    _database(
        "all connections are cut, twice in a row",
        Blow("cut", LOOK),
        Blow("cut", does("look", "m", what="sky")),
        POST,
        asks=3,
    ),
    _database("all connections are cut while the model is asked for its last call", Blow("cut", POST), asks=1),
]


# -- budgets ----------------------------------------------------------------------------------------------------------


def _budget(name: str, *says: Answer, ends: str, **more: Any) -> Row:
    return Row(name=name, group="budget", says=says, ends=ends, **more)


_LOOKS: Final = [used(does("look", f"u{turn}", what=f"place {turn}")) for turn in range(MANY)]
_UNCOUNTED: Final = [does("look", f"u{turn}", what=f"place {turn}") for turn in range(MANY)]
_CACHED: Final = [
    used(does("look", f"u{turn}", what=f"place {turn}"), prompt_tokens_details={"cached_tokens": 800})
    for turn in range(MANY)
]
_REASONED: Final = [
    used(does("look", f"u{turn}", what=f"place {turn}"), completion_tokens_details={"reasoning_tokens": 5000})
    for turn in range(MANY)
]
_USD: Final = {"budget_usd": TURN_USD}
_TOKENS: Final = {"budget_tokens": TURN_TOKENS}

_BUDGETS: Final = [
    _budget(
        "money is used up", *_LOOKS, ends=BUDGET, asks=3, limits={"budget_usd": 2.5 * TURN_USD}, limits_a_turn=_USD
    ),
    _budget(
        "money is used up to the cent",
        *_LOOKS,
        ends=BUDGET,
        asks=2,
        limits={"budget_usd": 1.999 * TURN_USD},
        limits_a_turn=_USD,
    ),
    _budget(
        "one answer costs all of it",
        used(LOOK, completion=100_000),
        LOOK,
        ends=BUDGET,
        asks=1,
        limits={"budget_usd": 2 * TURN_USD},
        limits_a_turn=_USD,
    ),
    _budget(
        "money, with most of it cached",
        *_CACHED,
        ends=BUDGET,
        asks=4,
        least=4,
        limits={"budget_usd": 2.5 * TURN_USD},
        limits_a_turn=_USD,
    ),
    _budget(
        "money, with reasoning that is told apart",
        *_REASONED,
        ends=BUDGET,
        asks=1,
        limits={"budget_usd": 5 * TURN_USD},
        limits_a_turn=_USD,
    ),
    _budget(
        "money is used up by answers that can't be used",
        used(calling(("a", "note", "{"))),
        ends=BUDGET,
        asks=1,
        limits={"budget_usd": 0.5 * TURN_USD},
        limits_a_turn=_USD,
    ),
    _budget("tokens are used up", *_LOOKS, ends=BUDGET, asks=3, limits={"budget_tokens": 3000}, limits_a_turn=_TOKENS),
    _budget(
        "tokens that no server counts",
        *_UNCOUNTED,
        ends=BUDGET,
        asks=MANY // 2,
        limits={"budget_tokens": 4000},
        limits_a_turn=_TOKENS,
    ),
    _budget("no tokens at all", *_LOOKS, ends=BUDGET, asks=1, limits={"budget_tokens": 1}, limits_a_turn=_TOKENS),
    _budget(
        "the limit comes with an effect that is not approved yet",
        used(POST),
        ends=BUDGET,
        asks=1,
        never=["post"],
        limits={"budget_tokens": 1},
        limits_a_turn=_TOKENS,
    ),
    _budget(
        "the limit comes with calls that are open",
        used(calling(*[(f"c{n}", "note", json.dumps({"path": f"{n}", "text": "x"})) for n in range(3)])),
        ends=BUDGET,
        asks=1,
        never=["note"],
        limits={"budget_tokens": 1},
        limits_a_turn=_TOKENS,
    ),
    _budget(
        "steps are used up",
        *_LOOKS,
        ends=STEP_LIMIT,
        asks=2,
        limits={"step_limit": 7},
        limits_a_turn={"step_limit": TURN_STEPS},
    ),
    _budget(
        "steps are used up by a model that only talks",
        again=[saying(content=f"word {n}") for n in range(9)],
        ends=STEP_LIMIT,
        asks=2,
        limits={"step_limit": 4},
        limits_a_turn={"step_limit": TURN_STEPS},
    ),
    _budget(
        "time is over while a tool works",
        *[does("look", f"w{n}", what=f"{n}", seconds=1.5) for n in range(9)],
        ends=DEADLINE,
        asks=1,
        limits={"deadline_seconds": 1.5},
        limits_a_turn={"deadline_seconds": 0.0},
    ),
    _budget(
        "time is over while a model fails",
        error(503),
        ends=DEADLINE,
        asks=2,
        limits={"deadline_seconds": 1.5},
        settings={"model_pause_seconds": 8.0},
    ),
    _budget(
        "time is over while a tool hangs",
        does("look", "h", what="the horizon", seconds=50.0),
        ends=DEADLINE,
        asks=1,
        limits={"deadline_seconds": 1.5},
        limits_a_turn={"deadline_seconds": 0.0},
    ),
]


# -- the agent's own judgement ----------------------------------------------------------------------------------------


def _judgement(name: str, *says: Answer, ends: str = ESCALATED, **more: Any) -> Row:
    return Row(name=name, group="judgement", says=says, ends=ends, **more)


def _lap(period: int, tool: str = "look") -> list[Answer]:
    return [does(tool, f"o{place}", what=f"corner {place}") for place in range(period)]


_EDITS: Final = [does("note", f"e{text}", path="a", text=text) for text in ("here", "there")]
_CLAIMS: Final = ("All done, the letter is posted.", "Yes, it is posted, I checked.", "Posted. Nothing is left to do.")

_JUDGEMENTS: Final = [
    *[
        _judgement(f"a circle of {period}", again=_lap(period), asks=max(7, 5 * period), never=["post"])
        for period in (1, 2, 3, 4)
    ],
    *[
        _judgement(
            f"a circle of {period} whose results tell the time", again=_lap(period, "measure"), asks=max(7, 5 * period)
        )
        for period in (1, 2, 3, 4)
    ],
    _judgement("a circle of calls that are refused", again=[does("look", "o")], asks=6),
    _judgement("edits that undo each other", again=_EDITS, asks=10),
    _judgement(
        "edits that undo each other, with other looks in between",
        *[answer for n in range(12) for answer in (does("look", f"i{n}", what=f"{n}"), _EDITS[n % 2])],
        asks=24,
    ),
    _judgement(
        "a circle, a nudge, and then the work", *[LOOK] * 3, POST, ends=DONE, asks=4, told="Do something else now"
    ),
    _judgement("chatter", *[saying(content=word) for word in ("It is", "nearly", "there", "now")], asks=3),
    _judgement("the same word again", saying(content="It is nearly there"), asks=2),
    _judgement("false claims of success", *[saying(content=claim) for claim in _CLAIMS], asks=3),
    _judgement(
        "a false claim, and then the work",
        saying(content=_CLAIMS[0]),
        POST,
        ends=DONE,
        asks=2,
        told="There is no receipt of a letter yet",
    ),
    _judgement(
        "claims of success after a look",
        again=[LOOK, saying(content=_CLAIMS[0]), LOOK, saying(content=_CLAIMS[1])],
        asks=24,
    ),
    _judgement(
        "what was seen, in any order",
        *[does("look", f"r{n}", what=f"{n}") for n in range(5)],
        *[does("look", f"r{n}", what=f"{n * n % 5}") for n in range(5, 40)],
        asks=24,
    ),
]

TABLE: Final[Sequence[Row]] = [*_HTTP, *_STREAMS, *_ANSWERS, *_TOOLS, *_DATABASE, *_BUDGETS, *_JUDGEMENTS]
