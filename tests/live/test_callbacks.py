"""What users register is called aside from the engine, on both faces: what it raises ends no lease, and nothing of it is left out."""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from typing import Any

import pytest
from contract.cluster import Cluster
from contract.faces import Face, Threads
from live.test_threads_callbacks import SHORT, TTL, handled
from proof.books import word

from holdfast import events


@pytest.mark.parametrize("raised", [ZeroDivisionError("a handler's"), SystemExit(1), KeyboardInterrupt()], ids=lambda it: type(it).__name__)
async def test_a_log_handler_that_raises_ends_no_lease(
    face: Face, three: Cluster, name: str, raised: BaseException, capfd: pytest.CaptureFixture[str]
) -> None:
    if not (isinstance(face, Threads) or isinstance(raised, Exception)):
        return  # (an event loop ends with these)

    def raises(record: logging.LogRecord) -> None:
        raise raised

    lost: list[Any] = []
    client = await face.connected(three, ttl=TTL)
    with handled(raises):
        kept = await face.acquire(client.lock(name))
        leases = [await face.acquire(client.lock(f"{name}.{it}", **SHORT, on_lost=lost.append)) for it in range(3)]
        await face.until(lambda: len(lost) == 3)
        # A loop that was busy for longer than a lease finds several that are over, in any order.
        assert sorted(lost, key=leases.index) == leases
        assert all(it.lost.is_set() for it in leases)
        await face.sleep(1.5 * TTL)
        kept.check()
        await face.release(kept)
        await face.close(client)
    assert "a log handler raised" in capfd.readouterr().err


async def test_all_leases_are_marked_before_any_callback_runs(face: Face, three: Cluster, name: str) -> None:
    seen: list[bool] = []
    marks: list[Any] = []

    def on_lost(lease: Any) -> None:
        seen.append(all(it.is_set() for it in marks))

    client = await face.connected(three)
    leases = [await face.acquire(client.lock(f"{name}.{it}", on_lost=on_lost)) for it in range(50)]
    marks += [it.lost for it in leases]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        await face.close(client)  # loses all of them at the same moment
    finally:
        sys.setswitchinterval(before)
    assert seen == [True] * 50


async def test_close_returns_when_callbacks_were_told(face: Face, three: Cluster, name: str, caplog: pytest.LogCaptureFixture) -> None:
    heard: list[events.Event] = []
    lost: list[Any] = []

    def hears(event: events.Event) -> None:
        time.sleep(0.002)
        heard.append(event)

    async def awaits(event: events.Event) -> None:
        await asyncio.sleep(0.002)
        heard.append(event)

    def on_lost(lease: Any) -> None:
        time.sleep(0.05)
        lost.append(lease)
        raise ZeroDivisionError("at the end")

    client = await face.connected(three, observer=hears if isinstance(face, Threads) else awaits)
    leases = [await face.acquire(client.lock(f"{name}.{it}", on_lost=on_lost)) for it in range(5)]
    await face.close(client)
    assert lost == leases
    assert [word(it) for it in heard].count("lost") == 5
    assert sum("is lost: closed" in it.message for it in caplog.records) == 5
    assert sum(it.exc_info is not None and "at the end" in str(it.exc_info[1]) for it in caplog.records) == 5
