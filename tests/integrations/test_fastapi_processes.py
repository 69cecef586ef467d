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
OUTAGE = 2.0  # the client's: its ttl


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


def uvicorn(stage: Stage, workers: int = 4) -> str:
    return serve(stage, "uvicorn", "shop:app", "--port", "{port}", "--workers", str(workers), "--log-level", "warning")


@pytest.mark.parametrize("kind", ["async", "plain"])
def test_a_stream_whose_client_has_gone_gives_its_lock_back(stage: Stage, five: Nodes, kind: str) -> None:
    """An async generator is closed at once. A plain one is left to Python, so its lock needs `max_hold`."""
    address = uvicorn(stage, 1)
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


async def test_without_a_majority_the_answer_is_503_until_it_is_back(stage: Stage, five: Nodes) -> None:
    # One worker: a second one may still be starting when the first one answers, and uvicorn ends all if one cannot start.
    address = uvicorn(stage, workers=1)
    async with httpx.AsyncClient(timeout=30) as client:
        assert (await client.post(f"{address}/work/a")).status_code == 200
        for node in range(3):
            five.freeze(node)
        began = time.monotonic()
        answer = await client.post(f"{address}/hold/b?seconds=0")
        assert answer.status_code == 503
        assert answer.headers["retry-after"] == "2"
        assert answer.headers["content-type"] == "application/problem+json"
        assert time.monotonic() - began < OUTAGE + 1.5
        assert (await client.get(f"{address}/alive/")).status_code == 200
        assert (await client.get(f"{address}/deep/")).status_code == 503
        for node in range(3):
            five.thaw(node)
        began, status = time.monotonic(), 0
        while status != 200:
            status = (await client.post(f"{address}/hold/b?seconds=0")).status_code
            assert status in (200, 503)
            assert time.monotonic() - began < 5
        assert (await client.get(f"{address}/deep/")).status_code == 200


async def test_equal_requests_are_one_run(stage: Stage) -> None:
    address = uvicorn(stage, workers=2)
    headers = {"Idempotency-Key": "one"}
    async with httpx.AsyncClient(timeout=30) as client:

        async def ask() -> httpx.Response:
            while True:
                answer = await client.post(f"{address}/orders/7?seconds=0.3", headers=headers)
                if answer.status_code != 409:
                    return answer
                assert answer.headers["retry-after"] == "1"
                await asyncio.sleep(0.05)

        answers = await asyncio.gather(*[ask() for _ in range(50)])
    assert {(it.status_code, it.content) for it in answers} == {(200, b'{"number":7}')}
    assert len(stage.entries("run", "7")) == 1
    assert sum("idempotent-replayed" in it.headers for it in answers) == 49


async def test_a_handler_that_was_killed_runs_once_more(stage: Stage) -> None:
    address = uvicorn(stage, workers=2)
    headers = {"Idempotency-Key": "one"}
    async with httpx.AsyncClient(timeout=30) as client:
        first = asyncio.create_task(client.post(f"{address}/orders/8?seconds=1", headers=headers))
        while not stage.entries("run", "8"):
            await asyncio.sleep(0.02)
        os.kill(stage.entries("run", "8")[0].pid, signal.SIGKILL)
        with pytest.raises(httpx.TransportError):
            await first
        while (answer := await client.post(f"{address}/orders/8?seconds=1", headers=headers)).status_code == 409:
            await asyncio.sleep(0.1)
    assert answer.status_code == 200
    assert (len(stage.entries("run", "8")), len(stage.entries("ran", "8"))) == (2, 1)


async def test_losing_the_lock_is_a_status_or_a_body_that_is_cut_off(stage: Stage) -> None:
    address = uvicorn(stage, workers=1)
    async with httpx.AsyncClient(timeout=30) as client:
        for where in ("endpoint", "dependency", "thread"):
            answer = await client.get(f"{address}/lost/{where}")
            assert answer.status_code == 503, where
            assert "retry-after" not in answer.headers
            assert answer.json()["type"] == "about:holdfast/lost"
        with pytest.raises(httpx.RemoteProtocolError):
            await client.get(f"{address}/lost/stream")
    assert "the response had begun, and is cut off" in stage.logs()


async def test_a_request_whose_client_went_away_takes_its_turn(stage: Stage) -> None:
    """FastAPI does not end an endpoint because its client has gone. Nothing is left in the queue then."""
    address = uvicorn(stage, workers=1)
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


async def test_one_of_all_workers_seeds(stage: Stage) -> None:
    uvicorn(stage, workers=4)
    stage.until(lambda: stage.entries("seeded"), "a worker seeds")
    await asyncio.sleep(1)
    assert len(stage.entries("seeded")) == 1


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
    os.kill(stage.processes[0].pid, signal.SIGTERM)
    stage.processes[0].wait(timeout=15)
