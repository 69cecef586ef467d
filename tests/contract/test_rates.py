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
from proof.misuse import misuse

from holdfast.errors import Cancelled, ConfigError, NoQuorum, RateLimited

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
    with misuse("closed"):
        await waiter
    with misuse("closed"):
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
    assert client._driver().waiting.news == []


async def test_without_a_majority_nobody_can_know(face: Face, three: Cluster, name: str) -> None:
    # Rule RA3.
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


async def test_a_process_may_count_its_share_while_no_majority_answers(face: Face, three: Cluster, name: str) -> None:
    client = await face.connected(three)
    await three.kill(0, 1)
    await face.until(lambda: [it.state for it in client.nodes()] == ["down", "down", "up"])
    hours = client.rate(name, 100, 36_000, burst=20, wait=0, fail_open=5)
    assert await face.call(hours.peek), "which counts nothing"
    assert [bool(await face.call(hours.take)) for _ in range(6)] == [True] * 4 + [False] * 2, "a fifth of the burst"
    for asks in (hours.peek, hours.take):
        refused = await face.call(asks)
        assert 1700 < refused.retry_after <= 1800, "five times as long as all processes together would wait"
        assert isinstance(refused.cause, NoQuorum)
    with pytest.raises(RateLimited):
        await face.call(hours.acquire)
    # Each key and each limit is counted by itself, and a single call is never too many.
    several = client.rate(name, [(5, 60), (3, 900)], key="a", fail_open=5)
    assert [bool(await face.call(several.take)) for _ in range(2)] == [True, False]
    assert await face.call(client.rate(name, [(5, 60), (3, 900)], key="b", fail_open=5).take)


async def test_a_process_counts_its_share_of_a_name_that_moves(face: Face, three: Cluster, five: Cluster, name: str) -> None:
    """Then no node is asked if it is not known which servers a list has."""
    client = face.spread({"new": five}, previous={"old": three}, node_timeout=0.3)
    await face.ready(client)
    await three.kill(0, 1)
    await face.until(lambda: sum(it.state == "down" for it in client.nodes()) == 2)
    share = client.rate(name, 5, 1000, wait=0, fail_open=5)
    assert await face.call(share.acquire)
    with pytest.raises(RateLimited):
        await face.call(share.acquire)
    with pytest.raises(NoQuorum) as caught:
        await face.call(client.rate(name, 5, 1000).take)
    assert caught.value.name == name


async def test_where_a_node_refuses_to_count_nobody_knows(face: Face, three: Cluster, name: str) -> None:
    client = await face.connected(three)
    three.ask(0, "HSET", f"{{{name}}}:rate:2/1000/2", "x", "y")
    assert await face.call(client.rate(name, 2, 1000).take), "a minority"
    three.ask(1, "HSET", f"{{{name}.2}}:rate:2/1000/2", "x", "y")
    three.ask(2, "HSET", f"{{{name}.2}}:rate:2/1000/2", "x", "y")
    with pytest.raises(NoQuorum, match="WRONGTYPE"):
        await face.call(client.rate(f"{name}.2", 2, 1000).take)


# ------------------------------------------------ several limits


@BOTH
async def test_two_limits_on_one_name_do_not_destroy_each_other(face: Face, five: Cluster, name: str, algorithm: str) -> None:
    """Each is counted by itself, as often as it is asked for in turn."""
    client = await face.connected(five)
    many, few = client.rate(name, 50, 1000, algorithm=algorithm), client.rate(name, 8, 3600, algorithm=algorithm)
    told = [(bool(await face.call(many.take)), bool(await face.call(few.take))) for _ in range(20)]
    assert [it for it, _ in told] == [True] * 20
    assert [it for _, it in told] == [True] * 8 + [False] * 12


@BOTH
async def test_a_call_is_counted_by_all_limits_or_by_none(face: Face, five: Cluster, name: str, algorithm: str) -> None:
    client = await face.connected(five)
    both = client.rate(name, [(10, 1000), (3, 3600)], algorithm=algorithm)
    ten, three = client.rate(name, 10, 1000, algorithm=algorithm), client.rate(name, 3, 3600, algorithm=algorithm)
    told = [await face.call(both.take) for _ in range(6)]
    assert [it.allowed for it in told] == [True] * 3 + [False] * 3
    assert [it.remaining for it in told] == [2, 1, 0, 0, 0, 0]
    assert all(1000 < it.retry_after <= 3600 for it in told[3:])
    await face.sleep(0.1)
    assert (await face.call(ten.peek)).remaining == 7, "those that were refused are counted by neither"
    assert (await face.call(three.peek)).remaining == 0, "a limit is counted once, whether it stands alone or with others"
    with pytest.raises(RateLimited, match="3 in 3600 s") as caught:
        await face.call(client.rate(name, [(10, 1000), (3, 3600)], algorithm=algorithm, wait=5).acquire)
    assert (caught.value.limit, caught.value.period) == (3, 3600.0), "the one that is used up"


async def test_several_limits_are_described(face: Face, five: Cluster, name: str) -> None:
    rate = face.client(five).rate(name, ((10, 1), [1000, timedelta(hours=1)]), key="ann")
    assert rate.limits == ((10, 1.0), (1000, 3600.0))
    assert (rate.limit, rate.period, rate.burst) == (10, 1.0, 10)
    assert repr(rate) == f"<Rate {name!r} key='ann': 10 in 1 s, 1000 in 3600 s>"


# ------------------------------------------------ looking, and starting over


@BOTH
async def test_a_peek_counts_nothing(face: Face, five: Cluster, name: str, algorithm: str) -> None:
    rate = (await face.connected(five)).rate(name, 3, 1000, algorithm=algorithm)
    for left in (3, 2, 1):
        for _ in range(3):
            told = await face.call(rate.peek)
            assert (told.allowed, told.remaining, told.retry_after, told.cause) == (True, left, 0, None)
        assert (told.reset_after == 0) is (left == 3)
        assert (await face.call(rate.peek, left)).allowed
        assert left == 3 or not (await face.call(rate.peek, left + 1)).allowed
        assert await face.call(rate.take)
        await face.sleep(0.05)  # (the last nodes may not have counted it yet)
    told = await face.call(rate.peek)
    assert (told.allowed, told.remaining) == (False, 0)
    assert 0 < told.retry_after <= told.reset_after <= 1000
    with pytest.raises(ConfigError, match="never has 4 calls at once"):
        await face.call(rate.peek, 4)


@BOTH
async def test_a_reset_starts_over(face: Face, five: Cluster, name: str, algorithm: str) -> None:
    client, other = await face.connected(five), await face.connected(five)
    rate, same = (it.rate(name, [(2, 1000), (3, 5000.0)], algorithm=algorithm, key="ann") for it in (client, other))
    else_ = client.rate(name, [(2, 1000), (3, 5000.0)], algorithm=algorithm, key="ben")
    assert await face.call(else_.take)
    for _ in range(2):
        assert [bool(await face.call(rate.take)) for _ in range(3)] == [True, True, False]
        assert await face.call(same.reset) is None
        await face.sleep(0.05)
    assert (await face.call(rate.peek)).remaining == 2
    assert (await face.call(else_.peek)).remaining == 1, "of this key, and of no other"


async def test_too_few_nodes_to_look_or_to_start_over(face: Face, three: Cluster, name: str) -> None:
    client = await face.connected(three)
    rate = client.rate(name, 2, 1000)
    await three.kill(0)
    await face.until(lambda: client.nodes()[0].state == "down")
    assert (await face.call(rate.peek)).remaining == 2
    assert await face.call(rate.reset) is None
    await three.kill(1)
    await face.until(lambda: client.nodes()[1].state == "down")
    for waits, told in ((rate.peek, "could not look at"), (rate.reset, "could not reset")):
        with pytest.raises(NoQuorum, match=told) as caught:
            await face.call(waits)
        assert set(caught.value.causes) == set(three.urls[:2])
    opened = await face.call(client.rate(name, 2, 1000, fail_open=True).peek)
    assert opened
    assert isinstance(opened.cause, NoQuorum)
    assert (opened.retry_after, opened.remaining, opened.reset_after) == (0, 0, 0)


# ------------------------------------------------ turns


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
    ({"fail_open": "1"}, "fail_open is True or False"),
    ({"fail_open": 0}, "fail_open is a whole number"),
    ({"limit": [(10, 1)]}, "several limits have a period each"),
    *[
        ({"limit": it, "period": None, **more}, told)
        for it, more, told in [
            (10, {}, "period is missing"),
            ([], {}, "a rate has 1 to 10 limits, not 0"),
            ([(it, it) for it in range(1, 12)], {}, "a rate has 1 to 10 limits, not 11"),
            ([10, 1], {}, "a limit is a pair of calls and seconds"),
            ([(10, 1, 1)], {}, "a limit is a pair of calls and seconds"),
            (["10"], {}, "a limit is a pair of calls and seconds"),
            ([(10, 1), (0, 60)], {}, "limit is a whole number"),
            ([(10, 1), (5, 0)], {}, "period is"),
            ([(10, 1), (10, 1.0)], {}, "the same limit twice: 10 in 1 s, 10 in 1 s"),
            ([(10, 1), (100, 60)], {"burst": 1}, "burst goes with a single limit"),
        ]
    ],
]


async def test_what_cannot_work_is_refused_before_anything_is_sent(face: Face, five: Cluster) -> None:
    client = await face.connected(five)
    before = five.calls()
    for change, told in BAD:
        with pytest.raises(ConfigError, match=told):
            client.rate(**{**GOOD, **change})
    rate = client.rate(**GOOD)
    for cost in (0, -1, 11, True, 1.0, "1", None, 10**400):
        for waits in (rate.take, rate.acquire, rate.peek):
            with pytest.raises(ConfigError):
                await face.call(waits, cost)
    assert five.calls() == before


async def test_a_decorated_function_waits_for_its_turn(face: Face, five: Cluster, name: str) -> None:
    client = await face.connected(five)

    def send(what: str) -> str:
        """Send it."""
        return what

    decorated = client.rate(name, 2, 1000, wait=0)(face.function(send))
    assert (decorated.__name__, decorated.__doc__) == ("send", "Send it.")
    assert [await face.call(decorated, it) for it in ("a", "b")] == ["a", "b"]
    with pytest.raises(RateLimited):
        await face.call(decorated, "c")


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
