"""What one call of a model has used up: tokens and money, rather too much than too little."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from langchain_core.messages import BaseMessage

from graph.models.prices import FREE, MILLION, Price, Prices
from state.messages import flatten

BYTES_A_TOKEN: Final = 3
"""Where a server counts nothing. English and code take about four bytes a token, other scripts about three."""
_DEAREST_WRITE: Final = 1.25


class Spent(NamedTuple):
    """What counts against the budgets."""

    tokens: int
    usd: float | None
    """None: nobody has said what the model costs."""


def unpriced(models: Sequence[str], limit: float | None, prices: Prices) -> str | None:
    """A sentence where a budget of money can't be held, because nobody has said what one of the models costs."""
    unknown = [model for model in models if prices.of(model) is None]
    if limit is None or not unknown:
        return None
    return (
        f"nobody has said what {unknown[0]} costs, so a budget of {limit:g} USD could not be held; put its price into "
        "a file that DEVFIX_PRICES names, or limit tokens (--budget-tokens)"
    )


def lost(asked: Sequence[BaseMessage], tools: Sequence[Mapping[str, Any]], received: int, price: Price | None) -> Spent:
    """For a question whose answer broke off after about so many tokens: what its server may charge for."""
    if price is FREE:
        return Spent(0, 0.0)
    usage = _Usage(sum(map(tokens_of, asked)) + tokens_of(list(tools)), 0, 0, received)
    return Spent(sum(usage), None if price is None else _cost(usage, price))


class _Usage(NamedTuple):
    fresh: int
    cached: int
    written: int
    output: int


def spent(
    record: Mapping[str, Any], asked: Sequence[BaseMessage], tools: Sequence[Mapping[str, Any]], price: Price | None
) -> Spent:
    """For an answer as it came, and what was asked. Tokens that a server did not count are estimated; the models that
    work without one use none."""
    usage = _told(record)
    if price is FREE:
        usage = usage or _NONE
    elif usage is None or not _is_plausible(usage, record):
        usage = _completed(usage or _NONE, _estimated(record, asked, tools))
    return Spent(sum(usage), None if price is None else _cost(usage, price))


_NONE: Final = _Usage(0, 0, 0, 0)
_SAID: Final = ("content", "tool_calls", "invalid_tool_calls")


def _is_plausible(usage: _Usage, record: Mapping[str, Any]) -> bool:
    """A question is never empty, nor is an answer in which something is said: some servers send zeros all the same."""
    says = any(record.get(name) for name in _SAID)
    return sum(usage[:3]) > 0 and (usage.output > 0 or not says)


def _completed(usage: _Usage, estimate: _Usage) -> _Usage:
    """With the estimate in place of what is zero."""
    given = usage[:3] if sum(usage[:3]) else estimate[:3]
    return _Usage(*given, usage.output or estimate.output)


def _told(record: Mapping[str, Any]) -> _Usage | None:
    """What the server says, where it can be. Reasoning counts as output; one that is said to be more than all output
    was told apart from it."""
    usage = record.get("usage_metadata")
    if not isinstance(usage, Mapping):
        return None
    given, output = _number(usage.get("input_tokens")), _number(usage.get("output_tokens"))
    if given is None or output is None:
        return None
    within = usage.get("input_token_details") or {}
    cached = min(_number(within.get("cache_read")) or 0, given)
    written = min(_number(within.get("cache_creation")) or 0, given - cached)
    reasoning = _number((usage.get("output_token_details") or {}).get("reasoning")) or 0
    return _Usage(given - cached - written, cached, written, output + reasoning if reasoning > output else output)


def _number(value: object) -> int | None:
    """A count that can be one."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 10**12 else None


def _estimated(record: Mapping[str, Any], asked: Sequence[BaseMessage], tools: Sequence[Mapping[str, Any]]) -> _Usage:
    answer = {name: record.get(name) for name in _SAID}
    return _Usage(sum(map(tokens_of, asked)) + tokens_of(list(tools)), 0, 0, tokens_of(answer))


def tokens_of(value: object) -> int:
    """About how many tokens a message, or any JSON value, takes; rather too many."""
    value = flatten(value) if isinstance(value, BaseMessage) else value
    size = len(json.dumps(value, ensure_ascii=False, default=str).encode("utf-8", "surrogatepass"))
    return -(-size // BYTES_A_TOKEN)


def _cost(usage: _Usage, price: Price) -> float:
    cached = price.input if price.cached_input is None else price.cached_input
    write = price.input * _DEAREST_WRITE if price.cache_write is None else price.cache_write
    parts = (
        usage.fresh * price.input,
        usage.cached * cached,
        usage.written * write,
        usage.output * price.output,
    )
    return sum(parts) / MILLION
