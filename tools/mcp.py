"""Tools of MCP servers, for a job's toolbox: any server that langchain-mcp-adapters speaks to (the extra `mcp`).

A server's word about its tools is not taken for more than that: each is an effect that nobody can check, gated, until
the job says which ones only read, or how to check one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pydantic import JsonValue

from state.errors import NotReached, Refused, Unanswered
from tools.registry import Arguments, Tool, ToolContext, ToolResult, Verify

if TYPE_CHECKING:
    from langchain_core.messages import ToolMessage
    from langchain_mcp_adapters.sessions import Connection
    from mcp.types import Tool as McpTool

LIST_SECONDS: Final = 30.0
"""How long a server may take to start and to name its tools."""


def mcp_tools(
    servers: Mapping[str, Connection],
    *,
    reads: Collection[str] = (),
    verify: Mapping[str, Verify] | None = None,
    timeout: float = 60.0,
) -> list[Tool]:
    """The tools of these servers, each named `server_tool`; to be called where a job is made.

    servers: as `MultiServerMCPClient` takes them: {"shop": {"transport": "stdio", "command": ..., "args": [...]}}.
    reads: the names of tools that change nothing; they are not gated and may be repeated.
    verify: by name, how to ask the other side whether an effect has happened.

    Raises Refused where a server does not answer, or a name stands for no tool.
    """
    found: dict[str, Tool] = {}
    for server, connection in servers.items():
        for each in _listed(server, connection):
            name = f"{server}_{each.name}"
            found[name] = _made(name, each, connection, name in reads, (verify or {}).get(name), timeout)
    if unknown := sorted({*reads, *(verify or ())} - set(found)):
        raise Refused(f"the MCP servers have no tool {', '.join(unknown)}; they have {', '.join(sorted(found))}")
    return list(found.values())


def _made(
    name: str, described: McpTool, connection: Connection, reads: bool, verify: Verify | None, timeout: float
) -> Tool:
    description = described.description or name

    async def call(*, context: ToolContext, **values: Any) -> ToolResult:
        return await _called(described, connection, context, values, reads=reads)

    return Tool(
        name=name,
        description=description,
        kind="read" if reads else "effect",
        call=call,
        arguments=JsonArguments(name, description, described.inputSchema),
        gated=not reads,
        timeout=timeout,
        verify=verify,
        idempotent=False,
        bind=None,
    )


@dataclass(frozen=True)
class JsonArguments(Arguments):
    """Arguments by the JSON schema that a server gives."""

    name: str
    description: str
    json_schema: Mapping[str, Any]

    @property
    def names(self) -> Collection[str]:
        return tuple(self.json_schema.get("properties") or ())

    @property
    def schema(self) -> dict[str, Any]:
        parameters = {"type": "object", "properties": {}, **self.json_schema}
        return {
            "type": "function",
            "function": {"name": self.name, "description": self.description, "parameters": parameters},
        }

    def validated(self, args: Mapping[str, Any]) -> Mapping[str, Any]:
        from jsonschema import Draft202012Validator

        wrong = [
            f"{'.'.join(map(str, each.absolute_path)) or 'the arguments'}: {each.message}"
            for each in Draft202012Validator(dict(self.json_schema)).iter_errors(dict(args))
        ]
        if wrong:
            raise ValueError("; ".join(wrong)[:2000])
        return args


async def _called(
    described: McpTool, connection: Connection, context: ToolContext, values: Mapping[str, Any], *, reads: bool
) -> ToolResult:
    """One session a call. Where the server can't be reached, nothing has happened."""
    from langchain_mcp_adapters.sessions import create_session
    from langchain_mcp_adapters.tools import convert_mcp_tool_to_langchain_tool

    reached = False
    try:
        async with create_session(connection) as session:
            await session.initialize()
            reached = True
            tool = convert_mcp_tool_to_langchain_tool(session, described)
            request = {"type": "tool_call", "id": context.call_id, "name": described.name, "args": dict(values)}
            message = await tool.ainvoke(request)
    except Exception as error:
        if reached:
            raise
        raise NotReached(f"the MCP server did not answer ({_why(error)}); {described.name} was not called") from None
    result = _result(message)
    if result.is_error and not reads:
        raise Unanswered(f"{described.name} answered with an error, and may have done part of it: {result.content}")
    return result


def _result(message: ToolMessage) -> ToolResult:
    structured = (message.artifact or {}).get("structured_content")
    facts: dict[str, JsonValue] = dict(structured) if isinstance(structured, Mapping) else {}
    return ToolResult(content=str(message.text), facts=facts, is_error=message.status == "error")


def _listed(server: str, connection: Connection) -> list[McpTool]:
    """Asked in a thread of its own: a job is made while its module is imported, wherever that is."""
    with ThreadPoolExecutor(1) as thread:
        asking = thread.submit(asyncio.run, asyncio.wait_for(_tools_of(connection), LIST_SECONDS))
    if (trouble := asking.exception()) is not None:
        raise Refused(f"the MCP server {server} did not name its tools: {_why(trouble)}")
    return asking.result()


async def _tools_of(connection: Connection) -> list[McpTool]:
    try:
        from langchain_mcp_adapters.sessions import create_session
    except ImportError:
        raise Refused("tools of MCP servers need the extra: pip install 'devfix[mcp]'") from None

    found: list[McpTool] = []
    async with create_session(connection) as session:
        await session.initialize()
        page = await session.list_tools()
        found += page.tools
        while page.nextCursor:
            page = await session.list_tools(page.nextCursor)
            found += page.tools
    return found


def _why(error: BaseException) -> str:
    """The first cause: sessions wrap what happened in groups."""
    while isinstance(error, BaseExceptionGroup) and error.exceptions:
        error = error.exceptions[0]
    return " ".join(str(error).split()) or type(error).__name__
