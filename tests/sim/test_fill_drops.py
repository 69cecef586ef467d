"""Values that are dropped, in the simulator: the law of `invalidate`, while nodes and processes fail.

The law. Once a call of `invalidate` has returned, no call of `get` or `peek` that begins later gives a value whose computing began before
that `invalidate` did. This holds while a majority of the nodes answers and remembers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from sim.conftest import Town
from sim.face import Holdfast
from sim.test_fills import CACHE, LATE, LEASE, Burnt, Kitchen, strikes

from holdfast.errors import NoQuorum
from holdfast.primitives.fill.plan import Found
from holdfast.testing.world import Violation
from holdfast.wire.resp import pack

pytestmark = pytest.mark.worlds

Build = Callable[..., Town]
SEEDS = range(3)
FAULTS = [it for it in LATE if it != "restarted"]  # (a node that restarts has forgotten what it was to refuse)


@dataclass
class Pantry(Kitchen):
    """Callers who also look, and who have values dropped."""

    dropped: list[tuple[float, float]] = field(default_factory=list)  # when each call began, and when it had returned
    looked: int = 0

    def judge(self, found: Found[int], began: float) -> None:
        made = self.all[found.value]
        for start, end in self.dropped:
            if made.began < start and end < began:
                raise Violation(f"dropped: {found} was computed at {made.began:.3f}, before {start:.3f}")
        super().judge(found, began)

    async def visits(self, client: Holdfast, seconds: float, **options: Any) -> None:
        world, dice = self.town.world, self.town.world.dice
        end = world.now + seconds
        while world.now < end:
            await world.sleep(dice.uniform(0, 2 * self.pause))
            described, began = self.fill(client, **options), world.now
            try:
                match dice.choice(("get", "get", "get", "peek", "invalidate")):
                    case "get":
                        self.judge(await described.get(), began)
                    case "peek":
                        found = await described.peek()
                        if found is not None:
                            self.looked += 1
                            self.judge(found, began)
                    case _:
                        await described.invalidate()
                        self.dropped.append((began, world.now))
            except Burnt:
                pass
            except NoQuorum:
                self.unknown += 1


def trouble(build: Build, seed: int, fault: str, stale: float = 0.0, seconds: float = 8.0) -> Pantry:
    here = build(5, seed)
    pantry = Pantry(here, stale=stale, fails=0.1, late=LATE[fault], ttl=3.0)
    clients = [here.client(ttl=LEASE, node_timeout=0.1) for _ in range(4)]
    strikes(pantry, fault, clients, seconds)
    pantry.run(clients, seconds)
    return pantry


@pytest.mark.parametrize("fault", FAULTS)
def test_what_was_dropped_is_given_to_nobody_who_comes_later(town: Build, fault: str) -> None:
    # Rule FI8.
    looked = 0
    for seed in SEEDS:
        try:
            pantry = trouble(town, seed, fault, stale=4.0 if seed % 2 else 0.0)
        except Violation as violation:
            raise AssertionError(f"seed {seed}, {fault}: {violation}") from violation
        assert len(pantry.dropped) > 5, seed
        looked += pantry.looked
        assert len([it for it in pantry.all if it.ended is not None]) > len(pantry.dropped) / 4, "values are computed again"
    assert looked > 3 * len(SEEDS)


# ------------------------------------------------ what single stories show


def cut_off(here: Town, client: Holdfast, *which: int) -> None:
    """For some seconds, this client cannot reach these nodes."""
    for number in which:
        link = client.simulated.links[number]
        assert link is not None
        link.stall(3.0)


def test_a_late_value_on_a_node_that_was_not_told_is_shown_to_nobody(town: Build) -> None:
    """One computes; the value is dropped by another, who reaches two of three nodes; then the first puts what it has. Who looks sees what?

    The looker reaches the node that has heard of nothing, and one that has.
    """
    here = town(3, 4)
    pantry = Pantry(here, ttl=20.0)
    computer, dropper, looker = [here.client(ttl=LEASE, node_timeout=0.3) for _ in range(3)]
    for client in (dropper, looker):
        assert here.world.do(pantry.fill(client).peek()) is None
    task = computer.process.run(pantry.fill(computer).get())
    here.world.run(here.world.now + 5, lambda: bool(pantry.going))
    cut_off(here, dropper, 2)
    here.world.do(pantry.fill(dropper).invalidate())
    here.world.run(here.world.now + 5, lambda: task.done())
    here.world.run(here.world.now + 0.02)
    assert CACHE in set(here.nodes[2].keys()), "the late value is where nobody has refused it"
    cut_off(here, looker, 0)
    found = here.world.do(pantry.fill(looker).peek())
    assert found is None


def test_it_stays_dropped_for_as_long_as_any_node_may_show_it(town: Build) -> None:
    """A value is dropped while a node is away, and comes to that node a while later. What is shown when the others' time is up?"""
    here = town(3, 4)
    pantry = Pantry(here, ttl=5.0)
    described = pantry.fill(here.client(ttl=LEASE, node_timeout=0.3))
    here.world.do(described.get())
    here.world.run(here.world.now + 0.2)
    late = here.nodes[2]
    fence = int(late.holder(CACHE).split(b":")[0])
    late.tell(pack(b"DEL", CACHE))
    late.vanish(0.4)
    here.world.do(described.invalidate())
    dropped = here.world.now
    here.world.run(dropped + 1.0)
    late.tell(described._terms.store._cache.put(fence, 5000, 0, 5000, b"0"))
    here.world.run(dropped + 5.3)
    looker = here.client(ttl=LEASE)
    here.nodes[0].vanish(1.0)
    found: Found[int] | None = here.world.do(pantry.fill(looker).peek())
    assert found is None
