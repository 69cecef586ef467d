"""Which tests of frameworks can run: those whose framework is installed.

Tests with processes of a framework take long, so that they run under `./task guests` only.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from integrations.modules import LONG, NEEDS
from integrations.stage import Stage, staged

from holdfast.embedded import Nodes

collect_ignore = [it for it, framework in NEEDS.items() if find_spec(framework) is None]
if not os.environ.get("HOLDFAST_GUESTS"):
    collect_ignore += sorted(LONG)


@pytest.fixture(scope="module")
def broker() -> Iterator[str]:
    """The address of a server for messages, which has no locks."""
    with Nodes(1, tcp=True) as servers:
        yield servers.urls[0]


@pytest.fixture(scope="module")
def database(nodes: Nodes, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A PostgreSQL with the tables of a Django project, and a counter."""
    from fencing.databases import postgresql
    from integrations.djmanage import environment, manage

    with postgresql() as found:
        found.run("CREATE TABLE counter (value integer)", "INSERT INTO counter VALUES (0)")
        with staged(tmp_path_factory.mktemp("migrated"), environment(nodes, found)) as stage:
            assert manage(stage, "migrate", "-v0").returncode == 0
        yield found


@pytest.fixture
def stage_with_database(nodes: Nodes, database: Any, tmp_path: Path) -> Iterator[Stage]:
    """Nodes for locks, and the database, whose counter is 0."""
    from integrations.djmanage import environment

    database.run("UPDATE counter SET value = 0")
    with staged(tmp_path, {**environment(nodes, database), "LOCK_PREFIX": f"{tmp_path.name}:"}) as stage:
        yield stage


@pytest.fixture
def stage_with_broker(nodes: Nodes, broker: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Stage]:
    """Nodes for locks, and a database of the broker's for each test."""
    number = 1 + [it.name for it in request.session.items].index(request.node.name) % 15
    environment = {
        "HOLDFAST_NODES": ",".join(nodes.urls),
        "HOLDFAST_PREFIX": f"{tmp_path.name}:",
        "BROKER": f"{broker}/{number}",
    }
    with staged(tmp_path, environment) as stage:
        yield stage


@pytest.fixture
def queue(stage_with_broker: Stage) -> Iterator[Any]:
    """The task queue whose framework is installed: an environment has one of them."""
    from integrations.tasks import Queue, imported

    with imported("proj" if find_spec("celery") else "actors", stage_with_broker) as program:
        queue = Queue(stage_with_broker, program)
        yield queue
        queue.close()
