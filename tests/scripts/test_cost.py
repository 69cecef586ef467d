"""What the scripts cost a node, in commands: these numbers may fall, and must not rise."""

from __future__ import annotations

from scripts.bench import INBOXES, LONG, NAME, Bench, K, keys


def test_a_free_name_costs_three(bench: Bench) -> None:
    first, second, third = bench.token(1), bench.token(2), bench.token(3)
    usual = K * 3 // 4  # ms: the longest lease whose fence record lasts until it is renewed
    assert bench.cost(lambda: bench.client.say(*bench.words(first, usual))) == {"set": 2, "exists": 1, "time": 1}  # a fresh one: four
    bench.release(first)
    assert bench.cost(lambda: bench.client.say(*bench.words(second, usual))) == {"set": 2, "exists": 1}
    bench.release(second)
    assert bench.cost(lambda: bench.client.say(*bench.words(third, usual + 1))) == {"set": 2, "exists": 1, "pttl": 1}


def test_giving_it_back_costs_three(bench: Bench) -> None:
    token = bench.token(1)
    bench.request(token)
    release = bench.release_words(token)
    assert bench.cost(lambda: bench.client.say(*release)) == {"get": 1, "del": 1, "exists": 1}


def test_a_renewal(bench: Bench) -> None:
    token = bench.token(1)
    bench.request(token)
    renewal = bench.words(token, 2 * LONG, "k")
    assert bench.cost(lambda: bench.client.say(*renewal)) == {"get": 2, "exists": 1, "pttl": 2, "pexpire": 1}


def test_asking_again_for_what_one_has(bench: Bench) -> None:
    token = bench.token(1)
    bench.request(token)
    again = bench.words(token, 2 * LONG)
    assert bench.cost(lambda: bench.client.say(*again)) == {"set": 1, "time": 1, "get": 2, "zrange": 1, "pttl": 2, "pexpire": 1}


def test_a_renewal_that_keeps_the_fence_record_costs_one_more(bench: Bench) -> None:
    """With the default settings that is every fifth renewal."""
    token = bench.token(1)
    bench.request(token)
    bench.operator.say("PEXPIRE", keys(NAME)[1], LONG)
    renewal = bench.words(token, 2 * LONG, "k")
    assert bench.cost(lambda: bench.client.say(*renewal)) == {"get": 2, "exists": 1, "pttl": 2, "pexpire": 2}


def test_waiting(bench: Bench) -> None:
    waiter = bench.words(bench.token(2))
    bench.request(bench.token(1))
    heartbeat = {"set": 1, "time": 1, "get": 3, "zadd": 1, "hset": 1, "pttl": 3, "zrank": 1}
    assert bench.cost(lambda: bench.client.say(*waiter)) == {**heartbeat, "pexpire": 2}
    bench.place.pass_time(0.002)
    assert bench.cost(lambda: bench.client.say(*waiter)) == {**heartbeat, "hget": 1, "pexpire": 2}


def test_handing_on(bench: Bench) -> None:
    bench.connect(INBOXES[0])
    holder, waiter = bench.token(1), bench.token(2)
    bench.request(holder)
    bench.request(waiter)
    release = bench.release_words(holder)
    told = {"get": 2, "del": 1, "exists": 1, "zrem": 1, "time": 1, "zpopmin": 1, "hget": 1, "hdel": 1, "set": 2, "publish": 1}
    assert bench.cost(lambda: bench.client.say(*release)) == told
    assert bench.see(NAME).holder == waiter
