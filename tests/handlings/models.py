"""What is done about models that do not answer, or whose answers can't be used."""

from __future__ import annotations

from tests.handlings.handling import Handling, policy
from tests.helpers.removal import Edit

ASK, CHAIN, ENDPOINT = "graph/models/ask.py", "graph/models/chain.py", "graph/models/endpoint.py"
STREAM, TEXT, TROUBLE = "graph/models/stream.py", "graph/models/text_calls.py", "graph/models/trouble.py"
WINDOW = "graph/window.py"
_MODEL_ERROR = '"model_error": Response("retry", 4,'
_AGAIN = '"again" if status is None or status in _PASSING or status >= 500 else "another"'
_NO_STATUS = '"again" if status is not None and (status in _PASSING or status >= 500) else "another"'
_UNUSABLE = (
    ('"unparsable_output": Response("retry", 1,', '"unparsable_output": Response("retry", {},'),
    ('"truncated_output": Response("retry", 2,', '"truncated_output": Response("retry", {},'),
    ('"empty_output": Response("retry", 1,', '"empty_output": Response("retry", {},'),
    ('"refused": Response("retry", 1,', '"refused": Response("retry", {},'),
)
_FINISH = "if finish is None or any(word in finish for word in _CUT):"
_STRICT = "broken = [invalid for invalid in map(_broken, chunk.tool_call_chunks) if invalid is not None]"


def _unusable(times: int) -> tuple[Edit, ...]:
    return policy(*((old, new.format(times)) for old, new in _UNUSABLE))


UNANSWERED = (
    Handling(
        "retries of a model",
        "trouble that passes does not end a run",
        (
            "HTTP ??? once",
            "HTTP 502 as a page of HTML",
            "429 once*",
            "the connection is closed once",
            "a page of HTML once",
            "an empty body once",
            "JSON that is no answer once",
            "a stream that breaks off *, once",
            "a stream with an error in it, once",
            "a stream of broken JSON, once",
            "a stream that ends before it begins, once",
            "all connections are cut, then the model fails",
        ),
        policy((_MODEL_ERROR, '"model_error": Response("retry", 0,')),
    ),
    Handling(
        "end of the retries",
        "a model that is down is not asked for ever",
        (
            "HTTP ??? for ever",
            "HTTP 500 for ever, a fallback answers",
            "HTTP 503 for ever, of the fallback too",
            "429 for ever",
            "the connection is closed for ever",
            "a page of HTML for ever",
            "a stream that breaks off *, for ever",
            "a stream with an error in it, for ever",
            "a stream of broken JSON, for ever",
            "a stream that ends before it begins, for ever",
        ),
        policy((_MODEL_ERROR, '"model_error": Response("retry", 9,')),
    ),
    Handling(
        "one place that retries",
        "the client library asks nothing again by itself",
        ("HTTP 500 for ever, a fallback answers", "the connection is closed for ever"),
        (Edit(ENDPOINT, '"max_retries": 0,', '"max_retries": 2,'),),
    ),
    Handling(
        "fallback models",
        "another model answers where one does not",
        (
            "*a fallback answers",
            "HTTP 503 for ever, of the fallback too",
            "HTTP 401 of the fallback",
            "a stream that trickles for ever",
        ),
        (
            Edit(
                CHAIN,
                "return [first, *(name for name in self.settings.fallback_models if name != first)]",
                "return [first]",
            ),
        ),
    ),
    Handling(
        "a server's own fault passes",
        "5xx are asked again",
        ("HTTP 5* once", "HTTP 502 as a page of HTML"),
        (Edit(ENDPOINT, _AGAIN, '"again" if status is None or status in _PASSING else "another"'),),
    ),
    Handling(
        "refusals that pass",
        "408, 409 and 429 are asked again",
        ("HTTP 408 once", "HTTP 409 once", "429 once*"),
        (Edit(ENDPOINT, "_PASSING: Final = frozenset({408, 409, 425, 429})", "_PASSING: Final = frozenset()"),),
    ),
    Handling(
        "a lost connection passes",
        "what has no HTTP status is asked again",
        ("the connection is closed once", "a stream with an error in it, once", "a stream of broken JSON, once"),
        (Edit(ENDPOINT, _AGAIN, _NO_STATUS),),
    ),
    Handling(
        "refusals that last",
        "a request that is refused is not repeated",
        (
            "HTTP 400: not understood",
            "HTTP 404: no such model",
            "HTTP 404, a fallback answers",
            "HTTP 422, a fallback answers",
            "HTTP 401 of the fallback",
        ),
        (Edit(ENDPOINT, _AGAIN, '"again"'),),
    ),
    Handling(
        "a refused key",
        "nobody else is asked instead",
        ("HTTP 40?: the key is refused",),
        (Edit(ENDPOINT, "if status in _KEY_REFUSED:", "if False:"),),
    ),
    Handling(
        "an empty account",
        "no waiting for money",
        ("429: the account is empty",),
        (Edit(ENDPOINT, 'if getattr(error, "code", None) in _SPENT:', "if False:"),),
    ),
    Handling(
        "a filter's error is a refusal",
        "a refused question is not taken for one that can't be read",
        ("HTTP 400: the content is filtered, *",),
        (Edit(ENDPOINT, "if _is_filtered(error):", "if False:"),),
    ),
    Handling(
        "condensing",
        "a conversation that is too long is made shorter",
        ("too long for the window once",),
        (Edit(WINDOW, "if not trouble.overflow:", "if True:"),),
    ),
    Handling(
        "end of condensing",
        "a conversation is not made shorter for ever",
        ("too long for the window, whatever is left out",),
        (Edit(WINDOW, "CONDENSATIONS: Final = 2", "CONDENSATIONS: Final = 9"),),
    ),
    Handling(
        "end of condensing where nothing can be left out",
        "a conversation that can't be made shorter is not sent again and again",
        ("too long for the window, and nothing to leave out",),
        (
            Edit(WINDOW, "CONDENSATIONS: Final = 2", "CONDENSATIONS: Final = 9"),
            Edit(WINDOW, "    if _total(parts) > most_tokens:\n        raise", "    if False:\n        raise"),
        ),
        many_locks=True,
    ),
    Handling(
        "Retry-After",
        "a server is left alone for as long as it asks",
        ("429 once, retry a*", "429 asks for a day*"),
        (Edit(ENDPOINT, "pause = retry_after(headers) if status in _TOO_MUCH else None", "pause = None"),),
    ),
    Handling(
        "Retry-After as a date",
        "the other form of it counts too",
        ("429 once, retry at a date",),
        (Edit(TROUBLE, 'then = _moment(headers.get("retry-after"))', "then = None"),),
    ),
    Handling(
        "retry-after-ms",
        "short pauses are kept to the millisecond",
        ("429 once, retry after milliseconds",),
        (Edit(TROUBLE, '(("retry-after-ms", 0.001), ("retry-after", 1.0))', '(("retry-after", 1.0),)'),),
    ),
    Handling(
        "a Retry-After that says nothing",
        "nonsense in a header ends no run",
        ("429 once, nonsense instead of seconds",),
        (Edit(TROUBLE, "except (KeyError, ValueError):", "except KeyError:"),),
    ),
    Handling(
        "a pause that is too long",
        "a run does not wait for a day",
        ("429 asks for a day*",),
        (
            Edit(
                CHAIN,
                "if self._is_failing or not self._bearing.allows(seconds, left=self._left):",
                "if self._is_failing:",
            ),
        ),
    ),
    Handling(
        "an answer that never began",
        "a success without an answer is trouble",
        (
            "a page of HTML *",
            "an empty body once",
            "JSON that is no answer once",
            "a stream that ends before it begins, *",
        ),
        (Edit(ENDPOINT, "if not answered:", "if False:"),),
    ),
    Handling(
        "what the client library raises",
        "it is the model's trouble, not DevFix's",
        ("a stream with an error in it, *",),
        (
            Edit(
                ENDPOINT,
                "except (ModelError, openai.OpenAIError, httpx2.HTTPError, *_UNREADABLE) as error:\n"
                "            raise self._trouble(error, body) from None",
                "except ZeroDivisionError as error:\n            raise self._trouble(error, body) from None",
            ),
        ),
    ),
    Handling(
        "answers of no known form",
        "what the client library breaks at is the model's trouble",
        ("a stream of broken JSON, *",),
        (
            Edit(
                ENDPOINT,
                "_UNREADABLE: Final = (AttributeError, KeyError, IndexError, TypeError, ValueError)",
                "_UNREADABLE: Final = ()",
            ),
        ),
    ),
    Handling(
        "time for one call",
        "a stream that trickles does not live for ever",
        ("a stream that trickles for ever",),
        (Edit(ASK, "deadline = asyncio.timeout(seconds)", "deadline = asyncio.timeout(None)"),),
    ),
    Handling(
        "time for silence",
        "a server that says nothing more is left",
        ("a stream that falls silent",),
        (Edit(ENDPOINT, "timeout := httpx2.Timeout(silence_seconds,", "timeout := httpx2.Timeout(None,"),),
    ),
)

UNUSABLE = (
    Handling(
        "an answer has an end",
        "what a stream was cut at is not taken for the answer",
        ("a stream that is cut in the text, *", "a stream that is cut in a call, once", "a whole call in a stream*"),
        (Edit(ASK, _FINISH, "if finish is not None and any(word in finish for word in _CUT):"),),
    ),
    Handling(
        "no call of half a stream",
        "a call is made only if it is whole, and so is its turn",
        ("a stream that is cut in a call, for ever",),
        (
            Edit(ASK, _FINISH, "if finish is not None and any(word in finish for word in _CUT):"),
            Edit(STREAM, _STRICT, "broken: list[InvalidToolCall] = []"),
        ),
        many_locks=True,
    ),
    Handling(
        "arguments are read strictly",
        "JSON that was cut is not completed",
        ("arguments that are cut, once", "broken arguments for ever"),
        (Edit(STREAM, _STRICT, "broken: list[InvalidToolCall] = []"),),
    ),
    Handling(
        "a turn that is broken in part",
        "none of its calls is made, and the model is told why",
        ("arguments that are *, once",),
        (Edit(ASK, "for broken in message.invalid_tool_calls:", "for broken in ():"),),
    ),
    Handling(
        "once more",
        "a model may mend an answer that can't be used",
        (
            "HTTP 400: the content is filtered, once",
            "a stream that is cut in *, once",
            "arguments that are *, once",
            "a tool's name that no provider takes back",
            "an empty answer once",
            "an answer that is cut (*), once",
            "an answer just as long as it may be",
            "a refusal once",
            "a broken call in the text",
        ),
        _unusable(0),
    ),
    Handling(
        "once more is all",
        "answers that can't be used are not asked for again for ever",
        (
            "HTTP 400: the content is filtered, for ever",
            "a stream that is cut in *, for ever",
            "a whole call in a stream that is cut",
            "broken arguments for ever",
            "an empty answer for ever",
            "only spaces for ever",
            "calls are announced, and none is there",
            "empty and broken answers take turns",
            "an answer that is cut for ever",
            "a refusal for ever",
            "a filtered answer *",
            "an unsafe answer for ever",
            "a call in a text that is cut",
        ),
        _unusable(9),
    ),
    Handling(
        "one count for all of them",
        "two kinds of such answers do not take turns",
        ("empty and broken answers take turns",),
        (Edit("graph/streaks.py", 'return "unusable" if kind in UNUSABLE else kind', "return kind"),),
    ),
    Handling(
        "an empty answer",
        "is one that can't be used, not one that asks for nothing",
        ("an empty answer *", "only spaces for ever", "calls are announced, and none is there"),
        (Edit(ASK, "if not calls and not text.strip():", "if False:"),),
    ),
    Handling(
        "words for a cut",
        "no call of an answer that was cut is made",
        ("an answer that is cut *", "a call in a text that is cut"),
        (Edit(ASK, _FINISH, "if finish is None:"),),
    ),
    Handling(
        "an answer at its longest",
        "was cut, whatever its server says",
        ("an answer just as long as it may be",),
        (Edit(ASK, 'if cap is None or usage is None or usage["output_tokens"] < cap:', "if True:"),),
    ),
    Handling(
        "refusals in a stream",
        "a refusal is not taken for an empty answer",
        ("a refusal *",),
        (Edit(ENDPOINT, '(refusal := delta.get("refusal"))', "(refusal := None)"),),
    ),
    Handling(
        "words for a filter",
        "what was filtered is a refusal, and no call of it is made",
        ("a filtered answer *", "an unsafe answer for ever"),
        (Edit(ASK, 'if refusal or any(word in (finish or "") for word in _FILTERED):', "if refusal:"),),
    ),
    Handling(
        "ids of our own",
        "a call without an id gets one",
        ("calls without ids",),
        (Edit(ASK, 'and _is_usable(call["id"], known) else ours', "else ours"),),
    ),
    Handling(
        "one id, one call",
        "two calls of a turn are told apart",
        ("calls with the same id",),
        (Edit(ASK, 'if given.count(call["id"]) == 1 and _is_usable', "if _is_usable"),),
    ),
    Handling(
        "ids of earlier turns",
        "a server that counts anew at each turn is understood",
        ("an id of an earlier turn",),
        (
            Edit(
                ASK,
                "if not identifier or identifier in known or identifier.startswith(_OURS):",
                "if not identifier or identifier.startswith(_OURS):",
            ),
        ),
    ),
    Handling(
        "ids that are ours",
        "no model takes an id that DevFix gives",
        ("ids that DevFix gives itself",),
        (
            Edit(
                ASK,
                "if not identifier or identifier in known or identifier.startswith(_OURS):",
                "if not identifier or identifier in known:",
            ),
        ),
    ),
    Handling(
        "ids that others take back",
        "one provider's id is not refused by the next",
        ("an id that is far too long",),
        (Edit(ASK, "return _ID.fullmatch(identifier) is not None", "return True"),),
    ),
    Handling(
        "names that others take back",
        "a name that no provider takes stays out of the history",
        ("a tool's name that no provider takes back",),
        (Edit(ASK, 'if not _NAME.fullmatch(call["name"]):', "if False:"),),
    ),
    Handling(
        "calls in the text",
        "a local model's calls are read where its server does not",
        ("a call in the text, *", "a broken call in the text"),
        (
            Edit(
                ASK, "(written := written_calls(text, _arguments(tools))) is not None", "(written := None) is not None"
            ),
        ),
    ),
    Handling(
        "calls in a fence",
        "an answer that is nothing but a call is one",
        ("a call in the text, in a fence",),
        (Edit(TEXT, "calls = _whole(body.strip(), tools)", "calls: list[ToolCall] = []"),),
    ),
    Handling(
        "text that no request carries",
        "half a character does not end a run",
        ("arguments with a NUL and half a character",),
        (Edit(ENDPOINT, "payload = {name: _sendable(value) for name, value in payload.items()}", "pass"),),
    ),
    Handling(
        "usage that can't be",
        "a number that no turn can have is not counted",
        ("usage that can't be",),
        (Edit("graph/spending.py", "and 0 <= value <= 10**12 else None", "else None"),),
    ),
)
