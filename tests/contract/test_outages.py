"""Each call without a majority: nothing is done, and the error names what was asked for, and the nodes that are away."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from contract.cluster import Cluster
from contract.faces import Face

from holdfast.errors import NoQuorum


def never() -> None:
    raise AssertionError("it runs without a lock")


# What is called, and what the error says that could not be done.
CALLS: dict[str, tuple[Callable[[Any, str, Any], Callable[..., Any]], str]] = {
    "lock.acquire": (lambda client, name, _: client.lock(name).acquire, "acquire"),
    "rate.take": (lambda client, name, _: client.rate(name, 2, 1000).take, "take from"),
    "rate.acquire": (lambda client, name, _: client.rate(name, 2, 1000).acquire, "take from"),
    "rate.peek": (lambda client, name, _: client.rate(name, 2, 1000).peek, "look at"),
    "rate.reset": (lambda client, name, _: client.rate(name, 2, 1000).reset, "reset"),
    "latch.arrive": (lambda client, name, _: client.latch(name, 2).arrive, "arrive at"),
    "latch.arrived": (lambda client, name, _: client.latch(name, 2).arrived, "look at"),
    "latch.is_open": (lambda client, name, _: client.latch(name, 2).is_open, "look at"),
    "latch.wait": (lambda client, name, _: client.latch(name, 2).wait, "wait at"),
    "latch.wait, wait=0": (lambda client, name, _: client.latch(name, 2, wait=0).wait, "wait at"),
    "barrier.wait": (lambda client, name, _: partial(client.barrier(name, 2).wait, "a"), "wait at"),
    "barrier.wait, wait=0": (lambda client, name, _: partial(client.barrier(name, 2, wait=0).wait, "a"), "wait at"),
    "election.campaign": (lambda client, name, _: client.election(name).campaign, "acquire"),
    "election.leader": (lambda client, name, _: client.election(name).leader, "look for the leader of"),
    "once.run": (lambda client, name, does: partial(client.once(name, keep=60).run, does), "acquire"),
    "once.result": (lambda client, name, _: client.once(name, keep=60).result, "look for the result of"),
    "once.result, per": (lambda client, name, _: client.once(name, keep=60, per=60).result, "find the slot of"),
    "fill.get": (lambda client, name, does: client.fill(name, 60, does).get, "acquire"),
    "fill.peek": (lambda client, name, does: client.fill(name, 60, does).peek, "look up"),
    "fill.invalidate": (lambda client, name, does: client.fill(name, 60, does).invalidate, "invalidate"),
    "semaphore.available": (lambda client, name, _: client.semaphore(name, 2).available, "look at"),
    "semaphore.holders": (lambda client, name, _: client.semaphore(name, 2).holders, "look at"),
    "inspect": (lambda client, name, _: partial(client.inspect, name), "inspect"),
}


async def test_without_a_majority_nobody_can_know(face: Face, three: Cluster, name: str) -> None:
    # Rule RA3.
    client = await face.connected(three, outage=0.1, node_timeout=0.1)
    await three.kill(0, 1)
    await face.until(lambda: [it.state for it in client.nodes()] == ["down", "down", "up"])
    told = {}
    for call, (make, doing) in CALLS.items():
        with pytest.raises(NoQuorum) as caught:
            await face.call(make(client, name, face.function(never)))
        error = caught.value
        assert error.waited < 5, f"{call} waits for no longer than `outage`"
        told[call] = error.name, f"could not {doing} '{name}'" in str(error), set(error.causes)
    assert told == dict.fromkeys(CALLS, (name, True, set(three.urls[:2])))
    with pytest.raises(NoQuorum, match="repair"):
        await face.call(client.repair)
