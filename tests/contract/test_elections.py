"""Elections: who leads, what others see of it, who takes over and when; over every driver."""

from __future__ import annotations

import asyncio
import gc
import threading
from typing import Any

import pytest
from contract.cluster import Cluster
from contract.faces import Face, Threads
from proof.misuse import misuse

from holdfast import Leader
from holdfast.errors import ConfigError, LockBusy, LockLost, Misuse, NoQuorum
from holdfast.face.lease import LeaseState


class Eyes:
    """Somebody who looks on: `look` waits for the next change; None: there will be none."""

    def __init__(self, observation: Any) -> None:
        self._observation, self._driver = observation, observation._driver

    def look(self) -> Any:
        return next(self._observation, None) if hasattr(self._observation, "__next__") else self._anext()

    async def _anext(self) -> Leader | None:
        return await anext(self._observation, None)


async def look(face: Face, eyes: Eyes) -> Leader:
    """The next change."""
    found = await asyncio.wait_for(face.call(eyes.look), 60)
    assert found is not None
    return found


async def seen(face: Face, eyes: Eyes, value: str | None) -> Leader:
    """The next leader with this value (None: nobody), whatever else is seen before."""
    while (found := await look(face, eyes)).value != value or not found.certain:
        pass
    return found


def what(leader: Leader) -> tuple[int, int, str | None, bool]:
    return leader.term, leader.version, leader.value, leader.certain


def registered(nodes: Cluster, name: str) -> list[int]:
    """How many watch, on each node."""
    return nodes.everywhere("ZCARD", f"{{{name}[election]}}:watchers")


# ------------------------------------------------ who leads


async def test_one_leads_and_everybody_can_see_who(face: Face, five: Cluster, name: str) -> None:
    client, other = await face.connected(five), await face.connected(five)
    election, its = client.election(name, "here:1"), other.election(name, "there:2", wait=0)
    assert (election.name, election.ttl) == (name, 10)
    nobody = await face.call(its.leader)
    assert (what(nobody), bool(nobody), nobody.name) == ((0, 0, None, True), False, name)
    leadership = await face.call(election.campaign)
    assert (leadership.is_leader, leadership.held, leadership.state, leadership.name) == (True, True, LeaseState.HELD, name)
    assert leadership.term == leadership.fence == leadership.fences[f"{name}[election]"]
    assert repr(leadership).startswith(f"<Leadership {name!r} fence={leadership.term} ")
    leader = await face.call(its.leader)
    assert (what(leader), bool(leader)) == ((leadership.term, 1, "here:1", True), True)
    assert what(await face.call(election.leader)) == what(leader), "the leader, too"
    with pytest.raises(LockBusy):
        await face.call(its.campaign)
    assert await face.try_acquire(its) is None
    await face.call(leadership.resign, True)
    assert (leadership.is_leader, leadership.state) == (False, LeaseState.RELEASED)
    with misuse("not_held"):
        leadership.check()
    assert what(await face.call(its.leader)) == (leadership.term, 0, None, True), "and of the last term nobody is left"
    again = await face.call(its.campaign)
    assert again.term > leadership.term
    assert await face.call(again.resign, True) >= 3
    assert await face.call(leadership.resign) == 0, "twice is nothing"


async def test_it_is_a_lock_of_its_own(face: Face, five: Cluster, name: str) -> None:
    client = await face.connected(five)
    leadership = await face.call(client.election(name).campaign)
    status = await face.call(client.inspect, f"{name}[election]")
    assert (status.state, status.holder, status.fence) == ("held", leadership.token, leadership.term)
    assert f"{name}[election]" in await face.call(client.names, f"{name}*")
    with pytest.raises(Misuse, match="only a write lease"):
        await face.call(leadership.downgrade)
    assert await face.extend(leadership, 20) > 15
    await face.release(leadership)


async def test_standbys_take_over_in_order_and_at_once(face: Face, five: Cluster, name: str) -> None:
    clients = [await face.connected(five, ttl=30) for _ in range(3)]
    leadership = await face.call(clients[0].election(name, "0").campaign)
    waiting = []
    for number, client in enumerate(clients[1:], 1):
        waiting.append(asyncio.ensure_future(face.call(client.election(name, str(number)).campaign)))
        await face.until(lambda number=number: five.waiters(f"{name}[election]").count(number) >= 3)  # type: ignore[misc]  # (mypy knows no type of a default in a loop)
    for number, waiter in enumerate(waiting, 1):
        began = face.now()
        await face.call(leadership.resign)
        then, leadership = leadership.term, await asyncio.wait_for(waiter, 20)
        assert leadership.term > then
        assert face.now() - began < 10, "at once, and not after a ttl"
        leader = await face.call(clients[0].election(name).leader)
        assert (leader.term, leader.value) in ((leadership.term, str(number)), (then, None)), "nobody waits for the first word"
    await face.call(leadership.resign)


async def test_whoever_is_forced_out_is_told_and_everybody_sees_it(face: Face, five: Cluster, name: str) -> None:
    lost: list[Any] = []
    client, other = await face.connected(five, ttl=30), await face.connected(five, ttl=30)
    leadership = await face.call(client.election(name, "boss", on_lost=lost.append).campaign)
    eyes = Eyes(other.election(name).observe())
    assert (await look(face, eyes)).value == "boss"
    await face.call(other.force_release, f"{name}[election]", "a test")
    assert (await look(face, eyes)).value is None
    await face.until_lost(leadership)
    assert (leadership.is_leader, leadership.state) == (False, LeaseState.LOST)
    await face.until(lambda: lost == [leadership])
    with pytest.raises(LockLost, match="forced"):
        await face.call(leadership.publish, "late")
    with pytest.raises(LockLost, match="forced"):
        await face.call(leadership.resign)


# ------------------------------------------------ what is said


async def test_a_leader_says_something_else(face: Face, five: Cluster, name: str) -> None:
    # Rule E3.
    client, other = await face.connected(five), await face.connected(five)
    leadership = await face.call(client.election(name, "a").campaign)
    for version, value in enumerate(["b", "", "two words\n{}", "x" * 65536], 2):
        await face.call(leadership.publish, value)
        assert what(await face.call(other.election(name).leader)) == (leadership.term, version, value, True), "as soon as it is published"
    for wrong, told in ((5, "is text, not 5"), ("x" * 65537, "at most 65536"), (None, "is text")):
        with pytest.raises(ConfigError, match=told):
            await face.call(leadership.publish, wrong)
    assert (await face.call(other.election(name).leader)).version == 5, "nothing of that was said"
    await face.call(leadership.resign)
    with misuse("not_held"):
        await face.call(leadership.publish, "late")


# ------------------------------------------------ who looks on


async def test_who_looks_on_sees_each_change_in_order(face: Face, five: Cluster, name: str) -> None:
    client, other = await face.connected(five, ttl=30), await face.connected(five, ttl=30)
    eyes = Eyes(other.election(name).observe())
    assert what(await look(face, eyes)) == (0, 0, None, True), "how it is now comes first"
    for _ in range(2):
        began = face.now()
        leadership = await face.call(client.election(name, "a").campaign)
        assert what(await look(face, eyes)) == (leadership.term, 1, "a", True)
        await face.call(leadership.publish, "b")
        assert what(await look(face, eyes)) == (leadership.term, 2, "b", True)
        await face.call(leadership.resign)
        assert what(await look(face, eyes)) == (leadership.term, 0, None, True)
        assert face.now() - began < 15, "it is told, and does not look once a ttl"


async def test_who_looks_on_may_stop(face: Face, five: Cluster, name: str) -> None:
    client = await face.connected(five, ttl=0.3)
    began = face.now()
    eyes = Eyes(client.election(name).observe(wait=0.7))
    assert await face.call(eyes.look) == Leader(name=name, term=0, version=0, value=None)
    assert await face.call(eyes.look) is None
    assert 0.69 < face.now() - began < 10
    assert await face.call(eyes.look) is None, "and that is the end"
    eyes = Eyes(client.election(name).observe(wait=0))
    assert not await face.call(eyes.look)
    assert await face.call(eyes.look) is None
    assert sum(registered(five, name)) > 0
    del eyes
    await face.until(lambda: registered(five, name) == [0] * 5)  # two ttls later


async def test_who_looks_on_may_be_stopped(face: Face, five: Cluster, name: str) -> None:
    client, cancel = await face.connected(five), threading.Event()
    eyes = Eyes(client.election(name).observe(**{"cancel": cancel} if isinstance(face, Threads) else {}))
    assert not await look(face, eyes)
    looking = asyncio.ensure_future(face.call(eyes.look))
    await face.sleep(0.1)
    assert not looking.done()
    if isinstance(face, Threads):
        cancel.set()
        assert await asyncio.wait_for(looking, 10) is None
        return
    looking.cancel()
    await asyncio.wait([looking])
    del looking, eyes  # (and with it the way that the cancellation went)
    gc.collect()
    driver = client._driver()
    assert (len(driver.engine.watches), driver.waiting.news, driver.engine.queries) == (0, [], {})


async def test_who_looks_on_when_the_client_is_closed(face: Face, five: Cluster, name: str) -> None:
    client = await face.connected(five)
    eyes = Eyes(client.election(name).observe())
    assert not await look(face, eyes)
    looking = asyncio.ensure_future(face.call(eyes.look))
    await face.sleep(0.1)
    await face.close(client)
    with misuse("closed"):
        await asyncio.wait_for(looking, 10)


# ------------------------------------------------ nodes that fail


async def test_without_a_majority_nobody_can_know(face: Face, three: Cluster, name: str) -> None:
    client, other = await face.connected(three, ttl=20), await face.connected(three, ttl=0.9)
    leadership = await face.call(client.election(name, "a").campaign)
    eyes = Eyes(other.election(name).observe())
    await seen(face, eyes, "a")
    await three.freeze(0, 1)
    assert what(await look(face, eyes)) == (leadership.term, 1, "a", False), "what was known, and that it is not certain"
    with pytest.raises(NoQuorum, match="could not publish"):
        await face.call(leadership.publish, "b")
    await three.thaw(0, 1)
    assert (await seen(face, eyes, "b")).version == 2, "it goes along with a renewal at the latest"
    assert leadership.is_leader
    await face.call(leadership.resign)
