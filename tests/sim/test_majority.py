"""A call waits for a majority of the nodes: one that is silent delays nobody. (A rate waits for all: rule RA1. Operators see all nodes.)"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sim.conftest import Build
from sim.face import Holdfast

pytestmark = pytest.mark.worlds


async def worked() -> int:
    return 1


CALLS: dict[str, Callable[[Holdfast], Any]] = {
    "acquire": lambda it: it.lock("a").acquire(),
    "read": lambda it: it.rwlock("a").read().acquire(),
    "permit": lambda it: it.semaphore("a", 2).acquire(),
    "campaign": lambda it: it.election("a", "me").campaign(),
    "leader": lambda it: it.election("led").leader(),
    "run": lambda it: it.once("a", keep=60).run(worked),
    "result": lambda it: it.once("done", keep=60).result(),
    "forget": lambda it: it.once("done", keep=60).forget(),
    "get": lambda it: it.fill("a", 60, worked).get(),
    "peek at a value": lambda it: it.fill("filled", 60, worked).peek(),
    "invalidate": lambda it: it.fill("filled", 60, worked).invalidate(),
    "arrive": lambda it: it.latch("a", 1).arrive("me"),
    "arrived": lambda it: it.latch("a", 2).arrived(),
    "barrier": lambda it: it.barrier("a", 1).wait("me"),
}


@pytest.mark.parametrize("call", CALLS)
def test_a_silent_node_delays_nobody(town: Build, call: str) -> None:
    here = town(3, 1)
    world, client = here.world, here.client(ttl=30.0, node_timeout=5.0)
    for ready in (
        client.election("led", "other").campaign(), client.once("done", keep=60).run(worked), client.fill("filled", 60, worked).get(),
    ):  # fmt: skip
        world.do(ready)
    here.nodes[2].freeze(60.0)
    began = world.now
    world.do(CALLS[call](client))
    assert world.now - began < 1.0
