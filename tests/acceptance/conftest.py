"""One database and one home for all of a module's commands."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import psycopg
import pytest

from tests.conftest import database_named
from tests.helpers.cli import Cli

_NUMBERS = count(1)


@pytest.fixture(scope="module")
def cli(server_url: str, template: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cli]:
    """`devfix` on a home and a database that the module's tests share."""
    name = f"cli_{next(_NUMBERS)}"
    folder: Path = tmp_path_factory.mktemp("cli")
    with psycopg.connect(server_url, autocommit=True) as connection:
        connection.execute(f"create database {name} template {template}")
        yield Cli(folder, database_named(server_url, name))
        connection.execute(f"drop database {name} with (force)")
