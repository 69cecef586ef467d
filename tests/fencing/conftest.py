"""Databases for all tests of fences, each started once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from fencing import databases
from fencing.databases import Database


@pytest.fixture(scope="session", params=databases.DATABASES)
def database(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    """Each database in turn."""
    with ExitStack() as stack:
        folder: Path = tmp_path_factory.mktemp("sqlite")
        opened = databases.sqlite(folder) if request.param == "sqlite" else getattr(databases, request.param)()
        yield stack.enter_context(opened)
