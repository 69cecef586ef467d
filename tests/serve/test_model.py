"""The clock rule as a property: what clients believe is held, however requests, gateways and answers are delayed.

The gateway's own decisions run here: `Hold`, `valid_ms`, the end of a connection and the drain. In the place of the nodes is one
lock whose lease ends when its time is over, as the protocol promises. Time is a number that only the schedule moves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from holdfast import LockLost
from holdfast.base.lease import LeaseState
from holdfast.serve import leases as module
from holdfast.serve.identity import EVERYBODY
from holdfast.serve.leases import Hold, Leases, Wanted
from holdfast.serve.options import Options
from holdfast.serve.problems import Problem

TTL = 10.0


class World:
    """One lock, and the time."""

    def __init__(self) -> None:
        self.now = 0.0
        # Until when the nodes keep the lock for the holder. Later, anybody may have it.
        self.kept = 0.0


class Lease:
    """What the gateway has of the library: a lease that knows for how long it is certainly held."""

    contended = False

    def __init__(self, world: World) -> None:
        self._world = world
        self._until = world.now + TTL
        self._released = False
        world.kept = self._until

    @property
    def remaining(self) -> float:
        return 0.0 if self._released else max(0.0, self._until - self._world.now)

    @property
    def held(self) -> bool:
        return self.remaining > 0

    @property
    def state(self) -> LeaseState:
        if self._released:
            return LeaseState.RELEASED
        return LeaseState.HELD if self.held else LeaseState.LOST

    def check(self) -> None:
        if self.state is LeaseState.LOST:
            raise LockLost("the lock", "expired", 1)

    async def extend(self, ttl: float) -> float:
        self.check()
        # An extension never shortens a lease.
        self._until = max(self._until, self._world.now + ttl)
        self._world.kept = self._until
        return self.remaining

    async def release(self, confirm: bool = False) -> int:
        self.check()
        self._released = True
        self._world.kept = self._world.now
        return 3


@dataclass
class Faults:
    """What is planted."""

    counts_from_the_answer: bool = False
    releases_on_disconnect: bool = False
    reads_before_it_extends: bool = False
    releases_at_its_end: bool = False


@dataclass
class Step:
    """One thing that happens, and how long its parts take."""

    kind: str
    to_gateway: float = 0.0
    at_gateway: float = 0.0
    back: float = 0.0
    ttl: float = TTL


@dataclass
class Believed:
    """Until when the client believes that it holds the lock."""

    until: float = -1.0
    broken: list[str] = field(default_factory=list)


async def play(steps: list[Step], faults: Faults) -> list[str]:
    """Carry out a schedule. Returns the moments at which the client believed what was not so."""
    world, believed = World(), Believed()
    table = Leases(None, "gmodel00", Options())  # type: ignore[arg-type]  # nothing of the client is used here

    async def begin(hold: Hold) -> Any:
        return Lease(world)

    hold, _ = table.put(EVERYBODY, "a-lease-of-the-model", Wanted(("the lock",), "exclusive", TTL), begin)
    while hold.state == "waiting":
        await asyncio.sleep(0)

    def passes(seconds: float) -> None:
        """Let time pass. All the while, what is believed has to be so: it ends last where it is closest."""
        end = world.now + seconds
        if min(believed.until, end) > world.kept + 1e-9:
            believed.broken.append(f"believed until {believed.until:.3f}, kept until {world.kept:.3f}, at {end:.3f}")
        world.now = end

    for step in steps:
        await _step(step, world, believed, hold, table, faults, passes)
    passes(2 * TTL)
    return believed.broken


async def _step(
    step: Step, world: World, believed: Believed, hold: Hold, table: Leases, faults: Faults, passes: Callable[[float], None]
) -> None:
    sent = world.now
    if step.kind == "stop":
        # The client, the gateway, or the network between them stands still.
        passes(step.at_gateway)
        return
    passes(step.to_gateway)
    if step.kind == "disconnect":
        with hold.listening():
            pass
        if faults.releases_on_disconnect and hold.lease is not None and hold.lease.held:
            await hold.lease.release()
        return
    if step.kind == "drain":
        table.drain()
        if faults.releases_at_its_end and hold.lease is not None and hold.lease.held:
            await hold.lease.release()
        return
    try:
        early = hold.valid_ms
        if step.kind == "keepalive":
            # The nodes' answers take a while. The lease counts from when they were asked.
            await hold.extend(step.ttl)
            passes(step.at_gateway)
        hold.refuse_if_over()
        # Read before it extends, it would have to guess what the extension brings.
        guessed = early + 1000 * step.ttl
        valid = guessed if faults.reads_before_it_extends and step.kind == "keepalive" else hold.valid_ms
    except Problem:
        # Lost, or released: the client stops, if it hears of it.
        return
    passes(step.back)
    counted = world.now if faults.counts_from_the_answer else sent
    believed.until = counted + valid / 1000
    if believed.until > world.now and world.now > world.kept + 1e-9:
        believed.broken.append(f"began to believe at {world.now:.3f}, and it was over at {world.kept:.3f}")


delays = st.one_of(st.just(0.0), st.floats(0, 0.1), st.floats(0, 2 * TTL))
steps = st.builds(
    Step,
    kind=st.sampled_from(["keepalive", "keepalive", "get", "disconnect", "drain", "stop"]),
    to_gateway=delays,
    at_gateway=delays,
    back=delays,
    ttl=st.floats(0.05, TTL),
)
schedules = st.lists(steps, min_size=1, max_size=8)


def broken(schedule: list[Step], faults: Faults) -> list[str]:
    return asyncio.run(play(schedule, faults))


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(schedules)
def test_believed_is_held(schedule: list[Step]) -> None:
    assert broken(schedule, Faults()) == []


def assert_found(faults: Faults) -> None:
    """The property does not hold."""

    @settings(max_examples=2_000, deadline=None, database=None, phases=[Phase.generate], suppress_health_check=[HealthCheck.too_slow])
    @given(schedules)
    def holds(schedule: list[Step]) -> None:
        assert broken(schedule, faults) == []

    with pytest.raises(AssertionError):
        holds()


@pytest.mark.parametrize("fault", sorted(Faults.__annotations__))
def test_a_planted_mistake_is_found(fault: str) -> None:
    assert_found(Faults(**{fault: True}))


def test_an_answer_that_says_too_much_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "valid_ms", lambda remaining: round(1000 * remaining) + 50)
    assert_found(Faults())
