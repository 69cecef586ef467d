"""Which tests of frameworks can run: those whose framework is installed.

Tests with processes of a framework take long, so that they run under `./task guests` only.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from integrations.stage import Stage, staged

from holdfast.embedded import Nodes

NEEDS = {
    "test_apscheduler.py": "apscheduler",
    "test_asgi.py": "httpx",
    "test_celery.py": "celery",
    "test_celery_beat.py": "celery",
    "test_django.py": "django",
    "test_django_atomic.py": "django",
    "test_dramatiq.py": "dramatiq",
    "test_fastapi.py": "fastapi",
    "test_fastapi_processes.py": "fastapi",
    "test_flask.py": "flask",
    "test_idempotency.py": "httpx",
    "test_pytest.py": "xdist",
}
LONG = {
    "test_apscheduler.py",
    "test_celery.py",
    "test_django.py",
    "test_dramatiq.py",
    "test_fastapi_processes.py",
    "test_flask.py",
    "test_pytest.py",
}

collect_ignore = [it for it, framework in NEEDS.items() if find_spec(framework) is None]
if not os.environ.get("HOLDFAST_GUESTS"):
    collect_ignore += sorted(LONG)


@pytest.fixture(scope="module")
def broker() -> Iterator[str]:
    """The address of a server for messages, which has no locks."""
    with Nodes(1, tcp=True) as servers:
        yield servers.urls[0]


@pytest.fixture
def stage_with_broker(nodes: Nodes, broker: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Stage]:
    """Nodes for locks, and a database of the broker's for each test."""
    number = 1 + [it.name for it in request.session.items].index(request.node.name) % 15
    environment = {
        "HOLDFAST_NODES": ",".join(nodes.urls),
        "HOLDFAST_FRESH": ",".join(nodes.run_ids),
        "HOLDFAST_PREFIX": f"{tmp_path.name}:",
        "BROKER": f"{broker}/{number}",
    }
    with staged(tmp_path, environment) as stage:
        yield stage
