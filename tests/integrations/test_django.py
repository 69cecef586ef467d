"""Django with its own servers and a PostgreSQL: `./task guests django`."""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from integrations.djmanage import other
from integrations.stage import PROGRAMS, Stage, overlaps

pytestmark = pytest.mark.timeout(300)

TTL = 2.0
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


def test_a_lost_lock_rolls_the_transaction_back(stage: Stage) -> None:
    address = serve(stage, *GUNICORN)
    answer = httpx.get(f"{address}/lost/1", timeout=30)
    assert (answer.status_code, answer.json()["type"]) == (503, "about:holdfast/lost")
    assert number(address) == 0


def test_statuses(stage: Stage) -> None:
    stage.environment["WRONG"] = "1"
    address = serve(stage, *GUNICORN)
    with other(stage) as locks, locks.lock("counter:1", wait=5):
        answer = httpx.get(f"{address}/busy/1")
        assert answer.status_code == 409
        assert 1 <= int(answer.headers["retry-after"]) <= TTL
        assert answer.headers["content-type"] == "application/problem+json"
    assert httpx.get(f"{address}/busy/1").status_code == 200
    inner = httpx.get(f"{address}/raises")
    assert (inner.status_code, inner.headers["retry-after"]) == (409, "7")
    assert httpx.get(f"{address}/wrong/1").status_code == 500
    assert "cannot be filled from the URL, which captures pk" in stage.logs()


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


def test_the_reloader_leaves_no_lock_behind(stage: Stage) -> None:
    """`runserver` ends the process that holds the lock as Python ends, which closes the client."""
    program = stage.folder / "djsite.py"
    program.write_text((PROGRAMS / "djsite.py").read_text())
    # By itself, the lease would last for 40 seconds or more.
    stage.environment |= {"TTL": "60", "MAX_TTL": "60"}
    address = serve(stage, "djsite", "runserver", "127.0.0.1:{port}")
    with ThreadPoolExecutor(1) as pool:
        held = pool.submit(httpx.get, f"{address}/hold/1?seconds=100", timeout=120)
        stage.until(lambda: stage.entries("enter"), "the first request holds the lock")
        os.utime(program, (time.time() + 5, time.time() + 5))
        touched = time.monotonic()
        assert isinstance(held.exception(), httpx.TransportError)
        stage.until(lambda: _status(f"{address}/hold/1?seconds=0") == 200, "the next program holds it", 40)
    first, second = stage.entries("enter")
    assert first.pid != second.pid
    assert second.at - touched < 40


def _status(url: str) -> int:
    try:
        return httpx.get(url, timeout=60).status_code
    except httpx.TransportError:
        return 0


def test_without_the_middleware_a_locked_view_does_not_run(stage: Stage) -> None:
    stage.environment["WITHOUT_MIDDLEWARE"] = "1"
    address = serve(stage, *GUNICORN)
    assert httpx.get(f"{address}/marked/1").status_code == 500
    assert number(address) == 0
    assert "a locked view needs" in stage.logs()
