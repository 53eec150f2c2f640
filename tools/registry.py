"""What a tool is, and the set of tools that a job offers.

A user adds a tool by writing one function::

    @tool(kind="read")
    async def count_lines(path: str, *, context: ToolContext) -> str:
        '''Count the lines of a file.'''
        return str(context.workspace.read(path).count(b"\\n"))

The schema that the model sees comes from the signature and the docstring.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, Protocol, cast, get_args

from langchain_core.tools.base import create_schema_from_function
from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic import BaseModel, ConfigDict, JsonValue, ValidationError

if TYPE_CHECKING:
    from state.artifacts import Artifacts
    from state.settings import Settings
    from state.snapshots import Snapshots
    from tools.sandbox import Sandbox
    from tools.warm import Warm
    from tools.workspace import Workspace

ToolKind = Literal["read", "workspace", "effect"]
"""read: may be retried freely, leaves nothing behind. workspace: changes the attempt's copy, undone by a
snapshot. effect: changes the world outside, once, through the ledger."""

Found = Mapping[str, JsonValue] | None
"""What `verify` answers: the receipt of an effect that happened, or None when it certainly did not."""


class ToolResult(BaseModel):
    """What came of one call."""

    model_config = ConfigDict(frozen=True)

    content: str
    """What the model reads."""
    facts: dict[str, JsonValue] = {}
    """What the job and the person read; never sent to the model."""
    is_error: bool = False


@dataclass(frozen=True, kw_only=True)
class ToolContext:
    """What a tool may use; made afresh for each call."""

    run_id: str
    call_id: str
    key: str
    """The idempotency key: the same for each try of this call, in whatever process."""
    bound: Mapping[str, JsonValue] = field(default_factory=dict)
    """What `bind` fixed for this call when the person was asked."""
    again: bool = False
    """A person said that the effect shall happen once more, although an equal one has happened."""
    work: Mapping[str, Any]
    """The job's part of the state, read-only."""
    snapshot: str | None = None
    """The workspace's content when the call was asked for."""
    workspace: Workspace
    sandbox: Sandbox
    artifacts: Artifacts
    snapshots: Snapshots
    settings: Settings
    warm: Warm | None = None
    """What tools keep running between two calls of one attempt, only to be faster; whoever makes the context closes
    it when the attempt ends. Without it, each call starts its own."""


ToolFunction = Callable[..., Awaitable[ToolResult | str]]
Verify = Callable[[Mapping[str, Any], ToolContext], Awaitable[Found]]
Bind = Callable[[Mapping[str, Any], ToolContext], Awaitable[Mapping[str, JsonValue]]]


class Arguments(Protocol):
    """What a tool takes."""

    @property
    def names(self) -> Collection[str]: ...

    @property
    def schema(self) -> dict[str, Any]:
        """The tool in the form that chat models take."""

    def validated(self, args: Mapping[str, Any]) -> Mapping[str, Any]:
        """The arguments that were given, in the tool's own types. Raises ValueError, in words for the model."""


@dataclass(frozen=True)
class Signature(Arguments):
    """Arguments by a function's signature."""

    model: type[BaseModel]

    @property
    def names(self) -> Collection[str]:
        return tuple(self.model.model_fields)

    @property
    def schema(self) -> dict[str, Any]:
        return deepcopy(_schema_of(self.model))

    def validated(self, args: Mapping[str, Any]) -> Mapping[str, Any]:
        try:
            given = self.model.model_validate(dict(args))
        except ValidationError as error:
            told = (f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors())
            raise ValueError("; ".join(told)) from None
        return {name: getattr(given, name) for name in given.model_fields_set}


@cache
def _schema_of(model: type[BaseModel]) -> dict[str, Any]:
    """It takes a millisecond to make, and is asked for several times a turn."""
    return convert_to_openai_tool(model)


@dataclass(frozen=True, kw_only=True)
class Tool:
    """One thing that the agent may do."""

    name: str
    description: str
    kind: ToolKind
    call: ToolFunction
    arguments: Arguments
    gated: bool
    """A person is asked before each call."""
    timeout: float
    """Seconds; the whole call, sandbox included."""
    verify: Verify | None
    """Asks the other side whether the effect of this key has happened."""
    idempotent: bool
    """The other side itself refuses a second use of the key, so performing again is safe."""
    bind: Bind | None
    """Facts that DevFix fixes when the question is asked (what exactly will be applied), so that the person
    approves just what will be done. They join the arguments and their digest."""

    @property
    def schema(self) -> dict[str, Any]:
        """The tool in the form that chat models take."""
        return self.arguments.schema


def tool(
    *,
    kind: ToolKind,
    gated: bool | None = None,
    timeout: float = 60.0,
    verify: Verify | None = None,
    bind: Bind | None = None,
    uncheckable: bool = False,
    idempotent: bool = False,
) -> Callable[[ToolFunction], Tool]:
    """Make a tool of an async function whose last, keyword-only parameter is `context: ToolContext`.

    Raises:
        TypeError: there is no such kind, the function takes no `context`, or an effect can neither be verified nor says
            so.
    """

    def decorate(function: ToolFunction) -> Tool:
        name = function.__name__
        if "context" not in inspect.signature(function).parameters:
            raise TypeError(f"the tool {name} must take a keyword-only parameter `context: ToolContext`")
        if kind not in get_args(ToolKind):
            raise TypeError(f"the tool {name} is of kind {kind!r}; the kinds are {', '.join(get_args(ToolKind))}")
        if kind == "effect" and verify is None and not uncheckable:
            raise TypeError(f"the effect {name} needs `verify`, or must declare itself `uncheckable=True`")
        schema = create_schema_from_function(name, function, filter_args=["context"], parse_docstring=False)
        return Tool(
            name=name,
            description=inspect.getdoc(function) or name,
            kind=kind,
            call=function,
            arguments=Signature(cast("type[BaseModel]", schema)),
            gated=(kind == "effect") if gated is None else gated,
            timeout=timeout,
            verify=verify,
            idempotent=idempotent,
            bind=bind,
        )

    return decorate


@dataclass(frozen=True)
class Toolbox:
    """The tools that a job offers, by name."""

    tools: Mapping[str, Tool] = field(default_factory=dict)

    @classmethod
    def of(cls, tools: Sequence[Tool]) -> Toolbox:
        """Raises ValueError where two tools share a name."""
        by_name = {each.name: each for each in tools}
        if len(by_name) != len(tools):
            raise ValueError("two tools share a name")
        return cls(by_name)

    def get(self, name: str) -> Tool | None:
        return self.tools.get(name)

    @property
    def schemas(self) -> list[dict[str, Any]]:
        """The tools in the form that chat models take."""
        return [each.schema for each in self]

    def __iter__(self) -> Iterator[Tool]:
        return iter(self.tools.values())
