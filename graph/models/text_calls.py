"""Tool calls that stand in a model's text, as local models write them whose server does not read them out:

    <tool_call>{"name": "look", "arguments": {"what": "sea"}}</tool_call>      Hermes, Qwen
    <tool_call><function=look><parameter=what>sea</parameter></function></tool_call>
    <function=look>{"what": "sea"}</function>
    [TOOL_CALLS][{"name": "look", "arguments": {"what": "sea"}}]               Mistral; also look[ARGS]{"what": "sea"}
    <|python_tag|>{"name": "look", "parameters": {"what": "sea"}}              Llama
    {"name": "look", "arguments": {"what": "sea"}}                             bare or fenced, one or an array

A call that is only spoken of is none: JSON has to be the whole answer; a mark has to begin a line, with nothing behind
its calls and no words before them that lead up to a quotation.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from langchain_core.messages import ToolCall
from langchain_core.messages.tool import tool_call

from graph.models.strict_json import STRICT, strictly

_THOUGHT: Final = re.compile(r"\s*<think>.*?</think>", re.DOTALL)
_MARK: Final = re.compile(r"^[ \t]*(?=<tool_call>|\[TOOL_CALLS\]|<\|python_tag\|>|<function=)", re.MULTILINE)
_END: Final = re.compile(r"(?:\s|<\|eom_id\|>|<\|eot_id\|>|<\|im_end\|>|</s>)*\Z")
_FENCE: Final = re.compile(r"```(?:json|tool_call|tool_code)?[ \t]*\n(.*?)\n?```", re.DOTALL)
_BETWEEN: Final = re.compile(r"(?:\s|;|,|</tool_call>|<tool_call>|\[TOOL_CALLS\]|<\|python_tag\|>)*")
_FUNCTION: Final = re.compile(r"<function=([^>\s]+)>\s*")
_PARAMETER: Final = re.compile(r"<parameter=([^>\s]+)>\n?(.*?)\n?</parameter>\s*", re.DOTALL)
_NAMED: Final = re.compile(r"([A-Za-z0-9_.-]{1,64})\s*(?:\[ARGS\]|(?=\{))\s*")
_QUOTING: Final = re.compile(
    r"\b(?:examples?|e\.g|for instance|such as|like this|looks? like|formats?|syntax|quot\w+|would|could|might|way to"
    r"|how to|instead of|never|do not|don't)\b[^\n]*\Z",
    re.IGNORECASE,
)
_KEYS: Final = {"name", "arguments", "parameters", "id", "type", "function"}


class Written(NamedTuple):
    """What a text holds besides words."""

    text: str
    """The words before the calls."""
    calls: list[ToolCall]
    complaint: str | None
    """Why what looks like a call is none; there are no calls then."""


class _NoCall(Exception):
    """What is marked as a call can't be read as one: said in a sentence."""


def written_calls(text: str, tools: Mapping[str, Mapping[str, Any]]) -> Written | None:
    """The calls of these tools (name and JSON schema of the arguments) in a text; None where it has none."""
    thought = _THOUGHT.match(text)
    body = text[thought.end() if thought else 0 :]
    if mark := _MARK.search(body):
        words = body[: mark.start()]
        return None if _quotes(words) else _marked(body[mark.end() :], words.strip(), tools)
    calls = _whole(body.strip(), tools)
    return Written("", calls, None) if calls else None


def _quotes(words: str) -> bool:
    """Whether the words lead up to something that is shown, not done."""
    return words.count("```") % 2 == 1 or _QUOTING.search(words.strip()) is not None


def _marked(rest: str, words: str, tools: Mapping[str, Mapping[str, Any]]) -> Written | None:
    calls: list[ToolCall] = []
    place = _between(rest, 0)
    try:
        while not _END.match(rest, place):
            found, place = _next(rest, place, tools)
            if not found:
                return None
            calls += [_known(call, tools) for call in found]
            place = _between(rest, place)
    except _NoCall as trouble:
        return Written(words, [], str(trouble))
    return Written(words, calls, None) if calls else None


def _between(rest: str, place: int) -> int:
    marks = _BETWEEN.match(rest, place)
    return marks.end() if marks else place


def _next(rest: str, place: int, tools: Mapping[str, Mapping[str, Any]]) -> tuple[list[ToolCall], int]:
    """The calls that begin here, none where something else does, and where they end."""
    if function := _FUNCTION.match(rest, place):
        return _function(rest, function, tools)
    if named := _NAMED.match(rest, place):
        args, end = _json(rest, named.end())
        return [_call({"name": named[1], "arguments": args})], end
    if rest[place] not in "{[":
        return [], place
    value, end = _json(rest, place)
    return [_call(each) for each in _objects(value)], end


def _function(rest: str, begun: re.Match[str], tools: Mapping[str, Any]) -> tuple[list[ToolCall], int]:
    name, place = begun[1], begun.end()
    if rest.startswith("{", place):
        args, place = _json(rest, place)
    else:
        fields = (tools.get(name) or {}).get("properties") or {}
        args = {}
        while parameter := _PARAMETER.match(rest, place):
            args[parameter[1]] = _typed(parameter[2], fields.get(parameter[1]) or {})
            place = parameter.end()
    end = re.compile(r"\s*</function>").match(rest, place)
    if end is None:
        raise _NoCall(f"the call of {name} has no </function>")
    return [_call({"name": name, "arguments": args})], end.end()


def _typed(value: str, schema: Mapping[str, Any]) -> Any:
    """Between tags everything is text; what the tool takes as something else is read as JSON."""
    if schema.get("type") == "string":
        return value
    try:
        return strictly(value)
    except (ValueError, RecursionError):
        return value


def _json(text: str, place: int) -> tuple[Any, int]:
    try:
        return STRICT.raw_decode(text, place)
    except (ValueError, RecursionError) as error:
        at = getattr(error, "pos", place)
        raise _NoCall(f"its JSON can't be read ({error}), near {text[max(0, at - 40) : at + 40]!r}") from None


def _objects(value: Any) -> Iterator[Any]:
    """The calls in a JSON value, whatever they are wrapped in."""
    match value:
        case {"tool_calls": list(calls)}:
            yield from calls
        case list():
            yield from value
        case _:
            yield value


def _call(value: Any) -> ToolCall:
    """Raises _NoCall for a value that is no call."""
    inner = value.get("function") if isinstance(value, dict) else None
    given = {**value, **inner} if isinstance(inner, dict) else value
    if not isinstance(given, dict):
        raise _NoCall("a call is a JSON object with name and arguments")
    name = given.get("name", inner)
    args = given.get("arguments", given.get("parameters", {}))
    if isinstance(args, str):
        args, _ = _json(args, 0) if args.strip() else ({}, 0)
    if not isinstance(name, str) or not isinstance(args, dict):
        raise _NoCall("a call is a JSON object with name and arguments, the arguments an object")
    return tool_call(name=name, args=args, id=None)


def _known(call: ToolCall, tools: Mapping[str, Any]) -> ToolCall:
    if call["name"] not in tools:
        raise _NoCall(f"there is no tool {call['name'][:64]!r}; there are: {', '.join(tools)}")
    return call


def _whole(body: str, tools: Mapping[str, Any]) -> list[ToolCall]:
    """The calls of an answer that is nothing but JSON, bare or in fences; it is an answer like any other where one of
    its parts is no call of a tool that there is."""
    fenced = _FENCE.findall(body) if body.startswith("```") and not _FENCE.sub("", body).strip() else [body]
    calls: list[ToolCall] = []
    try:
        for part in fenced:
            value, end = _json(part.strip(), 0)
            if part.strip()[end:].strip() or not all(map(_is_a_call, _objects(value))):
                return []
            calls += [_known(_call(each), tools) for each in _objects(value)]
    except _NoCall:
        return []
    return calls


def _is_a_call(value: Any) -> bool:
    if not isinstance(value, dict) or not value.keys() <= _KEYS:
        return False
    inner = value.get("function")
    return bool({"arguments", "parameters"} & (inner if isinstance(inner, dict) else value).keys())
