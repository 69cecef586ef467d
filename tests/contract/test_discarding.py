"""A lease that is dropped without a release: what the log, observers and the ResourceWarning say, how soon, and who says it."""

from __future__ import annotations

import gc
import logging
import re
import threading
import warnings
from typing import Any

import pytest
from contract.cluster import Cluster
from contract.faces import Face, Threads
from proof.books import word

LONG = 30.0  # seconds: of such a lease, renewals are 10 s apart
SOON = 8.0  # seconds: before the next renewal
SAYS = (
    r"the lease on {name} \(fence {fence}\) was discarded without release; it is no longer renewed and ends in \d+\.\d s\. "
    r'Keep the lease that acquire\(\) returns, or use "with"\.'
)


class Told:
    """What the log has from holdfast, and on which threads its handler was called."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.lines: list[logging.LogRecord] = []
        self.threads: list[int] = []
        handler = logging.Handler(logging.WARNING)
        monkeypatch.setattr(handler, "emit", self._emit)
        monkeypatch.setattr(logging.getLogger("holdfast"), "handlers", [handler])

    def _emit(self, record: logging.LogRecord) -> None:
        self.threads.append(threading.get_ident())
        self.lines.append(record)

    @property
    def texts(self) -> list[str]:
        return [it.getMessage() for it in self.lines if "discarded" in it.getMessage()]


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Told:
    return Told(monkeypatch)


async def dropped(face: Face, lock: Any) -> tuple[int, list[str]]:
    """Acquire and drop the lease, as `if lock.acquire():` does. Its first fence, and the ResourceWarnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        lease = await face.acquire(lock)
        fence = next(iter(lease.fences.values()))
        await face.sleep(0.3)  # until all nodes have answered
        del lease
        gc.collect()
        await face.until(lambda: [it for it in caught if it.category is ResourceWarning], SOON)
    return fence, [str(it.message) for it in caught if it.category is ResourceWarning]


async def test_a_dropped_lease_is_logged_soon_and_once(face: Face, five: Cluster, name: str, told: Told) -> None:
    seen: list[Any] = []
    locks = await face.connected(five, max_ttl=LONG, ttl=LONG, observer=seen.append)
    fence, warned = await dropped(face, locks.lock(name))
    await face.until(lambda: told.texts, SOON)
    await face.sleep(0.1)
    says = SAYS.format(name=re.escape(repr(name)), fence=fence)
    for texts in (told.texts, warned):
        assert len(texts) == 1
        assert re.fullmatch(says, texts[0]), texts
    [line] = [it for it in told.lines if it.getMessage() in told.texts]
    assert (line.name, line.levelno) == ("holdfast.lease", logging.WARNING)
    await face.until(lambda: [it for it in seen if word(it) == "discarded"], SOON)
    [event] = [it for it in seen if word(it) == "discarded"]
    assert (event.name, event.fence, event.acquired) == (name, fence, None)
    assert LONG / 2 < event.remaining <= LONG
    assert five.holders(name) != [None] * 5, "garbage collection releases nothing"


async def test_b48_a_lease_that_is_dropped_is_not_renewed(face: Face, five: Cluster, name: str) -> None:
    locks = await face.connected(five)
    began = face.now()
    await dropped(face, locks.lock(name, ttl=0.9))  # renewed once
    assert five.holders(name) != [None] * 5, "B-10: garbage collection releases nothing"
    await face.release(await face.acquire(locks.lock(name, wait=10)))
    assert 0.9 < face.now() - began < 0.9 + 1.5


async def test_a_lease_that_was_released_or_lost_is_not_told_of(face: Face, five: Cluster, name: str, told: Told) -> None:
    locks = await face.connected(five)
    lease = await face.acquire(locks.lock(name))
    await face.release(lease)
    del lease
    lease = await face.acquire(locks.lock(name, ttl=0.1, renew=False))
    await face.until_lost(lease)
    del lease

    async def body(lease: Any) -> None:
        assert lease.held

    await face.within(locks.lock(name), body)
    gc.collect()
    await face.sleep(0.2)
    assert told.texts == []


async def test_nothing_of_the_user_s_runs_in_the_finalizer(face: Face, five: Cluster, name: str, told: Told) -> None:
    """The log's handler and the observer are called aside: not where the lease dies, and not on the thread that renews."""
    locks = await face.connected(five, max_ttl=LONG, ttl=LONG)
    leases = [await face.acquire(locks.lock(name))]
    inside: list[bool] = []
    handler = logging.getLogger("holdfast").handlers[0]
    emit = handler.emit

    def emits(record: logging.LogRecord) -> None:
        inside.append(dying[0])
        emit(record)

    handler.emit = emits  # type: ignore[method-assign]  # (a fake in its place)
    dying = [True]
    await face.sleep(0.3)  # until nobody else has it
    with pytest.warns(ResourceWarning, match="discarded without release"):
        leases.clear()
    dying[0] = False
    await face.until(lambda: told.texts, SOON)
    if isinstance(face, Threads):
        assert told.threads[-1] not in (threading.get_ident(), locks._driver.io_thread.ident)
    else:
        assert inside == [False]


async def test_debug_says_which_line_acquired_it(face: Face, five: Cluster, name: str, told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_DEBUG", "1")
    locks = await face.connected(five, max_ttl=LONG, ttl=LONG)

    def in_a_thread() -> None:
        locks.lock(name).acquire()  # this line

    async def in_a_task() -> None:
        await locks.lock(name).acquire()  # this line

    with pytest.warns(ResourceWarning, match="It was acquired at") as warned:
        await face.call(in_a_thread if isinstance(face, Threads) else in_a_task)
    code = (in_a_thread if isinstance(face, Threads) else in_a_task).__code__
    where = f"It was acquired at {__file__}:{code.co_firstlineno + 1}."
    await face.until(lambda: told.texts, SOON)
    assert told.texts[0].endswith(where)
    assert str(warned[0].message).endswith(where)
