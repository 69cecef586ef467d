"""Django with its own servers and a PostgreSQL: `./task guests django`."""

from __future__ import annotations

import os
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from integrations.stage import Stage, overlaps

pytestmark = pytest.mark.timeout(300)

INCREMENTS = 100 if os.environ.get("HOLDFAST_GUESTS") == "quick" else 400
GUNICORN = ("gunicorn", "djsite:application", "-b", "127.0.0.1:{port}", "-w", "2", "--log-level", "warning")


@pytest.fixture
def stage(stage_with_database: Stage) -> Stage:
    return stage_with_database


def serve(stage: Stage, *words: str) -> str:
    return stage.serve(*words, path="/value")


def storm(address: str, path: str) -> Counter[int]:
    with ThreadPoolExecutor(8) as pool, httpx.Client(timeout=60) as client:
        return Counter(pool.map(lambda _: client.get(f"{address}/{path}").status_code, range(INCREMENTS)))


def number(address: str) -> int:
    return int(httpx.get(f"{address}/value").text)


@pytest.mark.parametrize("path, safe", [("inside", False), ("marked/1", True), ("atomic", True)])
def test_lost_updates(stage: Stage, path: str, safe: bool) -> None:
    """A lock inside the request's transaction is given back before the commit: updates are lost."""
    address = serve(stage, *GUNICORN, "-w", "4")
    assert storm(address, path) == {200: INCREMENTS}
    found = number(address)
    print(f"{path}: {found} of {INCREMENTS}")
    assert (found == INCREMENTS) is safe


@pytest.mark.parametrize(
    "words",
    [
        ("gunicorn", "djsite:application", "-b", "127.0.0.1:{port}", "-w", "2", "-k", "gthread", "--threads", "4"),
        ("gunicorn", "djsite:application", "-b", "127.0.0.1:{port}", "-w", "2", "--preload"),
        ("gunicorn", "djsite:application", "-b", "127.0.0.1:{port}", "-w", "2", "-k", "gevent"),
        ("uvicorn", "djsite:asgi", "--port", "{port}", "--workers", "2"),
        ("uwsgi", "--http-socket", "127.0.0.1:{port}", "--module", "djsite:application", "--master", "--processes", "2"),
    ],
    ids=["gthread", "preload", "gevent", "uvicorn", "uwsgi"],
)
def test_servers_and_kinds_of_views(stage: Stage, words: tuple[str, ...]) -> None:
    """Sync and async views, under WSGI and under ASGI."""
    # uWSGI is a program, and closes each connection after its answer.
    program = Path(sys.executable).with_name("uwsgi")
    if words[0] == "uwsgi" and not program.exists():
        pytest.skip("pyuwsgi has no wheel for this system")
    address = stage.serve(*words, path="/value", program=str(program) if words[0] == "uwsgi" else "")
    # asyncio allows one running loop in a thread, so Django has no async views between greenlets.
    kinds = ("hold", "hold") if "gevent" in words else ("hold", "async")
    paths = [f"{kind}/{it % 3}?seconds=0.01" for it in range(30) for kind in kinds]
    limits = httpx.Limits(max_keepalive_connections=0)
    with ThreadPoolExecutor(8) as pool, httpx.Client(timeout=60, limits=limits) as client:
        statuses = Counter(pool.map(lambda it: client.get(f"{address}/{it}").status_code, paths))
    assert statuses == {200: 60}, stage.logs()[-3000:]
    assert len(stage.entries("enter")) == 60
    assert overlaps(stage.entries()) == []
