"""Settings: the environment (`DEVFIX_*`), then `DEVFIX_HOME/settings.toml`; never the current folder."""

from __future__ import annotations

import os
from pathlib import Path

from pydantic import Field
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)


def home() -> Path:
    """DevFix's own folder: `DEVFIX_HOME`, else the user's data folder. Not created here."""
    if configured := os.environ.get("DEVFIX_HOME"):
        return Path(configured).absolute()
    data = os.environ.get("XDG_DATA_HOME")
    return (Path(data) if data else Path.home() / ".local" / "share") / "devfix"


class Settings(BaseSettings):
    """One process's settings, read once at the composition root and handed down."""

    model_config = SettingsConfigDict(env_prefix="DEVFIX_", extra="forbid")

    home: Path = Field(default_factory=home)
    """Database, workspaces and logs live below it."""
    database_url: str | None = None
    """A PostgreSQL of the user's own; without it an embedded one is started in `home`."""
    database_direct_url: str | None = None
    """The same database past a pooler: advisory locks and LISTEN need a session of their own."""
    database_schema: str = Field(default="devfix", pattern=r"^[a-z_][a-z0-9_]{0,62}$")
    database_pool_size: int = Field(default=8, ge=2)
    artifacts_url: str | None = None
    """An fsspec location for artifacts; without it they are kept in PostgreSQL."""
    job: str = "repair"
    model: str | None = None
    """`search-repair`, `scripted:FILE`, `recorded:RUN` or `openai:NAME`; without it the job's own default."""
    heartbeat_seconds: float = Field(default=2.0, gt=0)
    lease_seconds: float = Field(default=10.0, gt=0)
    """A holder whose heartbeat is older than this is taken for frozen, and overtaken."""
    budget_usd: float | None = Field(default=None, ge=0)
    step_limit: int = Field(default=500, gt=0)
    deadline_seconds: float = Field(default=3600.0, gt=0)
    """Active wall time of a run: time spent waiting for a person does not count."""
    test_timeout_seconds: float = Field(default=300.0, gt=0)
    """One run of the test command."""
    approval_ttl_seconds: float = Field(default=7 * 24 * 3600.0, gt=0)
    workspace_limit_mb: int = Field(default=1024, gt=0)
    """A workspace that grows beyond this stops the tool that let it grow."""

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return init_settings, env_settings, TomlConfigSettingsSource(settings_cls, home() / "settings.toml")
