"""What is known of a model that a server answers for. Those that work offline have none of it."""

from __future__ import annotations

from typing import Protocol, runtime_checkable


@runtime_checkable
class Served(Protocol):
    """A chat model on some server."""

    @property
    def place(self) -> str:
        """The model and where it is, for who shares it with others."""

    @property
    def window(self) -> int:
        """How many tokens of conversation and tools the model takes, with room left for its answer."""

    async def aclose(self) -> None:
        """Close the connections, in the event loop that opened them."""
