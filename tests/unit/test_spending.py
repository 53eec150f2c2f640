"""What a call of a model counts against the budgets: rather too much than too little."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import HumanMessage

from graph.models.prices import FREE, Price, Prices
from graph.spending import BYTES_A_TOKEN, spent, unpriced
from state.errors import Refused

PRICE = Price(input=2.0, cached_input=0.5, output=8.0)
TOOLS = [{"name": "look", "parameters": {"type": "object"}}]


def answer(usage: Any = None, content: str = "", calls: Any = ()) -> dict[str, Any]:
    return {"content": content, "tool_calls": list(calls), "usage_metadata": usage}


def told(given: int, output: int, **details: Any) -> dict[str, Any]:
    return {"input_tokens": given, "output_tokens": output, "total_tokens": given + output, **details}


@pytest.mark.parametrize(
    ("usage", "tokens", "usd"),
    [
        (told(1000, 100), 1100, (1000 * 2 + 100 * 8) / 1e6),
        (told(1000, 100, input_token_details={"cache_read": 600}), 1100, (400 * 2 + 600 * 0.5 + 100 * 8) / 1e6),
        (told(1000, 100, input_token_details={"cache_creation": 400}), 1100, (600 * 2 + 400 * 2.5 + 100 * 8) / 1e6),
        (told(1000, 100, output_token_details={"reasoning": 80}), 1100, (1000 * 2 + 100 * 8) / 1e6),
        (told(1000, 100, output_token_details={"reasoning": 900}), 2000, (1000 * 2 + 1000 * 8) / 1e6),
        (told(1000, 100, input_token_details={"cache_read": 5000}), 1100, (1000 * 0.5 + 100 * 8) / 1e6),
    ],
)
def test_what_a_server_counts_is_charged_by_kind(usage: Any, tokens: int, usd: float) -> None:
    """Cached and written input at their own prices; reasoning is output, also where it is told apart from it."""
    found = spent(answer(usage), [], [], PRICE)
    assert found.tokens == tokens
    assert found.usd == pytest.approx(usd)


@pytest.mark.parametrize(
    "usage", [None, {}, told(-5, 7), told(10**25, 7), {"input_tokens": None, "output_tokens": 3}, "many", told(7, True)]
)
def test_what_a_server_does_not_count_is_estimated_high(usage: Any) -> None:
    """The conversation, the tools and the answer: no less than three bytes a token."""
    text, said = "x" * 3000, "y" * 300
    found = spent(answer(usage, said), [HumanMessage(text)], TOOLS, PRICE)
    assert found.tokens >= (len(text) + len(said)) / BYTES_A_TOKEN
    assert found.usd is not None
    assert found.usd >= (1000 * 2 + 100 * 8) / 1e6


@pytest.mark.parametrize(
    ("usage", "at_least"), [(told(0, 0), 1100), (told(0, 50), 1050), (told(1000, 0), 1100), (told(7, 0), 107)]
)
def test_zeros_for_what_was_asked_or_said_are_no_count(usage: Any, at_least: int) -> None:
    """The other number is believed."""
    found = spent(answer(usage, "y" * 300), [HumanMessage("x" * 3000)], TOOLS, PRICE)
    assert found.tokens >= at_least
    assert found.usd is not None
    assert found.usd > 0


def test_an_answer_in_which_nothing_is_said_may_count_no_output() -> None:
    """Nothing was given, and nothing is charged for it."""
    assert spent(answer(told(1000, 0)), [HumanMessage("x")], TOOLS, PRICE).tokens == 1000


def test_calls_count_as_output_and_half_characters_as_bytes() -> None:
    """An estimate reads whatever a model may say."""
    calls = [{"name": "write_file", "args": {"path": "a", "content": "z" * 3000}, "id": "c"}]
    assert spent(answer(None, "\ud83d", calls), [HumanMessage("\ud83d")], [], PRICE).tokens > 1000


def test_a_model_without_a_price_costs_nobody_knows_what() -> None:
    """None, which is no zero; its tokens count all the same."""
    assert spent(answer(told(10, 5)), [], [], None) == (15, None)
    assert spent(answer(told(10, 5)), [], [], FREE) == (15, 0.0)


def test_models_that_work_without_a_server_use_no_tokens() -> None:
    """search-repair and scripts; a local server whose price is nothing is counted all the same."""
    asked = [HumanMessage("x" * 3000)]
    assert spent(answer(None, "said"), asked, [], Prices({}).of("search-repair")) == (0, 0.0)
    assert spent(answer(None, "said"), asked, [], Price(input=0, output=0)).tokens > 1000


@pytest.mark.parametrize(
    ("model", "known"),
    [
        ("search-repair", True),
        ("scripted:/a/b.json", True),
        ("recorded:last", True),
        ("openai:gpt-4o", True),
        ("openai:gpt-4o-2024-08-06", True),
        ("openai:gpt-4.1-mini", True),
        ("openai:gpt-4o-audio-preview", False),
        ("openai:qwen2.5-coder:32b", False),
        ("gpt-4o-mini", True),
    ],
)
def test_prices_are_found_by_name_and_dated_version(model: str, known: bool) -> None:
    """Nothing is guessed from a likeness of names."""
    assert (Prices.read().of(model) is not None) == known


def test_a_file_of_ones_own_goes_over_the_table(tmp_path: Path) -> None:
    """It may price a local model at nothing, and change what ships."""
    path = tmp_path / "prices.toml"
    path.write_text('["qwen2.5-coder:32b"]\ninput = 0\noutput = 0\n[gpt-4o]\ninput = 1.0\noutput = 2\n')
    prices = Prices.read(path)
    assert prices.of("openai:qwen2.5-coder:32b") == FREE
    assert prices.of("openai:gpt-4o") == Price(input=1, output=2)
    assert unpriced(["openai:qwen2.5-coder:32b"], 5.0, prices) is None


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[m]\ninput = 1\n", "m.output: Field required"),
        ("[m]\ninput = -1\noutput = 2\n", "m.input"),
        ("[m]\ninput = 1\noutput = 2\nouput = 3\n", "m.ouput"),
        ("m = 3", "m: "),
        ("[m", "can't be read"),
        (None, "can't be read: No such file"),
    ],
)
def test_a_file_that_can_not_be_used_is_refused_in_one_sentence(tmp_path: Path, text: str | None, why: str) -> None:
    """With its name, and the place in it."""
    path = tmp_path / "prices.toml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(Refused, match="DEVFIX_PRICES") as refused:
        Prices.read(path)
    assert why in str(refused.value)


def test_a_budget_of_money_needs_a_price() -> None:
    """One of tokens does not."""
    assert unpriced(["openai:some-model"], None, Prices({})) is None
    assert "DEVFIX_PRICES" in str(unpriced(["openai:some-model"], 1.0, Prices({})))
    known = Prices({"some-model": Price(input=1.0, output=2.0)}, {"openai:mine": "some-model"})
    assert unpriced(["openai:mine", "search-repair"], 1.0, known) is None
    assert "openai:other costs" in str(unpriced(["openai:mine", "openai:other"], 1.0, known))
