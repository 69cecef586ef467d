"""Rates: taking, waiting, what callers are told, and what is refused before anything is sent; over every driver."""

from __future__ import annotations

from datetime import timedelta

import pytest
from contract.cluster import Cluster
from contract.faces import Face

from holdfast.errors import ConfigError, NoQuorum, RateLimited

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
    assert await face.call(client.rate(name, 100, 36_000, burst=20, key="b", fail_open=5).take), "each key is counted by itself"


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
    assert (caught.value.name, caught.value.waited < 5) == (name, True)


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
    # Rule RA4.
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
    told = [await face.call(both.take) for _ in range(5)]
    assert [(it.allowed, it.remaining) for it in told] == [(True, 2), (True, 1), (True, 0), (False, 0), (False, 0)]
    assert all(1000 < it.retry_after <= 3600 for it in told[3:])
    await face.sleep(0.1)
    assert (await face.call(ten.peek)).remaining == 7, "those that were refused are counted by neither"
    assert (await face.call(three.peek)).remaining == 0, "a limit is counted once, whether it stands alone or with others"
    with pytest.raises(RateLimited, match="3 in 3600 s") as caught:
        await face.call(client.rate(name, [(10, 1000), (3, 3600)], algorithm=algorithm, wait=5).acquire)
    assert (caught.value.limit, caught.value.period) == (3, 3600.0), "the one that is used up"


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


async def test_without_a_majority_calls_may_be_allowed(face: Face, three: Cluster, name: str) -> None:
    client = await face.connected(three)
    rate = client.rate(name, 2, 1000, fail_open=True)
    await three.kill(0)
    await face.until(lambda: client.nodes()[0].state == "down")
    assert (await face.call(rate.peek)).remaining == 2
    assert await face.call(rate.reset) is None
    await three.kill(1)
    await face.until(lambda: client.nodes()[1].state == "down")
    for waits in (rate.take, rate.take, rate.peek):
        opened = await face.call(waits)
        assert (opened.allowed, type(opened.cause)) == (True, NoQuorum)
        assert (opened.retry_after, opened.remaining, opened.reset_after) == (0, 0, 0)


# ------------------------------------------------ turns


async def test_a_decorated_function_waits_for_its_turn(face: Face, five: Cluster, name: str) -> None:
    client = await face.connected(five)

    def send(what: str) -> str:
        return what

    decorated = client.rate(name, 2, 1000, wait=0)(face.function(send))
    assert [await face.call(decorated, it) for it in ("a", "b")] == ["a", "b"]
    with pytest.raises(RateLimited):
        await face.call(decorated, "c")
