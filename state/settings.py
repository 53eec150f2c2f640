"""Settings: the environment (`DEVFIX_*`), then `DEVFIX_HOME/settings.toml`; never the current folder."""

from __future__ import annotations

import json
import os
import tomllib
from pathlib import Path
from typing import Any, Final, NamedTuple

from pydantic import ConfigDict, Field, ValidationError, field_validator

from state.errors import Refused
from state.model_settings import ModelSettings
from state.outward import OutwardSettings

LONGEST_SECONDS: Final = 1e9
"""Thirty years: a time that is longer fits no date, and no limit of a process."""


def home() -> Path:
    """DevFix's own folder: `DEVFIX_HOME`, else the user's data folder. Not created here."""
    if configured := os.environ.get("DEVFIX_HOME"):
        return Path(configured).absolute()
    if data := os.environ.get("XDG_DATA_HOME"):
        return Path(data) / "devfix"
    try:
        return Path.home() / ".local" / "share" / "devfix"
    except RuntimeError:
        raise Refused("this user has no home folder; name a folder for DevFix in DEVFIX_HOME") from None


def make_home(folder: Path) -> None:
    """DevFix's own folder, where it is not there yet; for its user alone, since copies of repositories lie in it."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)


def settings_file() -> Path:
    return home() / "settings.toml"


class Settings(ModelSettings, OutwardSettings):
    """One process's settings, read once at the composition root and handed down."""

    model_config = ConfigDict(extra="forbid")

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
    """What runs are started as: a job's name, or `module:job` for one of the user's own."""
    heartbeat_seconds: float = Field(default=1.0, gt=0)
    """How often a holder says that it lives, and learns that a person cancelled its run."""
    lease_seconds: float = Field(default=10.0, gt=0, le=24 * 3600.0)
    """A holder whose heartbeat is older than this is taken for frozen, and overtaken."""
    max_crashes: int = Field(default=5, gt=0)
    """A run with which so many processes died in a row, none of them having saved a step, is given up."""
    budget_usd: float | None = Field(default=None, ge=0)
    prices: Path | None = None
    """A TOML file of what models cost, over the table that ships (`graph/models/prices.toml`)."""
    step_limit: int = Field(default=500, gt=0)
    deadline_seconds: float = Field(default=3600.0, gt=0)
    """Active wall time of a run: time spent waiting for a person does not count."""
    test_timeout_seconds: float = Field(default=300.0, gt=0, le=LONGEST_SECONDS)
    """One run of the test command."""
    tool_retries: int = Field(default=3, ge=0, le=8)
    """How often a tool's call is made again after trouble that may pass, as a refused connection."""
    approval_ttl_seconds: float = Field(default=7 * 24 * 3600.0, gt=0, le=LONGEST_SECONDS)
    workspace_limit_mb: int = Field(default=1024, gt=0)
    """A workspace that grows beyond this stops the tool that let it grow."""

    @field_validator("home")
    @classmethod
    def _absolute(cls, given: Path) -> Path:
        return given.absolute()


_OWN: Final = frozenset({"ORIGINAL", "PREFIX", "RUNNER", "SANDBOX", "SELFTEST", "WORKSPACE"})
"""Variables that DevFix gives its own processes."""


def unknown_variables(settings: Settings) -> list[str]:
    """Variables that look like settings and are none: mistyped, most likely. One that a setting names is known."""
    named = json.dumps(settings.model_dump(mode="json"))
    known = {name.upper() for name in Settings.model_fields} | _OWN
    given = sorted(name for name in os.environ if name.startswith("DEVFIX_"))
    return [name for name in given if name.removeprefix("DEVFIX_") not in known and f'"{name}"' not in named]


class Usable(NamedTuple):
    """What can be used of the settings, and a sentence about each that can't."""

    settings: Settings
    complaints: list[str]


def read_settings() -> Settings:
    """The process's settings. Raises Refused, saying which one does not fit and where it was set."""
    settings, complaints = usable_settings()
    if complaints:
        raise Refused(complaints[0])
    return settings


def usable_settings() -> Usable:
    """The settings that fit, for what must work whatever the others are. No value is told: it may be a secret."""
    path, complaints = settings_file(), []
    in_file: dict[str, Any] = {}
    try:
        in_file = tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        pass
    except OSError as error:
        complaints.append(f"the settings in {path} can't be read: {error.strerror}")
    except ValueError as error:
        complaints.append(f"the settings in {path} can't be read: {error}")
    # An empty variable counts as none: DEVFIX_HOME= would otherwise be the current folder.
    in_environment = {
        name: value for name in Settings.model_fields if (value := os.environ.get(f"DEVFIX_{name.upper()}"))
    }
    values = {**in_file, **in_environment}
    try:
        settings = Settings(**values)
        if settings.heartbeat_seconds < settings.lease_seconds:
            return Usable(settings, complaints)
        complaints.append(
            f"heartbeat_seconds ({settings.heartbeat_seconds:g}) must be less than lease_seconds "
            f"({settings.lease_seconds:g}), or every process would be taken for frozen between two beats"
        )
        for name in ("heartbeat_seconds", "lease_seconds"):
            values.pop(name, None)
        return Usable(Settings(**values), complaints)
    except ValidationError as error:
        wrong = {str(each["loc"][0]): each for each in error.errors()}
    for name, each in wrong.items():
        field = ".".join(map(str, each["loc"]))
        where = f"DEVFIX_{name.upper()}" if name in in_environment else f"{field} in {path}"
        why = (
            "does not exist"
            if each["type"] == "extra_forbidden"
            else f"is not valid: {each['msg'].removeprefix('Value error, ')}"
        )
        complaints.append(f"the setting {where} {why}")
    return Usable(Settings(**{name: value for name, value in values.items() if name not in wrong}), complaints)
