"""Where holdfast's lock for redis-py behaves otherwise than redis-py's, or better: see docs/moving-over.md."""

from __future__ import annotations

import gc
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
import redis
import redis.asyncio
from nemesis.processes import until
from redis.exceptions import LockError, LockNotOwnedError

from holdfast import ConfigError, LockLost, NoQuorum
from holdfast.compat.redis import Lock, configure
from holdfast.embedded import Nodes

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    with Nodes(1, tcp=True) as nodes:
        yield nodes


@pytest.fixture
def client(nodes: Nodes) -> Iterator[Any]:
    with redis.Redis.from_url(nodes.urls[0]) as client:
        # All but the word that the server is new.
        for key in set(client.scan_iter()) - {b"{holdfast}:adopted"}:
            client.delete(key)
        yield client


def test_nothing_is_sent_by_the_lent_client(nodes: Nodes) -> None:
    client = redis.Redis.from_url(nodes.urls[0])
    before = dict(client.connection_pool.connection_kwargs)
    with Lock(client, "lent"):
        pass
    assert client.connection_pool._created_connections == 0
    assert client.connection_pool.connection_kwargs == before


def test_locks_of_one_server_share_a_client_of_holdfast(client: Any) -> None:
    assert Lock(client, "a")._locks is Lock(client, "b")._locks


def test_a_timeout_is_a_limit_and_a_crash_is_noticed_sooner(client: Any) -> None:
    with Lock(client, "long", timeout=3600) as lock:
        assert client.ttl("long") <= 10
        assert 3590 < lock.local.held.ends - time.monotonic() <= 3600


def test_no_lock_lives_for_ever(client: Any) -> None:
    with Lock(client, "mortal"):
        assert 0 < client.ttl("mortal") <= 10


def test_it_is_renewed_until_its_timeout_and_then_it_is_lost(client: Any) -> None:
    lock = Lock(client, "limited", timeout=0.3)
    assert lock.acquire()
    until(lambda: not lock.owned())
    with pytest.raises(LockNotOwnedError) as caught:
        lock.release()
    assert isinstance(caught.value.__cause__, LockLost)
    assert caught.value.__cause__.reason == "max_hold"
    assert lock.local.token is None


def test_an_extended_lock_outlives_its_timeout(client: Any) -> None:
    lock = Lock(client, "extended", timeout=0.5)
    assert lock.acquire()
    assert lock.extend(1.5)
    time.sleep(0.7)
    assert lock.owned()
    assert lock.reacquire()
    assert 0 < lock.local.held.left <= 0.5
    time.sleep(0.6)
    # The key would last longer. It is deleted when the time is over.
    assert not lock.owned()
    assert client.get("extended") is None


def test_it_can_be_told_not_to_renew(client: Any) -> None:
    lock = Lock(client, "expiring", timeout=20, holdfast_renew=False)
    assert lock.acquire()
    assert client.ttl("expiring") > 10
    # Its key ends after `max_ttl`, and nobody renews it.
    for longer in (lambda: lock.extend(15), lambda: lock.extend(31, replace_ttl=True)):
        with pytest.raises(ConfigError, match="30"):
            longer()
    assert lock.extend(30, replace_ttl=True)
    assert client.ttl("expiring") > 20
    lock.release()
    with pytest.raises(ConfigError):
        Lock(client, "expiring", timeout=3600, holdfast_renew=False).acquire()


def test_a_short_blocking_timeout_waits_all_the_same(client: Any) -> None:
    with Lock(client, "short"):
        began = time.monotonic()
        assert not Lock(client, "short", sleep=60, blocking_timeout=0.2).acquire()
        assert time.monotonic() - began >= 0.2


def test_a_token_of_one_s_own_is_refused(client: Any) -> None:
    with pytest.raises(ConfigError, match="force_release"):
        Lock(client, "token").acquire(token="mine")


def test_another_thread_has_no_lock_and_is_told_so(client: Any) -> None:
    lock = Lock(client, "threads")
    shared = Lock(client, "shared", thread_local=False)
    assert lock.acquire()
    assert shared.acquire()
    told: list[object] = []

    def other() -> None:
        told.append(lock.local.token)
        try:
            lock.release()
        except LockError as error:
            told.append(error)
        shared.release()

    thread = threading.Thread(target=other)
    thread.start()
    thread.join(10)
    assert told[0] is None
    assert isinstance(told[1], LockError)
    assert lock.owned()
    lock.release()
    assert not shared.locked()


def test_an_error_of_the_body_is_never_masked(client: Any) -> None:
    lock = Lock(client, "masked")

    def work() -> None:
        with lock:
            lock.release()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as caught:
        work()
    assert "does not hold" in caught.value.__notes__[0]


def test_a_lock_that_is_dropped_is_told_of(client: Any) -> None:
    held = [Lock(client, "cooldown", timeout=1)]
    assert held[0].acquire()
    with pytest.warns(ResourceWarning, match="cooldown"):
        held.clear()
    gc.collect()
    assert client.get("cooldown"), "garbage collection releases nothing"


def test_a_server_that_does_not_answer_is_an_error_of_connections_and_a_release_may_be_repeated() -> None:
    with Nodes(1, tcp=True) as nodes, redis.Redis.from_url(nodes.urls[0]) as client:
        configure(client, outage=1, ttl=20)
        lock = Lock(client, "repeated")
        assert lock.acquire()
        token = lock.local.token
        nodes.freeze(0)
        with pytest.raises(redis.exceptions.ConnectionError) as caught:
            lock.release()
        assert isinstance(caught.value.__cause__, NoQuorum)
        assert lock.local.token == token
        with pytest.raises(redis.exceptions.ConnectionError):
            Lock(client, "other", blocking=False).acquire()
        nodes.thaw(0)

        def released() -> bool:
            with suppress(redis.exceptions.ConnectionError):
                lock.release()
            return lock.local.token is None

        until(released)
        assert not lock.locked()
        lock._locks.close()


def test_options_are_set_before_the_first_use(nodes: Nodes) -> None:
    client = redis.Redis.from_url(nodes.urls[0])
    configure(client, prefix="app:", ttl=5)
    with Lock(client, "configured"), redis.Redis.from_url(nodes.urls[0]) as plain:
        assert 0 < plain.ttl("app:configured") <= 5
    with pytest.raises(ConfigError, match="before"):
        configure(client, ttl=6)


def test_it_may_be_moved_to_several_nodes(nodes: Nodes) -> None:
    """A single one may be a text."""
    with Nodes(3, tcp=True) as three:
        for addresses, votes in ((three.urls, 2), (nodes.urls[0], 1)):
            with redis.Redis.from_url(three.urls[0]) as client:
                configure(client, nodes=addresses)
                with Lock(client, "moved") as lock:
                    assert lock.local.held.lease.votes >= votes
                lock._locks.close()


def test_a_client_that_is_gone_leaves_nothing(nodes: Nodes) -> None:
    client = redis.Redis.from_url(nodes.urls[0])
    configure(client, owner="gone")
    with Lock(client, "gone"):
        pass
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        del client
        gc.collect()
