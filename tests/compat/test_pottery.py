"""Where holdfast's locks for pottery behave otherwise than pottery's, or better: see docs/moving-over.md."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pottery
import pytest
import redis
from pottery.exceptions import QuorumIsImpossible, QuorumNotAchieved, ReleaseUnlockedLock

from holdfast import ConfigError, LockLost
from holdfast.compat.pottery import AIORedlock, Redlock, configure, synchronize
from holdfast.embedded import Nodes


@pytest.fixture
def masters() -> Iterator[set[Any]]:
    with Nodes(3, tcp=True) as nodes:
        clients = {redis.Redis.from_url(it) for it in nodes.urls}
        yield clients
        Redlock(key="any", masters=clients)._locks.close()
        for it in clients:
            it.close()


def test_pottery_and_it_exclude_each_other(masters: set[Any]) -> None:
    theirs, ours = pottery.Redlock(key="both", masters=masters), Redlock(key="both", masters=masters)
    with theirs:
        assert not ours.acquire(blocking=False)
    with ours:
        assert not theirs.acquire(blocking=False)
        assert ours.locked() > 9


def test_the_loss_is_the_cause(masters: set[Any]) -> None:
    lock = Redlock(key="lost", masters=masters, auto_release_time=0.2)
    assert lock.acquire()
    time.sleep(0.3)
    with pytest.raises(ReleaseUnlockedLock) as caught:
        lock.release()
    assert isinstance(caught.value.__cause__, LockLost)


def test_an_error_of_the_body_is_never_masked(masters: set[Any]) -> None:
    lock = Redlock(key="masked", masters=masters)

    def work() -> None:
        with lock:
            lock.release()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        work()


def test_decorated_functions_exclude_each_other(masters: set[Any]) -> None:
    inside = Redlock(key="function", masters=masters)

    @synchronize(key="function", masters=masters, blocking=False)
    def work() -> bool:
        return inside.acquire(blocking=False)

    assert work() is False
    with inside, pytest.raises(QuorumNotAchieved):
        work()


def test_functions_whose_body_would_run_without_the_lock_are_refused(masters: set[Any]) -> None:
    async def coroutine() -> None: ...

    def generator() -> Iterator[int]:
        yield 1

    async def both() -> AsyncIterator[int]:
        yield 1

    synchronized = synchronize(key="later", masters=masters)
    for function in (coroutine, generator, both):
        with pytest.raises(ConfigError, match="would run without the lock: use `with Redlock"):
            synchronized(function)
    assert not Redlock(key="later", masters=masters).locked()


def test_masters_are_named() -> None:
    with pytest.raises(ConfigError, match="masters"):
        Redlock(key="none", masters=())


def test_too_few_servers_are_an_error_if_that_is_wanted() -> None:
    client = redis.Redis(port=1)
    configure(client, max_ttl=1, ttl=1, outage=0.2)
    lock = Redlock(key="away", masters={client})
    assert not lock.acquire(timeout=2)
    with pytest.raises(QuorumIsImpossible):
        lock.acquire(timeout=2, raise_on_redis_errors=True)


async def test_asyncio(masters: set[Any]) -> None:
    settings = [it.connection_pool.connection_kwargs for it in masters]
    clients = {redis.asyncio.Redis(host=it["host"], port=it["port"], password=it["password"]) for it in settings}
    lock = AIORedlock(key="awaited", masters=clients)
    async with lock:
        assert await lock.locked() > 9
        assert not Redlock(key="awaited", masters=masters).acquire(blocking=False)
    assert not await lock.locked()
    for it in clients:
        await it.aclose()
