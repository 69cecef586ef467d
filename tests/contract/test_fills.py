"""Fills: one computes and the others wait, find, or are shown what is stale; what is kept where; and what is refused; over every driver."""

from __future__ import annotations

import asyncio
import json
import pickle
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any, cast

import pytest
from contract.cluster import Cluster
from contract.faces import Face, Script, Threads

from holdfast import Found
from holdfast.errors import ConfigError, LockBusy, NoQuorum
from holdfast.events import Opened
from holdfast.protocol.exclusive import beside


class Work:
    """What is to be computed: `compute` is of the kind that a face calls. While `shut`, it takes its time."""

    def __init__(self, face: Face, makes: Callable[[int], Any] = lambda count: count) -> None:
        self.face, self.makes, self.shut = face, makes, False
        self.began = self.going = 0

    @property
    def compute(self) -> Callable[[], Any]:
        return cast(Callable[[], Any], self.face.function(self._computes))

    def _computes(self) -> Script[Any]:
        self.began, self.going = self.began + 1, self.going + 1
        count = self.began
        try:
            while self.shut:
                yield lambda: time.sleep(0.002) if isinstance(self.face, Threads) else asyncio.sleep(0.002)
            return self.makes(count)
        finally:
            self.going -= 1

    async def goes_on(self) -> None:
        await self.face.until(lambda: self.going)


def key(name: str) -> str:
    """Where a value is on the nodes."""
    return beside(f"{name}[fill]".encode(), b"cache").decode()


async def test_what_was_computed_is_found(face: Face, five: Cluster, name: str) -> None:
    client, other, work = await face.connected(five), await face.connected(five), Work(face, lambda count: {"n": count})
    fill = client.fill(name, 60, work.compute, stale=5)
    assert (fill.name, fill.ttl, fill.stale) == (name, 60.0, 5.0)
    assert await face.call(fill.get) == Found(value={"n": 1}, computed=True)
    for it in (fill, other.fill(name, timedelta(minutes=1), work.compute)):
        assert await face.call(it.get) == Found(value={"n": 1})
    await face.until(lambda: all(five.everywhere("GET", key(name))))
    assert all(it.endswith(':5000:60000 {"n":1}') for it in five.everywhere("GET", key(name)))
    assert all(55_000 < it <= 65_000 for it in five.everywhere("PTTL", key(name)))
    await face.until(lambda: five.holders(f"{name}[fill]") == [None] * 5)


async def test_all_wait_for_the_one_who_computes(face: Face, five: Cluster, name: str) -> None:
    clients, work = [await face.connected(five) for _ in range(2)], Work(face)
    work.shut = True
    tasks = [asyncio.create_task(face.call(client.fill(name, 60, work.compute).get)) for client in clients for _ in range(4)]
    await face.until(lambda: min(five.waiters(f"{name}[fill]")) == 7)
    work.shut = False
    found = await asyncio.gather(*tasks)
    assert [it.value for it in found] == [1] * 8
    assert work.began == 1
    [first] = [it for it in found if it.computed]
    assert all(it.waited > 0 for it in found if it is not first)
    assert not any(it.stale or it.cause for it in found)
    await face.until(lambda: five.waiters(f"{name}[fill]") == [0] * 5)
    await face.until(lambda: five.holders(f"{name}[fill]") == [None] * 5)


async def test_while_one_computes_anew_the_others_are_shown_what_is_stale(face: Face, five: Cluster, name: str) -> None:
    # Rule FI2.
    client, work = await face.connected(five), Work(face)
    fill = client.fill(name, 0.3, work.compute, stale=60)
    await face.call(fill.get)
    await face.sleep(0.4)
    work.shut = True
    computer = asyncio.create_task(face.call(fill.get))
    await work.goes_on()
    for _ in range(3):
        assert await face.call(fill.get) == Found(value=1, stale=True)
    choosy = client.fill(name, 60, work.compute, wait=0)
    with pytest.raises(LockBusy):
        await face.call(choosy.get)  # who names no `stale` is not shown what is, whatever the others say
    work.shut = False
    assert await computer == Found(value=2, computed=True)
    assert work.began == 2


@pytest.mark.parametrize("value", [None, 0, "", False, [], {"a": [1, None, "ä"]}])
async def test_any_value_is_one(face: Face, five: Cluster, name: str, value: Any) -> None:
    client, work = await face.connected(five), Work(face, lambda count: value)
    for computed in (True, False):
        assert await face.call(client.fill(name, 60, work.compute).get) == Found(value=value, computed=computed)


async def test_everybody_gets_what_is_kept(face: Face, five: Cluster, name: str) -> None:
    """Also whoever computed it: else what JSON makes of it would show with the second call only."""
    client, work = await face.connected(five), Work(face, lambda count: (1, {2: 3}))
    assert (await face.call(client.fill(name, 60, work.compute).get)).value == [1, {"2": 3}]
    pickled = client.fill(f"{name}.2", 60, work.compute, serializer=pickle)
    assert (await face.call(pickled.get)).value == (1, {2: 3})
    assert await face.call(pickled.get) == Found(value=(1, {2: 3}))


async def test_what_cannot_be_kept_is_told_and_nobody_is_kept_waiting(face: Face, five: Cluster, name: str) -> None:
    client = await face.connected(five)
    for value, told in ((object(), "JSON cannot make bytes of a value of type object"), ("a" * (1 << 20), "at most 1048576 are kept")):
        with pytest.raises(ConfigError, match=told):
            await face.call(client.fill(name, 60, Work(face, lambda count, value=value: value).compute).get)  # type: ignore[misc]  # (mypy knows no type of a default in a loop)
        await face.until(lambda: five.holders(f"{name}[fill]") == [None] * 5)
    large = "a" * ((1 << 20) - 2)
    for computed in (True, False):
        assert await face.call(client.fill(name, 60, Work(face, lambda count: large).compute).get) == Found(value=large, computed=computed)


async def test_what_cannot_be_read_is_computed_anew(face: Face, five: Cluster, name: str) -> None:
    client, work = await face.connected(five), Work(face)
    await face.call(client.fill(name, 60, work.compute, serializer=pickle).get)
    assert await face.call(client.fill(name, 60, work.compute, serializer=json).get) == Found(value=2, computed=True)
    assert await face.call(client.fill(name, 60, work.compute).get) == Found(value=2)


async def test_without_a_majority(face: Face, three: Cluster, name: str) -> None:
    # Rule FI7.
    heard: list[Any] = []
    options = {"observer": heard.append}
    client, work = await face.connected(three, outage=0.5, **options), Work(face)
    await face.call(client.fill(name, 60, work.compute).get)
    await face.call(client.fill(f"{name}.old", 0.1, work.compute, stale=60).get)
    await face.until(lambda: all(three.everywhere("GET", key(name)) + three.everywhere("GET", key(f"{name}.old"))))
    await three.kill(0, 1)
    await face.until(lambda: [it.state for it in client.nodes()] == ["down", "down", "up"])
    await face.sleep(0.2)
    fresh = await face.call(client.fill(name, 60, work.compute).get)
    assert (fresh.value, fresh.stale, fresh.computed) == (1, False, False), "a fresh value is one wherever it is"
    assert isinstance(fresh.cause, NoQuorum), "and who is given it is told that a majority was not heard"
    old = await face.call(client.fill(f"{name}.old", 60, work.compute, stale=60).get)
    assert (old.value, old.stale, old.computed) == (2, True, False), "and what is stale is better than nothing"
    assert isinstance(old.cause, NoQuorum)
    with pytest.raises(NoQuorum, match=f"could not acquire '{name}.new'") as caught:
        await face.call(client.fill(f"{name}.new", 60, work.compute).get)
    assert set(caught.value.causes) == set(three.urls[:2])
    for count in (3, 4):
        found = await face.call(client.fill(f"{name}.new", 60, work.compute, fail_open=True).get)
        assert (found.value, found.computed, found.stale) == (count, True, False), "computed without the lock, and not kept"
        assert isinstance(found.cause, NoQuorum)
        assert "could not look up" in str(found.cause), "at once"
        assert set(found.cause.causes) == set(three.urls[:2])
    await face.until(lambda: sum(isinstance(it, Opened) and it.name == f"{name}.new" for it in heard) == 2)


async def test_what_somebody_computed_who_lost_the_lock_is_still_his_value(face: Face, five: Cluster, name: str) -> None:
    client, first, second = await face.connected(five), Work(face, lambda count: "first"), Work(face, lambda count: "second")
    first.shut = True
    loser = asyncio.create_task(face.call(client.fill(name, 60, first.compute).get))
    await first.goes_on()
    assert await face.call(client.force_release, f"{name}[fill]", "a test") >= 3
    assert await face.call(client.fill(name, 60, second.compute).get) == Found(value="second", computed=True)
    first.shut = False
    assert await loser == Found(value="first", computed=True), "computing was not interrupted"
    await face.sleep(0.1)
    assert all(it.endswith('"second"') for it in five.everywhere("GET", key(name))), "and replaces nothing"


async def test_who_computes_when_the_client_is_closed_has_its_value(face: Face, five: Cluster, name: str) -> None:
    client, work = await face.connected(five), Work(face)
    work.shut = True
    computer = asyncio.create_task(face.call(client.fill(name, 60, work.compute).get))
    await work.goes_on()
    await face.close(client)
    work.shut = False
    assert await computer == Found(value=1, computed=True)


# ------------------------------------------------ what is looked at, and what is dropped


async def test_a_look_computes_nothing(face: Face, five: Cluster, name: str) -> None:
    client, work = await face.connected(five), Work(face)
    fill = client.fill(name, 0.3, work.compute, stale=60)
    assert await face.call(fill.peek) is None
    await face.call(fill.get)
    assert await face.call(fill.peek) == Found(value=1)
    await face.sleep(0.4)
    assert await face.call(fill.peek) == Found(value=1, stale=True)
    assert await face.call(client.fill(name, 0.3, work.compute).peek) is None, "without `stale`, nothing that is"
    assert work.began == 1


async def test_a_value_that_is_dropped_is_computed_again(face: Face, five: Cluster, name: str) -> None:
    client, other, work = await face.connected(five), await face.connected(five), Work(face)
    fill = client.fill(name, 60, work.compute, stale=60)
    await face.call(fill.invalidate)  # nothing is there yet
    assert await face.call(fill.get) == Found(value=1, computed=True)
    await face.call(other.fill(name, 60, work.compute).invalidate)
    assert await face.call(fill.peek) is None, "nor is it shown as stale"
    assert await face.call(fill.get) == Found(value=2, computed=True)
    assert await face.call(other.fill(name, 60, work.compute).get) == Found(value=2)


async def test_a_value_that_was_being_computed_is_not_kept(face: Face, five: Cluster, name: str) -> None:
    client, work = await face.connected(five), Work(face)
    fill = client.fill(name, 60, work.compute)
    work.shut = True
    computer = asyncio.create_task(face.call(fill.get))
    await work.goes_on()
    began = face.now()
    await face.call(fill.invalidate)
    assert face.now() - began < 5, "nobody is waited for"
    work.shut = False
    assert await computer == Found(value=1, computed=True), "its own caller gets it"
    assert await face.call(fill.get) == Found(value=2, computed=True)
    assert await face.call(fill.get) == Found(value=2)


async def test_each_caller_s_own_ttl_says_how_old_a_value_may_be(face: Face, five: Cluster, name: str) -> None:
    client, work = await face.connected(five), Work(face)
    patient = client.fill(name, 60, work.compute)
    assert await face.call(patient.get) == Found(value=1, computed=True)
    await face.sleep(0.5)
    assert await face.call(patient.get) == Found(value=1)
    hasty = client.fill(name, 0.4, work.compute)
    assert await face.call(hasty.peek) is None
    assert (await face.call(client.fill(name, 0.4, work.compute, stale=60).peek)).stale, "older than its ttl, and it may be shown"
    assert await face.call(hasty.get) == Found(value=2, computed=True)
    await face.sleep(0.5)
    assert await face.call(patient.get) == Found(value=3, computed=True), "and nobody takes it for longer than whoever computed it said"


async def test_in_a_mapping_whoever_computes_is_waited_for(face: Face, five: Cluster, name: str) -> None:
    mine: dict[str, Any] = {}
    client, work = await face.connected(five), Work(face)
    fill = client.fill(name, 60, work.compute, cache=mine)
    assert await face.call(fill.peek) is None
    await face.call(fill.invalidate)
    await face.call(fill.get)
    assert await face.call(fill.peek) == Found(value=1)
    await face.call(fill.invalidate)
    assert not mine
    work.shut = True
    computer = asyncio.create_task(face.call(fill.get))
    await work.goes_on()
    with pytest.raises(LockBusy):
        await face.call(client.fill(name, 60, work.compute, cache=mine, wait=0).invalidate)
    waiter = asyncio.create_task(face.call(fill.invalidate))
    await face.until(lambda: min(five.waiters(f"{name}[fill]")) == 1)
    work.shut = False
    assert (await computer).value == 2
    await waiter
    assert not mine, "what had been read before is not kept"
    await face.until(lambda: five.holders(f"{name}[fill]") == [None] * 5)


# ------------------------------------------------ in a mapping


async def test_in_a_mapping_values_are_as_they_were_made(face: Face, five: Cluster, name: str) -> None:
    mine: dict[str, Any] = {}
    client, work = await face.connected(five, prefix="app:"), Work(face, lambda count: (count, object))
    began = face.wall()
    assert await face.call(client.fill(name, 60, work.compute, cache=mine).get) == Found(value=(1, object), computed=True)
    assert await face.call(client.fill(name, 60, work.compute, cache=mine).get) == Found(value=(1, object))
    [(value, until)] = [mine.pop(f"app:{name}")]
    assert value == (1, object)
    assert began + 59 < until < face.wall() + 61
    assert not mine
    assert five.everywhere("GET", key(f"app:{name}")) == [None] * 5


async def test_what_is_stale_in_a_mapping(face: Face, five: Cluster, name: str) -> None:
    client, work = await face.connected(five), Work(face)
    mine: dict[str, Any] = {name: ["old", face.wall() - 5]}
    fill = client.fill(name, 60, work.compute, cache=mine, stale=1000)
    work.shut = True
    computer = asyncio.create_task(face.call(fill.get))
    await work.goes_on()
    assert await face.call(fill.get) == Found(value="old", stale=True)
    with pytest.raises(LockBusy):
        await face.call(client.fill(name, 60, work.compute, cache=mine, stale=1, wait=0).get)
    work.shut = False
    assert await computer == Found(value=1, computed=True)
    for odd in (None, "text", 5, (1, 2, 3), ("value", "until"), ()):
        mine[name] = odd
        assert (await face.call(fill.get)).computed, "what somebody else has put there is no value"


async def test_who_has_lost_the_lock_does_not_write_into_a_mapping(face: Face, five: Cluster, name: str) -> None:
    mine: dict[str, Any] = {}
    client, work = await face.connected(five), Work(face)
    work.shut = True
    loser = asyncio.create_task(face.call(client.fill(name, 60, work.compute, cache=mine).get))
    await work.goes_on()
    assert await face.call(client.force_release, f"{name}[fill]", "a test") >= 3
    await face.sleep(0.1)
    work.shut = False
    assert await loser == Found(value=1, computed=True)
    assert not mine


# ------------------------------------------------ decorated


async def test_a_decorated_function_computes_once_for_each_key(face: Face, five: Cluster, name: str) -> None:
    client, calls = await face.connected(five), list[tuple[str, int]]()

    def price(item: str, tax: int = 0) -> tuple[str, int]:
        calls.append((item, tax))
        return item, tax

    decorated = client.filled(name + ":{item}", 60, serializer=pickle)(face.function(price))
    assert [await face.call(decorated, *it) for it in (("a",), ("a", 7), ("b",))] == [("a", 0), ("a", 0), ("b", 0)]
    assert calls == [("a", 0), ("b", 0)]
