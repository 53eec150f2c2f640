"""The whole application on a database of the test's own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from scripts.bootstrap import Application
from tests.helpers.app import Driver, application_on


@pytest.fixture
async def application(database_url: str, tmp_path: Path) -> AsyncIterator[Application]:
    application = application_on(database_url, tmp_path)
    yield application
    await application.services.close()


@pytest.fixture
async def driver(application: Application, tmp_path: Path) -> Driver:
    return Driver(application, tmp_path)
