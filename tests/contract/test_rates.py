"""Rates: taking, waiting, what callers are told, and what is refused before anything is sent; over every driver."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta
from math import inf, nan
from typing import Any

import pytest
from contract.cluster import Cluster
from contract.faces import Asyncio, Face, Threads

from holdfast.errors import Cancelled, Closed, ConfigError, NoQuorum, RateLimited
from holdfast.events import Opened

BOTH = pytest.mark.parametrize("algorithm", ["gcra", "fixed window"])


@BOTH
async def test_so_many_and_no_more(face: Face, five: Cluster, name: str, algorithm: str) -> None:
    client, other = await face.connected(five), await face.connected(five)
    one, same = (it.rate(name, 3, 1000, algorithm=algorithm) for it in (client, other))
    told = [await face.call(it.take) for it in (one, same, one, same, one)]
    assert [bool(it) for it in told] == [it.allowed for it in told] == [True, True, True, False, False]
    assert [it.remaining for it in told] == [2, 1, 0, 0, 0]
    assert [it.retry_after for it in told[:3]] == [0, 0, 0]
    assert all(0 < it.retry_after <= (1000 / 3 if algorithm == "gcra" else 1000) for it in told[3:])
    assert all(900 < it.reset_after <= 1000 for it in told[2:])
    assert all(it.cause is None for it in told)
    assert (one.name, one.key, one.limit, one.period, one.burst) == (name, None, 3, 1000.0, 3)
    assert name in repr(one) and "limit=3" in repr(one)


async def test_a_call_may_count_for_more(face: Face, five: Cluster, name: str) -> None:
    rate = (await face.connected(five)).rate(name, 5, timedelta(minutes=20))
    assert await face.call(rate.take, 4)
    told = await face.call(rate.take, 2)
    assert (told.allowed, told.remaining) == (False, 1), "one would do"
    assert await face.call(rate.take)
    for waits in (rate.take, rate.acquire):
        with pytest.raises(ConfigError, match="never has 6 calls at once"):
            await face.call(waits, 6)


async def test_a_burst_is_what_may_come_at_once(face: Face, five: Cluster, name: str) -> None:
    client = await face.connected(five)
    assert [bool(await face.call(client.rate(name, 100, 1000, burst=2).take)) for _ in range(3)] == [True, True, False]
    assert [bool(await face.call(client.rate(f"{name}.2", 1, 1000, burst=2).take)) for _ in range(3)] == [True, True, False]


async def test_each_key_has_a_limit_of_its_own(face: Face, five: Cluster, name: str) -> None:
    client, elsewhere = await face.connected(five), await face.connected(five, prefix="else:")
    rates = [client.rate(name, 1, 1000, key=key) for key in (None, "a", 7, "{b}:rate")] + [elsewhere.rate(name, 1, 1000)]
    rates.append(client.rate(name, 1, 1000, algorithm="fixed window"))
    for rate in rates:
        assert await face.call(rate.take), rate
        assert not await face.call(rate.take), rate
    assert not await face.call(client.rate(name, 1, 1000, key="7").take), "a number is as it is written"
    lease = await face.acquire(client.lock(name))
    assert lease.held, "a lock of the same name is something else"
    await face.release(lease)


@BOTH
async def test_waiting(face: Face, five: Cluster, name: str, algorithm: str) -> None:
    rate = (await face.connected(five)).rate(name, 2, 1.0, algorithm=algorithm)
    began = face.now()
    for _ in range(3):
        assert await face.call(rate.acquire)
    waited = face.now() - began
    assert waited >= (0.45 if algorithm == "gcra" else 0.9)


async def test_who_cannot_wait_long_enough_is_told_at_once(face: Face, five: Cluster, name: str) -> None:
    client = await face.connected(five)
    assert await face.call(client.rate(name, 1, 1000, wait=0).acquire)
    for wait in (0, 10):
        began = face.now()
        with pytest.raises(RateLimited, match="is used up") as caught:
            await face.call(client.rate(name, 1, 1000, wait=wait).acquire)
        assert face.now() - began < 5, "at once"
        error = caught.value
        assert (error.name, error.key, error.limit, error.period) == (name, None, 1, 1000.0)
        assert 900 < error.retry_after <= 1000
        assert isinstance(error, TimeoutError)


async def test_who_waits_when_the_client_is_closed(face: Face, five: Cluster, name: str) -> None:
    client = await face.connected(five)
    rate = client.rate(name, 1, 1000)
    assert await face.call(rate.take)
    waiter = asyncio.create_task(face.call(rate.acquire))
    await face.sleep(0.2)
    await face.close(client)
    with pytest.raises(Closed):
        await waiter
    with pytest.raises(Closed):
        await face.call(rate.take)


async def test_who_has_waited_leaves_nothing_behind(face: Face, five: Cluster, name: str) -> None:
    if not isinstance(face, Asyncio):
        return
    client = await face.connected(five)
    rate = client.rate(name, 1, 0.05)
    for _ in range(3):
        assert await face.call(rate.acquire)
    waiters = [asyncio.create_task(face.call(client.rate(f"{name}.long", 1, 1000).acquire)) for _ in range(3)]
    await face.sleep(0.1)
    for waiter in waiters:
        waiter.cancel()
    await asyncio.gather(*waiters, return_exceptions=True)
    assert client._driver()._watchers == []


async def test_fail_open_is_told(face: Face, three: Cluster, name: str) -> None:
    heard: list[Any] = []
    client = await face.connected(three, observer=heard.append) if face.hears else await face.connected(three)
    await three.kill(0, 1, 2)
    await face.until(lambda: [it.state for it in client.nodes()] == ["down"] * 3)
    assert await face.call(client.rate(name, 1, 1000, fail_open=True).take)
    if face.hears:
        await face.until(lambda: any(isinstance(it, Opened) and it.name == name for it in heard))


async def test_a_minority_that_is_away_is_not_asked(face: Face, three: Cluster, name: str) -> None:
    client = await face.connected(three)
    await three.kill(0)
    await face.until(lambda: client.nodes()[0].state == "down")
    rates = [client.rate(f"{name}.{it}", 1, 1000) for it in range(6)]  # each has another order of nodes
    began = face.now()
    for rate in rates:
        assert await face.call(rate.take)
        assert not await face.call(rate.take)
    assert face.now() - began < 6


async def test_without_a_majority_nobody_can_know(face: Face, three: Cluster, name: str) -> None:
    client = await face.connected(three)
    await three.kill(0, 1)
    await face.until(lambda: [it.state for it in client.nodes()] == ["down", "down", "up"])
    for _ in range(3):
        for waits in (client.rate(name, 2, 1000).take, client.rate(name, 2, 1000).acquire):
            with pytest.raises(NoQuorum, match="could not take from") as caught:
                await face.call(waits)
            assert set(caught.value.causes) == set(three.urls[:2])
    opened = await face.call(client.rate(name, 2, 1000, fail_open=True).take)
    assert opened
    assert isinstance(opened.cause, NoQuorum)
    assert opened.remaining == 0


async def test_where_a_node_refuses_to_count_nobody_knows(face: Face, three: Cluster, name: str) -> None:
    client = await face.connected(three)
    three.ask(0, "HSET", f"{{{name}}}:rate", "x", "y")
    assert await face.call(client.rate(name, 2, 1000).take), "a minority"
    three.ask(1, "HSET", f"{{{name}.2}}:rate", "x", "y")
    three.ask(2, "HSET", f"{{{name}.2}}:rate", "x", "y")
    with pytest.raises(NoQuorum, match="WRONGTYPE"):
        await face.call(client.rate(f"{name}.2", 2, 1000).take)


async def test_nothing_stays_for_ever(face: Face, three: Cluster, name: str) -> None:
    client = await face.connected(three)
    assert await face.call(client.rate(name, 10, 5).take)
    for left in three.everywhere("PTTL", f"{{{name}}}:rate"):
        assert 0 < left <= 502, "until what was taken has flowed back, and no longer"


GOOD: dict[str, Any] = {"name": "mail", "limit": 10, "period": 60}
BAD: list[tuple[dict[str, Any], str]] = [
    *[({"limit": it}, "limit is a whole number") for it in (0, -1, True, 1.0, "10", None, 10**13, inf)],
    *[({"period": it}, "period is") for it in (0, -1, nan, inf, True, "60", None, 1e9, 0.0001)],
    *[({"burst": it}, "burst is a whole number") for it in (0, -1, False, 2.5, 10**13)],
    ({"burst": 10**8}, "takes longer than"),
    ({"algorithm": "fixed window", "burst": 5}, "a fixed window has no burst"),
    ({"algorithm": "sliding"}, "algorithm is 'gcra' or 'fixed window', not 'sliding'"),
    ({"algorithm": None}, "algorithm is"),
    ({"name": ""}, "a rate needs a name"),
    ({"name": 5}, "a rate's name is text"),
    ({"name": "a{b}"}, "has a brace in it"),
    ({"key": ""}, "a rate's key is empty"),
    ({"key": 1.5}, "a rate's key is text"),
    ({"key": False}, "a rate's key is text"),
    ({"wait": -1}, "wait is"),
    ({"fail_open": 1}, "fail_open is True or False"),
]


async def test_what_cannot_work_is_refused_before_anything_is_sent(face: Face, five: Cluster) -> None:
    client = await face.connected(five)
    before = five.calls()
    for change, told in BAD:
        with pytest.raises(ConfigError, match=told):
            client.rate(**{**GOOD, **change})
    rate = client.rate(**GOOD)
    for cost in (0, -1, 11, True, 1.0, "1", None, 10**400):
        for waits in (rate.take, rate.acquire):
            with pytest.raises(ConfigError):
                await face.call(waits, cost)
    assert five.calls() == before


async def test_a_decorated_function_waits_for_its_turn(face: Face, five: Cluster, name: str) -> None:
    client = await face.connected(five)

    if isinstance(face, Threads):

        @client.rate(name, 2, 1000, wait=0)
        def send(what: str) -> str:
            """Send it."""
            return what

        async def call(what: str) -> Any:
            return await face.call(send, what)
    else:

        @client.rate(name, 2, 1000, wait=0)
        async def send(what: str) -> str:
            """Send it."""
            return what

        async def call(what: str) -> Any:
            return await send(what)

    assert (send.__name__, send.__doc__) == ("send", "Send it.")
    assert [await call(it) for it in ("a", "b")] == ["a", "b"]
    with pytest.raises(RateLimited):
        await call("c")


async def test_what_a_rate_cannot_decorate(face: Face, five: Cluster, name: str) -> None:
    rate = face.client(five).rate(name, 2, 1)

    def plain() -> None: ...
    def generator() -> Any:
        yield

    async def coroutine() -> None: ...

    wrong: list[Any] = [generator, coroutine if isinstance(face, Threads) else plain, 5, int]
    for function in wrong:
        with pytest.raises(ConfigError):
            rate(function)


async def test_a_thread_s_wait_is_ended_by_an_event(face: Face, five: Cluster, name: str) -> None:
    if not isinstance(face, Threads):
        return
    rate, stop = (await face.connected(five)).rate(name, 1, 1000), threading.Event()
    assert await face.call(rate.take)
    threading.Timer(0.2, stop.set).start()
    with pytest.raises(Cancelled) as caught:
        await face.call(rate.acquire, 1, stop)
    assert caught.value.name == name
