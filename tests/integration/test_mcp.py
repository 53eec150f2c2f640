"""Tools of a real MCP server: read where the job says so, else effects that nobody can check."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import pytest

from state.errors import Refused
from state.holder import this_process
from tests.helpers.memory_stores import MemoryArtifacts, MemoryLedger, MemoryRuns
from tools.execution import Execution, Performed, effect_key
from tools.mcp import mcp_tools
from tools.registry import Found, Tool, ToolContext

pytest.importorskip("langchain_mcp_adapters", reason="the extra mcp is not installed")


def shop(orders: Path, program: str = sys.executable) -> dict[str, Any]:
    arguments = [str(Path(__file__).parents[1] / "helpers" / "mcp_server.py"), str(orders)]
    return {"shop": {"transport": "stdio", "command": program, "args": arguments}}


@pytest.fixture
def orders(tmp_path: Path) -> Path:
    return tmp_path / "orders"


async def do(made: Tool, call: str = "c", **args: Any) -> tuple[Performed, list[str]]:
    """Performed by a run that this process holds; and what its ledger says then."""
    ledger, runs = MemoryLedger(), MemoryRuns()
    await runs.register("r")
    epoch = (await runs.claim("r", this_process())).epoch
    context = cast("Any", ToolContext)(
        run_id="r",
        call_id=call,
        key=effect_key("r", call),
        work={},
        workspace=None,
        sandbox=None,
        artifacts=MemoryArtifacts(),
        snapshots=None,
        settings=None,
    )
    performed = await Execution(ledger=ledger, runs=runs).perform(made, args, context, epoch=epoch)
    return performed, [effect.state for effect in await ledger.of("r")]


def test_tools_are_gated_effects_unless_the_job_says_otherwise(orders: Path) -> None:
    """With the server's own schema and words for the model."""
    made = {each.name: each for each in mcp_tools(shop(orders), reads=["shop_stock"])}
    assert {name: (each.kind, each.gated) for name, each in made.items()} == {
        "shop_stock": ("read", False),
        "shop_order": ("effect", True),
    }
    function = made["shop_order"].schema["function"]
    assert (function["name"], function["description"]) == ("shop_order", "Order an article.")
    assert function["parameters"]["required"] == ["article"]


async def test_a_call_reaches_the_server_and_its_facts_come_back(orders: Path) -> None:
    """Once through the ledger, where it is an effect."""
    stock, order = mcp_tools(shop(orders), reads=["shop_stock"])
    found, _ = await do(stock, article="tea")
    assert found.result.facts == {"article": "tea", "left": 3}
    performed, ledger = await do(order, article="tea", number=2)
    assert (performed.failure, performed.result.content, ledger) == (None, "ordered 2 tea", ["settled"])
    assert orders.read_text() == "tea 2\n"


@pytest.mark.parametrize("args", [{"article": 3}, {}, {"article": "tea", "wrapped": True}])
async def test_arguments_are_held_against_the_servers_schema(orders: Path, args: Mapping[str, Any]) -> None:
    """And nothing is called."""
    _, order = mcp_tools(shop(orders))
    performed, ledger = await do(order, **args)
    assert (performed.failure, ledger, orders.exists()) == ("invalid_arguments", [], False)


@pytest.mark.parametrize("article", ["last", "slow", "unicorn"])
async def test_an_effect_without_an_answer_is_unknown_and_told(orders: Path, article: str) -> None:
    """The server died, did not answer in time, or answered with an error: a person looks."""
    _, order = mcp_tools(shop(orders), timeout=10 if article == "slow" else 60)
    performed, ledger = await do(order, article=article)
    assert (performed.failure, ledger) == ("outcome_unknown", ["unknown"])
    assert ("there are none" in performed.result.content) == (article == "unicorn")


async def test_where_it_can_be_asked_the_answer_counts(orders: Path) -> None:
    """The job knows how."""

    async def ordered(args: Mapping[str, Any], context: ToolContext) -> Found:
        lines = orders.read_text().splitlines() if orders.exists() else []
        return {"line": lines[0]} if f"{args['article']} 1" in lines else None

    _, order = mcp_tools(shop(orders), verify={"shop_order": ordered})
    performed, ledger = await do(order, article="last")
    assert (performed.failure, ledger) == (None, ["settled"])
    performed, ledger = await do(order, article="unicorn")
    assert (performed.failure, ledger) == ("tool_unavailable", ["absent"])


async def test_a_server_that_is_gone_was_not_reached(orders: Path, tmp_path: Path) -> None:
    """Nothing happened, and nobody has to look."""
    program = tmp_path / "server"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    program.chmod(0o755)
    _, order = mcp_tools(shop(orders, str(program)))
    program.unlink()
    performed, ledger = await do(order, article="tea")
    assert (performed.failure, ledger) == ("effect_refused", [])
    assert "was not called" in performed.result.content


@pytest.mark.parametrize(("program", "reads"), [("no-such-program", []), (sys.executable, ["shop_wish"])])
def test_a_server_that_cannot_be_used_is_told_in_one_sentence(orders: Path, program: str, reads: list[str]) -> None:
    """When the job is made."""
    with pytest.raises(Refused, match="the MCP server"):
        mcp_tools(shop(orders, program), reads=reads)
