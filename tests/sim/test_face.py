"""The face of simulated worlds is the one that ships: what it adds is listed, and a fault in what ships is met there."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from types import ModuleType
from typing import Any

import pytest
from sim import face
from sim.conftest import Town

import holdfast.client.aio
import holdfast.face.aio.lease
import holdfast.face.aio.lock
import holdfast.face.aio.semaphore
import holdfast.primitives.election.aio
import holdfast.primitives.fill.aio
import holdfast.primitives.latch.aio
import holdfast.primitives.once.aio
import holdfast.primitives.rate.aio
from holdfast import aio

Build = Callable[..., Town]

# What a class of the simulated face has of its own, and why what ships cannot do it.
OWN = {
    "Lease": {
        "_check_owner": "a task of the world has no event loop",
        "_enter": "nobody cancels a task of the world",
        "__del__": "Python runs finalizers when it likes",
    },
    "Lock": {"_kind": "its leases", "_task": "the task that runs is one of the world's"},
    "Semaphore": {},
    "Leadership": {},
    "Election": {"_kind": "its leases"},
    "Holdfast": {
        "__init__": "nodes instead of addresses",
        "_prepare": "drivers of the world instead of an event loop's",
        "_driver": "the same",
        "_describe": "locks of this face",
        "_permit": "semaphores of this face",
        "_elect": "elections of this face",
        "fill": "the lock of this face under it",
        "close": "there is no event loop to ask for",
    },
}
PYTHONS = {
    "__module__", "__doc__", "__slots__", "__parameters__", "__orig_bases__", "__abstractmethods__", "_abc_impl", "__annotations__",
    "__dict__", "__weakref__",
}  # fmt: skip


def additions(module: ModuleType) -> dict[str, set[str]]:
    """What each class of the module has of its own."""
    found = {name: it for name, it in vars(module).items() if inspect.isclass(it) and it.__module__ == module.__name__}
    return {name: set(vars(it)) - PYTHONS for name, it in found.items()}


def test_the_simulated_face_adds_what_is_listed_and_no_more() -> None:
    assert additions(face) == {name: set(own) for name, own in OWN.items()}
    for name in OWN:
        assert issubclass(getattr(face, name), getattr(aio, name))


def test_an_addition_is_noticed() -> None:
    module = ModuleType("sim.face")
    exec("class Lock:\n    async def acquire(self): ...\n", vars(module))
    assert additions(module) == {"Lock": {"acquire"}}


class Reached(BaseException):
    """What ships has been run."""


async def _price() -> int:
    return 7


async def in_a_block(lock: Any) -> None:
    async with lock:
        pass


async def moves(locks: face.Holdfast) -> None:
    lease = await locks.rwlock("paper").write().acquire()
    await lease.downgrade()
    await lease.extend()
    await lease.release()


async def observes(locks: face.Holdfast) -> None:
    async for _ in locks.election("boss", "me").observe(wait=1.0):
        break


SHIPPED: dict[str, tuple[type, str, Callable[[face.Holdfast], Awaitable[object]]]] = {
    "acquire": (holdfast.face.aio.lock.Lock, "acquire", lambda it: it.lock("a").acquire()),
    "a block": (holdfast.face.aio.lock.Lock, "__aenter__", lambda it: in_a_block(it.lock("a"))),
    "leaving a block": (holdfast.face.aio.lease.Lease, "_leave", lambda it: in_a_block(it.lock("a"))),
    "release": (holdfast.face.aio.lease.Lease, "release", moves),
    "extend": (holdfast.face.aio.lease.Lease, "extend", moves),
    "downgrade": (holdfast.face.aio.lease.Lease, "downgrade", moves),
    "semaphore": (holdfast.face.aio.semaphore.Semaphore, "available", lambda it: it.semaphore("gpus", 2).available()),
    "rate": (holdfast.primitives.rate.aio.Rate, "_carry_out", lambda it: it.rate("api", 1, 1).take()),
    "campaign": (holdfast.primitives.election.aio.Election, "campaign", lambda it: it.election("boss", "me").campaign()),
    "leader": (holdfast.primitives.election.aio.Election, "leader", lambda it: it.election("boss", "me").leader()),
    "observe": (holdfast.primitives.election.aio.Observation, "__anext__", observes),
    "once": (holdfast.primitives.once.aio.Once, "run", lambda it: it.once("job", keep=60).run(_price)),
    "forget": (holdfast.primitives.once.aio.Once, "forget", lambda it: it.once("job", keep=60).forget()),
    "fill": (holdfast.primitives.fill.aio.Fill, "get", lambda it: it.fill("price", 60, _price).get()),
    "latch": (holdfast.primitives.latch.aio.Latch, "arrive", lambda it: it.latch("go", 2).arrive("a")),
    "barrier": (holdfast.primitives.latch.aio.Barrier, "wait", lambda it: it.barrier("go", 1).wait("a")),
    "inspect": (holdfast.client.aio.Holdfast, "inspect", lambda it: it.inspect("a")),
    "ready": (holdfast.client.aio.Holdfast, "ready", lambda it: it.ready()),
    "repair": (holdfast.client.aio.Holdfast, "repair", lambda it: it.repair(0)),
}


@pytest.mark.parametrize("what", SHIPPED)
def test_a_fault_planted_into_what_ships_is_met_in_a_simulated_world(
    what: str, town: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind, name, use = SHIPPED[what]
    client = town().client()
    client.driver.world.do(use(client))  # as it ships it works

    async def broken(*_: Any, **__: Any) -> None:
        raise Reached

    assert name in vars(kind)
    monkeypatch.setattr(kind, name, broken)
    with pytest.raises(Reached):
        client.driver.world.do(use(client))
