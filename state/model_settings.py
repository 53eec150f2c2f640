"""The settings of the models: which ones a run asks, in what order, where they are, and how long trouble is borne.

What is set for all of them begins with `model_`; a table of `models` says what is different for one of them. Secrets
are given by the name of an environment variable, as in `state.outward`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationInfo,
    field_validator,
    model_validator,
)

from state.outward import HttpUrl, Variable, without_credentials
from state.variables import FROM_JSON, LISTED

OPENAI: Final = "openai:"
"""How the names of those models begin that are reached at an endpoint."""
CONTEXT_TOKENS: Final = 120_000
"""The window of most hosted models, a little less than 128 K; a longer conversation is made to fit."""
_PROXIES: Final = ("http://", "https://", "socks5://", "socks5h://")


def _proxy(url: str) -> str:
    if not url.startswith(_PROXIES):
        raise ValueError(f"it begins with none of {', '.join(_PROXIES)}")
    if "@" in url:
        raise ValueError("it holds a user or password; name an environment variable that holds the URL instead")
    return without_credentials(url)


def _full(path: Path) -> Path:
    """Not one of the current folder, which differs from process to process."""
    if not (full := path.expanduser()).is_absolute():
        raise ValueError("it is not a full path")
    return full


FullPath = Annotated[Path, AfterValidator(_full)]
Headers = Annotated[dict[str, str], FROM_JSON]
HeaderVariables = Annotated[dict[str, Variable], FROM_JSON]
ProxyUrl = Annotated[str, AfterValidator(_proxy)]


class EndpointSettings(BaseModel):
    """Where one model is reached, and how."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str | None = None
    """What its server calls it; without it, what stands behind `openai:`."""
    base_url: HttpUrl | None = None
    """Without it, OPENAI_BASE_URL, or OpenAI's own."""
    key_env: Variable | None = None
    """The variable that holds the key."""
    headers: Headers = {}
    headers_env: HeaderVariables = {}
    """Headers whose values are secrets: each with the variable that holds it."""
    ca_bundle: FullPath | None = None
    """The certificates that are trusted, in a PEM file, instead of the system's."""
    proxy: ProxyUrl | None = None
    proxy_env: Variable | None = None
    """Instead of `proxy`, for a URL with a password in it."""
    api_version: str | None = None
    """Azure's; `base_url` is then the resource, and the name that of the deployment."""
    max_tokens: int | None = Field(default=None, gt=0)
    """How long an answer may be. One that is just so long was cut."""
    context_tokens: int = Field(default=CONTEXT_TOKENS, ge=2048)
    """The model's window: question, tools and answer together."""
    stream_usage: bool = True
    """False for a server that refuses to be asked for its count of tokens; they are estimated then."""
    stream: bool = True
    """False for a gateway that gives whole answers only."""

    @model_validator(mode="after")
    def _azure(self) -> EndpointSettings:
        if self.api_version and not self.base_url:
            raise ValueError("api_version (Azure) needs base_url, the resource's address, too")
        return self


_SHARED: Final = ("ca_bundle", "proxy", "proxy_env", "max_tokens", "context_tokens", "stream", "stream_usage")
"""What a model keeps of the settings for all when it has an address of its own: no key and no header goes to a server
that it was not set for."""


class ModelSettings(BaseModel):
    """What is set up of the models."""

    model: str | None = None
    """`search-repair`, `scripted:FILE`, `recorded:RUN` or `openai:NAME`; without it the job's own default."""
    fallback_models: Annotated[list[str], LISTED] = []
    """Who is asked, in this order, where that model does not answer; separated by commas in the environment."""
    models: Annotated[dict[str, EndpointSettings], FROM_JSON] = {}
    """What is different for one model, by its name."""

    model_base_url: HttpUrl | None = None
    model_key_env: Variable | None = None
    model_headers: Headers = {}
    model_headers_env: HeaderVariables = {}
    model_ca_bundle: FullPath | None = None
    model_proxy: ProxyUrl | None = None
    model_proxy_env: Variable | None = None
    model_api_version: str | None = None
    model_max_tokens: int | None = Field(default=None, gt=0)
    model_context_tokens: int = Field(default=CONTEXT_TOKENS, ge=2048)
    model_stream_usage: bool = True
    model_stream: bool = True

    model_call_seconds: float = Field(default=600.0, gt=0)
    """One call in all, from the request to the end of the answer, however it trickles."""
    model_silence_seconds: float = Field(default=120.0, gt=0)
    """How long a server may send nothing."""
    model_retry_seconds: float = Field(default=90.0, ge=0)
    """How long trouble is borne in one turn, all models together: after that, nothing is tried a second time."""
    model_pause_seconds: float = Field(default=2.0, ge=0)
    """Before the first retry; each further one waits twice as long."""

    @field_validator("models")
    @classmethod
    def _of_endpoints(cls, given: dict[str, EndpointSettings]) -> dict[str, EndpointSettings]:
        for name in given:
            if not name.startswith(OPENAI) or name == OPENAI:
                raise ValueError(f"{name!r} is not the name of a model at an endpoint (openai:NAME)")
        return given

    @property
    def served(self) -> dict[str, str]:
        """What their servers call the models that are called otherwise here."""
        return {name: each.name for name, each in self.models.items() if each.name}

    @field_validator("model_api_version")
    @classmethod
    def _of_a_resource(cls, given: str | None, others: ValidationInfo) -> str | None:
        if given and not others.data.get("model_base_url"):
            raise ValueError("it (Azure's) needs model_base_url, the resource's address, too")
        return given

    def endpoint(self, name: str) -> EndpointSettings:
        """Where the model of this name is reached: its own settings over those for all."""
        common = {field: getattr(self, f"model_{field}") for field in EndpointSettings.model_fields if field != "name"}
        own = self.models.get(name) or EndpointSettings()
        given = own.model_dump(exclude_unset=True)
        if own.base_url is not None:
            common = {field: value for field, value in common.items() if field in _SHARED}
        return EndpointSettings.model_validate(_over(common, given))


def _over(common: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """A proxy of a model's own takes the place of the common one, whichever way the two are given."""
    dropped = ("proxy", "proxy_env") if {"proxy", "proxy_env"} & own.keys() else ()
    return {**{field: value for field, value in common.items() if field not in dropped}, **own}
