"""FastAPI under its own servers, with kills and frozen nodes: `./task guests fastapi`."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from integrations.stage import Stage, staged

from holdfast import Holdfast
from holdfast.embedded import Nodes

pytestmark = pytest.mark.timeout(300)

TTL = 2.0


@pytest.fixture
def five() -> Iterator[Nodes]:
    with Nodes(5) as nodes:
        yield nodes


@pytest.fixture
def stage(five: Nodes, tmp_path: Path) -> Iterator[Stage]:
    with staged(tmp_path, five.environment) as stage:
        yield stage


def serve(stage: Stage, *words: str) -> str:
    return stage.serve(*words, path="/alive/")


def uvicorn(stage: Stage) -> str:
    return serve(stage, "uvicorn", "shop:app", "--port", "{port}", "--log-level", "warning")


@pytest.mark.parametrize("kind", ["async", "plain"])
def test_a_stream_whose_client_has_gone_gives_its_lock_back(stage: Stage, five: Nodes, kind: str) -> None:
    """An async generator is closed at once. A plain one is left to Python, so its lock needs `max_hold`."""
    address = uvicorn(stage)
    with Holdfast(*five.urls, ttl=2, max_ttl=4) as locks:
        # On a busy machine, connecting takes long, and operators' calls do not wait for it.
        locks.ready(30)
        with httpx.stream("GET", f"{address}/left/{kind}", timeout=30) as answer:
            # The connection is closed as soon as nobody has the iterator.
            chunks = answer.iter_raw()
            next(chunks)
            # A majority has granted it. Another one may not have heard of it yet.
            stage.until(lambda: locks.is_locked("left"), "it is locked")
        if (kind, os.environ["HOLDFAST_GUESTS"]) == ("async", "oldest"):
            # This uvicorn tells nobody that the client has gone.
            time.sleep(TTL + 1)
            assert locks.is_locked("left")
            return
        began = time.monotonic()
        locks.lock("left", wait=20).acquire().release()
        assert time.monotonic() - began < 2 + TTL + 1


def test_the_recipe_for_a_process_that_serves_alone(stage: Stage, five: Nodes) -> None:
    """The one of the page: one process is ready. If it loses its lock, it stops, and the other one is ready."""
    page = (Path(__file__).parents[2] / "docs/fastapi.md").read_text()
    program = next(it for it in page.split("```python\n")[1:] if "async def alone" in it).partition("```")[0]
    (stage.folder / "alone.py").write_text(f"{program}\n\n@service.get('/alive/')\ndef alive() -> None: ...\n")
    words = ("uvicorn", "alone:service", "--port", "{port}", "--log-level", "warning")
    addresses = [serve(stage, *words) for _ in range(2)]

    def ready() -> list[str]:
        return [it for it, process in zip(addresses, stage.processes, strict=True) if process.poll() is None and _ready(it)]

    stage.until(ready, "one is ready")
    (first,) = ready()
    second = next(it for it in addresses if it != first)
    with Holdfast(*five.urls) as locks:
        locks.ready(30)
        assert locks.force_release("writer", "to see what happens")
    process = stage.processes[addresses.index(first)]
    stage.until(lambda: not _ready(first), "the first one serves no longer", 10)
    process.wait(timeout=30)
    stage.until(lambda: ready() == [second], "the other one is ready", 20)
    # One that is stopped gives the lock back.
    stage.processes[addresses.index(second)].terminate()
    assert stage.processes[addresses.index(second)].wait(timeout=30) in (0, -signal.SIGTERM)
    with Holdfast(*five.urls) as locks:
        locks.ready(30)
        assert not locks.is_locked("writer")


def _ready(address: str) -> bool:
    try:
        return httpx.get(f"{address}/ready", timeout=10).status_code == 200
    except httpx.TransportError:
        return False


async def test_a_request_whose_client_went_away_takes_its_turn(stage: Stage) -> None:
    """FastAPI does not end an endpoint because its client has gone. Nothing is left in the queue then."""
    address = uvicorn(stage)
    async with httpx.AsyncClient(timeout=30) as client:
        held = asyncio.create_task(client.post(f"{address}/hold/a?seconds=2"))
        while not stage.entries("enter", "a"):
            await asyncio.sleep(0.02)
        with pytest.raises(httpx.ReadTimeout):
            await client.post(f"{address}/hold/a?seconds=0", timeout=0.5)
        assert (await held).status_code == 200
        while len(stage.entries("leave", "a")) < 2:
            await asyncio.sleep(0.02)
        began = time.monotonic()
        assert (await client.post(f"{address}/hold/a?seconds=0")).status_code == 200
        assert time.monotonic() - began < TTL, "no one is waited for"


@pytest.mark.parametrize(
    "words",
    [
        ("hypercorn", "shop:app", "--bind", "127.0.0.1:{port}", "-w", "2"),
        ("gunicorn", "shop:app", "-b", "127.0.0.1:{port}", "-w", "2", "-k", "uvicorn_worker.UvicornWorker"),
        ("uvicorn", "shop:app", "--port", "{port}", "--loop", "uvloop"),
    ],
    ids=["hypercorn", "gunicorn", "uvloop"],
)
async def test_other_servers(stage: Stage, words: tuple[str, ...]) -> None:
    address = serve(stage, *words)
    async with httpx.AsyncClient(timeout=30) as client:
        held = asyncio.create_task(client.post(f"{address}/hold/a?seconds=2"))
        stage_time = time.monotonic()
        while not stage.entries("enter", "a"):
            await asyncio.sleep(0.02)
            assert time.monotonic() - stage_time < 20
        answer = await client.post(f"{address}/work/a")
        assert answer.status_code == 409
        assert int(answer.headers["retry-after"]) <= TTL
        assert (await held).status_code == 200
        answers = [await client.post(f"{address}/orders/7", headers={"Idempotency-Key": "one"}) for _ in range(2)]
    assert [(it.status_code, it.content, "idempotent-replayed" in it.headers) for it in answers] == [
        (200, b'{"number":7}', again) for again in (False, True)
    ]
    os.kill(stage.processes[0].pid, signal.SIGTERM)
    stage.processes[0].wait(timeout=15)
