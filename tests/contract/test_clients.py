"""A client: at the start of a program, at its end, what it knows of its nodes, and what it tells observers."""

from __future__ import annotations

import asyncio
import copy
import logging
import pickle
from datetime import timedelta
from typing import Any

import pytest
from contract.cluster import Cluster
from contract.faces import Face
from proof.books import word
from proof.misuse import misuse

from holdfast import ConfigError, LeaseState
from holdfast.errors import LockBusy, LockLost, NoQuorum

TICK = 0.3  # seconds by which a busy machine may be late


# ------------------------------------------------ the nodes


async def test_ready_says_how_the_nodes_are(face: Face, five: Cluster) -> None:
    client = face.client(five)
    before = client.nodes()
    assert [(it.node, it.state, it.version, it.run_id) for it in before] == [(url, "connecting", "", "") for url in five.urls]
    nodes = await face.ready(client)
    assert [(it.node, it.state, it.cause, it.version) for it in nodes] == [(url, "up", None, five.nodes.version) for url in five.urls]
    assert {it.run_id for it in nodes} == five.run_ids
    assert all(it.ahead is not None and abs(it.ahead) < 1 for it in nodes)


async def test_ready_asks_a_node_that_was_up(face: Face, three: Cluster) -> None:
    client = await face.connected(three, node_timeout=0.5)
    await three.freeze(2)
    assert [it.state for it in await face.ready(client)] == ["up", "up", "down"]
    await three.thaw(2)


async def test_ready_without_a_majority(face: Face, three: Cluster) -> None:
    await three.kill(2)
    client = face.client(three)
    assert [it.state for it in await face.ready(client, 2)] == ["up", "up", "down"]  # one is none too few
    assert isinstance(client.nodes()[2].cause, ConnectionRefusedError)
    await three.kill(0)
    cold, began = face.client(three), face.now()
    with pytest.raises(NoQuorum) as caught:
        await face.ready(cold, timedelta(seconds=0.5))
    assert 0.5 <= face.now() - began < 0.5 + 2 * TICK
    assert set(caught.value.causes) == {three.urls[0], three.urls[2]}
    await three.restart(0, 2)
    again = face.client(three, restart_guard=None)
    assert [it.state for it in await face.ready(again)] == ["up"] * 3


async def test_b58_passwords_are_sent_and_never_shown(face: Face, three: Cluster, name: str, caplog: pytest.LogCaptureFixture) -> None:
    assert three.everywhere("CONFIG", "SET", "requirepass", "s3cret") == ["OK"] * 3

    def client(who: str) -> Any:
        return face.keep(face.kind(*[it.replace("//", f"//{who}") for it in three.urls]))

    right = client(":s3cret@")
    await face.ready(right)
    await face.release(await face.acquire(right.lock(name)))
    for who in (":wr0ng@", "us3r:wr0ng@", ""):
        wrong = client(who)
        with pytest.raises(ConfigError, match="password") as caught:
            await face.ready(wrong)
        with pytest.raises(ConfigError, match="these nodes cannot be used:") as refused:
            await face.acquire(wrong.lock(name, wait=0))
        shown = f"{caught.value} {refused.value} {wrong!r} {wrong.nodes()} {wrong.urls} {wrong.settings} {caplog.text}"
        assert "wr0ng" not in shown
        assert "s3cret" not in shown
    assert "s3cret" not in f"{right!r} {right.nodes()} {right.settings}"


async def test_s30_a_node_that_restarted_empty_is_left_alone_until_it_cannot_have_forgotten_anything(
    face: Face, three: Cluster, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    heard: list[Any] = []
    client = await face.connected(three, ttl=0.5, max_ttl=0.5, outage=0.3, observer=heard.append)
    lease = await face.acquire(client.lock(name))
    await face.until(lambda: lease.votes == 3)
    await three.restart(0)
    restarted = face.now()
    await face.until(lambda: client.nodes()[0].state == "guarded")
    await face.until(lambda: [it for it in heard if word(it) == "guarded"])  # (observers are called when all else is done)
    told = [it for it in heard if word(it) == "guarded"]
    assert [it.node for it in told] == [three.urls[0]]
    assert 1.5 < told[0].left <= 2.5
    assert "s left" in str(client.nodes()[0].cause)
    stranger = face.client(three, ttl=0.5, max_ttl=0.5)  # knows nothing of the restart but what the node says of itself
    assert await face.try_acquire(stranger.lock(name)) is None
    await face.until(lambda: stranger.nodes()[0].state == "guarded")
    await face.sleep(0.3)
    assert lease.state is LeaseState.HELD

    await three.restart(1)  # now a majority has forgotten the lease: B-29
    await face.until(lambda: client.nodes()[1].state == "guarded")
    with pytest.raises(NoQuorum) as caught:
        await face.acquire(client.lock(f"{name}/other", wait=0))
    assert "guarded" in str(caught.value.causes[three.urls[0]])
    assert " s left" in str(caught.value)
    waiter = asyncio.create_task(face.acquire(client.lock(name)))  # a guard is no outage
    await face.until_lost(lease)
    assert not waiter.done()
    assert [three.ask(node, "DBSIZE") for node in (0, 1)] == [0, 0]
    second = await waiter
    acquired = face.now() - restarted
    assert 2.4 < acquired < 2.5 + 6 * TICK
    assert second.fence > lease.fence
    await face.release(second)
    await face.until(lambda: [it.state for it in client.nodes()] == ["up"] * 3)
    kinds = [word(it) for it in heard if getattr(it, "node", "") == three.urls[0]]
    assert kinds == ["up", "down", "guarded", "up"]
    guarded = [it for it in caplog.records if it.name == "holdfast.node" and "left alone" in it.message and three.urls[0] in it.message]
    assert [it.levelno for it in guarded] == [logging.WARNING] * 2  # one for each client


async def test_a_node_that_is_away_is_told_of_once(face: Face, three: Cluster, name: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "holdfast.node")
    heard: list[Any] = []
    client = await face.connected(three, observer=heard.append, restart_guard=None)
    await face.until(lambda: len(heard) == 3)
    assert {word(it) for it in heard} == {"up"}
    await three.kill(1)
    await face.until(lambda: client.nodes()[1].state == "down")
    await face.sleep(0.3)  # it is dialled again and again
    assert [word(it) for it in heard[3:]] == ["down"]
    assert heard[3].node == three.urls[1]
    assert isinstance(heard[3].cause, OSError)
    await three.restart(1)
    await face.until(lambda: client.nodes()[1].state == "up")
    await face.until(lambda: len(heard) == 5)
    assert word(heard[4]) == "up"

    def logged() -> list[int]:
        return [it.levelno for it in caplog.records if it.name == "holdfast.node" and three.urls[1] in it.message]

    # The log has a thread, or turns, of its own.
    await face.until(lambda: len(logged()) == 3)
    assert logged() == [logging.INFO, logging.WARNING, logging.INFO]
    await face.release(await face.acquire(client.lock(name)))


# ------------------------------------------------ the end


async def test_close_releases_and_tells_everybody(face: Face, five: Cluster, name: str) -> None:
    client, other = await face.connected(five), await face.connected(five)
    told: list[Any] = []
    lease = await face.acquire(client.lock(name, on_lost=told.append))
    elsewhere = await face.acquire(other.lock(f"{name}/other"))
    waiter = asyncio.create_task(face.acquire(client.lock(f"{name}/other")))
    next_one = asyncio.create_task(face.acquire(other.lock(name)))
    await face.until(lambda: min(five.waiters(name)) == min(five.waiters(f"{name}/other")) == 1)
    began = face.now()
    await asyncio.gather(face.close(client), face.close(client))
    with misuse("closed"):
        await waiter
    second = await next_one
    assert face.now() - began < 3 * TICK
    assert (lease.state, told) == (LeaseState.LOST, [lease])
    with pytest.raises(LockLost) as caught:
        await face.release(lease)
    assert caught.value.reason == "closed"
    await face.until(lambda: max(five.waiters(f"{name}/other")) == 0)
    await face.close(client)
    for wants in (client.lock(name).acquire, client.lock(name).try_acquire, client.ready):
        with misuse("closed"):
            await face.call(wants)
    assert second.held
    await face.release(second)
    await face.release(elsewhere)


async def test_a_closed_client_is_opened_again_by_entering_it(face: Face, five: Cluster, name: str) -> None:
    """A client at module level is entered by each test and each lifespan; descriptions that were made before go on working."""
    client = await face.connected(five)
    lock, rate = client.lock(name, wait=5), client.rate(f"{name}/rate", 100, 1)
    before = await face.acquire(lock)
    for _ in range(3):
        await face.close(client)
        for wants in (lock.acquire, rate.take, client.ready):
            with misuse("closed", match="`with client:`"):
                await face.call(wants)
        entered = client.__aenter__ if hasattr(client, "__aenter__") else client.__enter__
        assert await face.call(entered) is client
        assert await face.call(entered) is client, "an open client stays as it is"
        assert [it.state for it in await face.ready(client)] == ["up"] * 5
        lease = await face.acquire(lock)
        assert lease.held
        assert lease.fence > before.fence
        assert (await face.call(rate.take)).allowed
        assert before.state is LeaseState.LOST, "what was held when it was closed stays lost"
        await face.release(lease)
        with pytest.raises(LockLost):
            before.check()


async def test_a_lease_of_before_does_not_touch_the_client_that_was_opened_again(face: Face, five: Cluster, name: str) -> None:
    client, other = await face.connected(five), await face.connected(five)
    lock = client.lock(name, wait=5, ttl=1)
    before = await face.acquire(lock)
    waiter = asyncio.create_task(face.acquire(other.lock(name, wait=5)))
    await face.until(lambda: min(five.waiters(name)) == 1)
    await face.close(client)
    await face.call(client.__aenter__ if hasattr(client, "__aenter__") else client.__enter__)
    held = await waiter
    with pytest.raises(LockLost):
        await face.release(before)
    with pytest.raises(LockBusy):
        await face.acquire(client.lock(name, wait=0))
    assert held.held
    await face.release(held)


async def test_close_does_not_wait_for_nodes_that_are_away(face: Face, three: Cluster, name: str) -> None:
    client = await face.connected(three, node_timeout=0.3)
    lease = await face.acquire(client.lock(name))
    await face.until(lambda: lease.votes == 3)  # (what a node has not yet read, it may execute after anything)
    await three.freeze(0, 1)
    extension = asyncio.create_task(face.extend(lease))
    await face.sleep(0.2)
    began = face.now()
    await face.close(client)  # nodes that owe an answer for 0.3 s are hung up with a reset: not now any more
    assert face.now() - began < 0.3 + 2 * TICK
    with pytest.raises(LockLost):
        await extension
    assert not lease.held
    await three.thaw(0, 1)
    await face.until(lambda: three.holders(name) == [None] * 3, within=5)  # what was sent arrives, now that they listen


async def test_a_client_that_nobody_used_can_be_closed(face: Face, five: Cluster) -> None:
    await face.close(face.client(five))
    async with face.nodes(1) as one:
        client = face.client(one)
        await face.ready(client)
        await face.close(client)


# ------------------------------------------------ on its own


async def test_local_brings_its_own_nodes(face: Face, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    client = face.keep(face.kind.local(nodes=3, ttl=5))  # type: ignore[attr-defined]  # (of a real face)
    nodes = Cluster(client.servers)
    assert client.urls == nodes.urls
    lease = await face.acquire(client.lock(name, wait=0))  # without a guard

    monkeypatch.setenv("HOLDFAST_NODES", " ".join(client.urls))
    other = face.keep(face.kind())
    assert other.urls == client.urls
    assert await face.try_acquire(other.lock(name)) is None
    await face.release(lease)
    await face.release(await face.acquire(other.lock(name)))
    monkeypatch.setenv("HOLDFAST_NODES", " , ".join(client.urls[:2]))
    pair = face.keep(face.kind())
    assert pair.urls == client.urls[:2]
    await face.release(await face.acquire(pair.lock(name, wait=0)))
    await nodes.kill(0)
    await face.release(await face.acquire(client.lock(name)))
    await face.close(client)
    with pytest.raises(OSError, match=r"refused|No such file"):
        nodes.ask(1, "PING")


async def test_what_goes_to_another_process(face: Face, three: Cluster, name: str) -> None:
    client = await face.connected(three)
    lease = await face.acquire(client.lock(name))
    for copied in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="hand_over"):
            copied(lease)
    await face.release(lease)
