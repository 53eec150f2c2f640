"""From a model's name to the model: `search-repair`, `scripted:FILE`, `recorded:RUN`, `openai:NAME`."""

from __future__ import annotations

import os
from pathlib import Path

from langchain_core.language_models import BaseChatModel

from graph.models.recorded import recorded
from graph.models.scripted import ScriptedModel
from graph.models.secrets import Secrets
from graph.models.served import Served
from state.errors import Refused, SecretMissing
from state.model_settings import EndpointSettings, ModelSettings
from state.runs import Runs
from state.trace import Trace

_KEY = "OPENAI_API_KEY"


class ModelLoader:
    """Finds models by name, and keeps those that it has made."""

    def __init__(self, *, runs: Runs, trace: Trace, settings: ModelSettings) -> None:
        self._runs = runs
        self._trace = trace
        self._settings = settings
        self._made: dict[str, BaseChatModel] = {}

    async def get(self, name: str) -> BaseChatModel:
        """Raises Refused for a name that stands for nothing, or whose settings are missing; SecretMissing for a key."""
        if name not in self._made:
            self._made[name] = await self._make(name)
        return self._made[name]

    async def close(self) -> None:
        """Close what the models hold open, in the event loop that they were used in."""
        for model in self._made.values():
            if isinstance(model, Served):
                await model.aclose()
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
                return _openai(name, self._settings)
        raise Refused(
            f"there is no model {name!r}; there are search-repair, scripted:FILE, recorded:RUN and openai:NAME"
        )


def _search_repair() -> BaseChatModel:
    from graph.models.search_repair import SearchRepairModel

    return SearchRepairModel()


def _openai(name: str, settings: ModelSettings) -> BaseChatModel:
    told, own = settings.endpoint(name), settings.models.get(name)
    secrets = _secrets(name, told, elsewhere=own is not None and own.base_url is not None)
    from graph.models.endpoint import endpoint

    return endpoint(name, told, secrets, silence_seconds=settings.model_silence_seconds)


def _secrets(name: str, told: EndpointSettings, *, elsewhere: bool) -> Secrets:
    """What the settings name. A server that they point to may do without a key; one that has an address of its own,
    `elsewhere`, gets no key that was not set for it."""
    if told.key_env is not None or told.base_url is None:
        key: str | None = _value(told.key_env or _KEY, name)
    else:
        key = None if elsewhere else os.environ.get(_KEY)
    headers = {header: _value(variable, name) for header, variable in told.headers_env.items()}
    proxy = _value(told.proxy_env, name) if told.proxy_env else None
    return Secrets(key, headers, proxy or (None if told.proxy else os.environ.get("OPENAI_PROXY")))


def _value(variable: str, name: str) -> str:
    if value := os.environ.get(variable):
        return value
    if variable != _KEY:
        raise SecretMissing(f"the model {name} needs {variable}, which its settings name: set it")
    raise SecretMissing(
        f"the model {name} needs a key: set {_KEY} (and OPENAI_BASE_URL for another endpoint), "
        "or use search-repair, which needs none"
    )
