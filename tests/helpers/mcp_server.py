"""A shop as an MCP server over stdio: `python mcp_server.py FILE` keeps what was ordered in the file."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from mcp.server.fastmcp import FastMCP

ORDERS = Path(sys.argv[1])
server = FastMCP("shop")


@server.tool()
def stock(article: str) -> dict[str, object]:
    """How many of an article there are."""
    return {"article": article, "left": 3}


@server.tool()
def order(article: str, number: int = 1) -> str:
    """Order an article."""
    if article == "unicorn":
        raise ValueError("there are none")
    with ORDERS.open("a") as orders:
        orders.write(f"{article} {number}\n")
    if article == "last":
        os._exit(1)  # what it did is done; the answer never comes
    if article == "slow":
        time.sleep(60)
    return f"ordered {number} {article}"


if __name__ == "__main__":
    server.run()
