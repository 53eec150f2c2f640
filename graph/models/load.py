"""From a model's name to the model: `search-repair`, `scripted:FILE`, `recorded:RUN`, `openai:NAME`."""

from __future__ import annotations

import os
from pathlib import Path

from langchain_core.language_models import BaseChatModel

from graph.models.recorded import recorded
from graph.models.scripted import ScriptedModel
from state.errors import Refused
from state.runs import Runs
from state.trace import Trace


class ModelLoader:
    """Finds models by name, and keeps those that it has made."""

    def __init__(self, *, runs: Runs, trace: Trace, retries: int = 4) -> None:
        """`retries`: how often one call of an endpoint is tried again, with growing pauses or as its server asks,
        before the failure table hears of it."""
        self._runs = runs
        self._trace = trace
        self._retries = retries
        self._made: dict[str, BaseChatModel] = {}

    async def get(self, name: str) -> BaseChatModel:
        """Raises Refused for a name that stands for nothing, or whose settings are missing."""
        if name not in self._made:
            self._made[name] = await self._make(name)
        return self._made[name]

    async def close(self) -> None:
        """Close what the models hold open, in the event loop that they were used in."""
        for model in self._made.values():
            if (close := getattr(model, "aclose", None)) is not None:
                await close()
        self._made.clear()

    async def _make(self, name: str) -> BaseChatModel:
        kind, _, rest = name.partition(":")
        match kind, rest:
            case "search-repair", "":
                return _search_repair()
            case "scripted", path if path:
                return ScriptedModel.load(Path(path))
            case "recorded", prefix if prefix:
                return await recorded(await self._runs.find(prefix), runs=self._runs, trace=self._trace)
            case "openai", model if model:
                return _openai(model, self._retries)
        raise Refused(
            f"there is no model {name!r}; there are search-repair, scripted:FILE, recorded:RUN and openai:NAME"
        )


def _search_repair() -> BaseChatModel:
    from graph.models.search_repair import SearchRepairModel

    return SearchRepairModel()


def _openai(model: str, retries: int) -> BaseChatModel:
    """Any OpenAI-compatible endpoint; langchain-openai reads OPENAI_API_KEY and OPENAI_BASE_URL itself."""
    if not os.environ.get("OPENAI_API_KEY"):
        raise Refused(
            f"the model openai:{model} needs a key: set OPENAI_API_KEY (and OPENAI_BASE_URL for another endpoint), "
            "or use search-repair, which needs none"
        )
    from graph.models.endpoint import endpoint

    return endpoint(model, retries=retries)
