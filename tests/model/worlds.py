"""Which worlds are explored: small ones in every run of the tests, large ones by `./task model`.

Knows bounds, and how much there is within them. Must not know claims or nodes.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from . import slots
from .explorer import FORMER, GUARD, JOINT, LEASE, NEXT, Bounds, Broken
from .search import Search
from .slots import Demand, Slots


@dataclass(frozen=True, slots=True)
class World:
    """Bounds; how many states there are, about: more than `least`, less than `most`; and what has to happen there, or it shows nothing."""

    bounds: Bounds
    least: int
    most: int
    shows: tuple[str, ...] = ()


R, W = b":r", b":w"
CONTEST = ("w", "c", "r", "push g", "push i")
SMALL = {
    "two nodes": World(Bounds(nodes=2), 500, 5_000, CONTEST),
    "three nodes": World(Bounds(room=2), 10_000, 50_000, CONTEST),
    "one tries": World(Bounds(tries=(1,)), 3_000, 20_000, ("w", "t", "r")),
    "both try": World(Bounds(tries=(0, 1)), 2_000, 20_000, ("t", "r")),
    "two nodes, both try": World(Bounds(nodes=2, tries=(0, 1)), 100, 5_000, ("t", "r")),
    "three clients": World(Bounds(nodes=2, clients=3, room=1), 5_000, 50_000, CONTEST),
    "one gives up": World(Bounds(cancels=1, room=1), 10_000, 100_000, (*CONTEST, "gives up")),
    "a break": World(Bounds(nodes=2, breaks=1, room=1), 5_000, 50_000, (*CONTEST, "late w", "late c", "late r", "breaks", "joins")),
    "a cut": World(Bounds(nodes=2, cuts=1, room=1), 5_000, 50_000, (*CONTEST, "learns that it is cut", "joins")),
    "renewals": World(Bounds(nodes=1, clients=1, passes=3, steps=(1,)), 200, 5_000, ("w", "is woken")),
    "a lease": World(Bounds(nodes=1, passes=2, steps=(1, LEASE), room=1, busy=2), 10_000, 100_000, ("w", "push g", "is woken")),
    "a lapse": World(Bounds(nodes=2, passes=1, steps=(LEASE,), room=1, busy=2), 10_000, 100_000, (*CONTEST, "is woken")),
    "a restart": World(
        Bounds(nodes=1, restarts=1, passes=1, steps=(GUARD,), skew=(0.0, -20.0)), 5_000, 50_000, ("learns that it is cut", "joins")
    ),
    "a promotion": World(
        Bounds(nodes=1, forks=1, passes=2, steps=(2, 4), room=1, busy=0, renew=False), 10_000, 100_000, ("w", "old w", "old r", "joins")
    ),
}

# Of a read-write lock.
SMALL |= {
    "a writer and a reader": World(Bounds(room=1, kinds=(W, R)), 3_000, 100_000, CONTEST),
    "a writer and a reader on two nodes": World(Bounds(nodes=2, kinds=(W, R)), 300, 10_000, CONTEST),
    "two readers": World(Bounds(nodes=2, kinds=(R, R)), 100, 10_000, ("w", "r")),
    "two writers": World(Bounds(nodes=2, kinds=(W, W)), 500, 10_000, CONTEST),
    "two readers and a writer": World(Bounds(nodes=2, clients=3, room=1, kinds=(R, W, R)), 3_000, 200_000, CONTEST),
    "two writers and a reader": World(Bounds(nodes=1, clients=3, holds=2, room=1, kinds=(W, R, W)), 1_000, 200_000, ("w", "r")),
    "a reader tries": World(Bounds(nodes=2, kinds=(W, R), tries=(1,)), 300, 20_000, ("w", "t", "r")),
    "a downgrade": World(Bounds(nodes=2, kinds=(W, W), downgrades=1, room=1), 800, 100_000, (*CONTEST, "downgrades")),
    "a reader's restart": World(
        Bounds(nodes=1, restarts=1, passes=1, steps=(GUARD,), skew=(0.0, -20.0), room=1, busy=1, kinds=(R, W)), 1_000, 100_000, ("joins",)
    ),
}

# The list of nodes is changed: some clients know the former list, or the next one, and some both.
ONE_TO_THREE, REPLACED, THREE_TO_FIVE = (0, 1, 2), (1, 2, 1), (0, 3, 2)
SMALL |= {
    "one to three nodes, former and joint": World(Bounds(nodes=3, change=ONE_TO_THREE, knows=(FORMER, JOINT), room=1), 100, 1_000, CONTEST),
    "one to three nodes, joint and next": World(Bounds(nodes=3, change=ONE_TO_THREE, knows=(JOINT, NEXT), room=1), 10_000, 50_000, CONTEST),
    "one to three nodes, both joint": World(Bounds(nodes=3, change=ONE_TO_THREE, knows=(JOINT, JOINT), room=1), 10_000, 50_000, CONTEST),
    "another node for one, former and joint": World(Bounds(nodes=2, change=(1, 0, 1), knows=(FORMER, JOINT), room=1), 50, 1_000, CONTEST),
    "three other nodes for one, former and joint": World(
        Bounds(nodes=4, change=(1, 0, 3), knows=(FORMER, JOINT), room=1), 100, 1_000, CONTEST
    ),
    "three other nodes for one, joint and next": World(
        Bounds(nodes=4, change=(1, 0, 3), knows=(JOINT, NEXT), room=1), 10_000, 50_000, CONTEST
    ),
    "another node for one, a break": World(
        Bounds(nodes=2, change=(1, 0, 1), knows=(FORMER, JOINT), breaks=1, room=1, busy=1), 1_000, 10_000, (*CONTEST, "late w", "late c")
    ),
    "another node for one, one former and two joint": World(
        Bounds(nodes=2, clients=3, change=(1, 0, 1), knows=(FORMER, JOINT, JOINT), room=1), 1_000, 20_000, CONTEST
    ),
    "another node for one, and a restart": World(
        Bounds(nodes=2, change=(1, 0, 1), knows=(FORMER, JOINT), restarts=1, passes=1, steps=(GUARD,), room=1, busy=0),
        100, 50_000, (*CONTEST, "learns that it is cut", "joins"),
    ),
}  # fmt: skip

LARGEST = "three nodes, renewals"
# With three nodes and a fault: `./task model` explores them two at a time.
LARGE = {
    "all of three nodes": World(Bounds(), 20_000, 100_000, CONTEST),
    "three nodes, a break": World(
        Bounds(breaks=1, room=1, busy=1), 100_000, 2_000_000, (*CONTEST, "late w", "late c", "late r", "breaks", "joins")
    ),
    LARGEST: World(Bounds(passes=1, steps=(1,), room=1, busy=1), 300_000, 2_000_000, (*CONTEST, "is woken")),
    "two nodes, extensions": World(
        Bounds(nodes=2, extends=1, passes=1, steps=(1,), room=1, busy=1), 50_000, 500_000, (*CONTEST, "is woken", "extends")
    ),
    "two nodes, a break, and twice each": World(
        Bounds(nodes=2, holds=2, breaks=1, room=1, busy=1), 100_000, 1_000_000, (*CONTEST, "late c", "joins")
    ),
    "three nodes, a restart and its guard": World(
        Bounds(restarts=1, passes=1, steps=(GUARD,), room=1, busy=0), 100_000, 500_000, (*CONTEST, "learns that it is cut", "joins")
    ),
    "a promotion, and renewals": World(
        Bounds(nodes=1, forks=1, passes=2, steps=(2, 4), room=1, busy=0), 50_000, 200_000, ("w", "old w", "old k", "k", "joins")
    ),
    "three nodes, a restart": World(Bounds(restarts=1, room=1), 50_000, 500_000, (*CONTEST, "learns that it is cut")),
}
LARGE |= {
    "a downgrade on three nodes": World(Bounds(kinds=(W, W), downgrades=1, room=1), 30_000, 200_000, (*CONTEST, "downgrades")),
    "a downgrade beside a reader": World(
        Bounds(nodes=2, clients=3, kinds=(W, W, R), downgrades=1, room=1), 20_000, 200_000, (*CONTEST, "downgrades")
    ),
    "a writer and a reader on three nodes, a break": World(
        Bounds(kinds=(W, R), breaks=1, room=1, busy=1), 50_000, 500_000, (*CONTEST, "late w", "late c", "joins")
    ),
    "a downgrade, and a break": World(
        Bounds(nodes=2, kinds=(W, W), downgrades=1, breaks=1, room=1, busy=2), 5_000, 300_000, (*CONTEST, "downgrades", "breaks", "late w")
    ),
    "a reader's lapse": World(Bounds(nodes=1, passes=2, steps=(1, LEASE), room=1, busy=2, kinds=(W, R)), 3_000, 200_000, ("w", "is woken")),
    "a downgrade, and time": World(
        Bounds(nodes=1, passes=2, steps=(1, LEASE), room=1, busy=1, kinds=(W, W), downgrades=1),
        3_000,
        300_000,
        ("w", "downgrades", "is woken"),
    ),
}

LARGE |= {
    "another node for one of three, former and joint": World(
        Bounds(nodes=4, change=REPLACED, knows=(FORMER, JOINT), room=1), 30_000, 200_000, CONTEST
    ),
    "another node for one of three, joint and next": World(
        Bounds(nodes=4, change=REPLACED, knows=(JOINT, NEXT), room=1), 30_000, 200_000, CONTEST
    ),
    "three to five nodes, former and joint": World(
        Bounds(nodes=5, change=THREE_TO_FIVE, knows=(FORMER, JOINT), room=1), 30_000, 200_000, CONTEST
    ),
}

# Requests for permits: what is wanted, and how many states there are, about; none: more than are looked at.
PERMITS = {
    "permits, 2 and 2 of 3": (Demand(nodes=1, slots=3, wants=(2, 2)), 101_922),
    "permits, 2 and 1 of 3": (Demand(nodes=1, slots=3, wants=(2, 1)), 90_147),
    "permits, 2, 1 and 1 of 2": (Demand(nodes=1, slots=2, wants=(2, 1, 1)), 298_482),
    "permits, 2, 2 and 2 of 3": (Demand(nodes=1, slots=3, wants=(2, 2, 2), room=1), None),
    "permits, 2 and 2 of 3, and they give up": (Demand(nodes=1, slots=3, wants=(2, 2), cancels=True), None),
    "permits, 1 and 1 of 2 on two nodes": (Demand(nodes=2, slots=2, wants=(1, 1)), None),
    "permits, 2 and 2 of 2 on three nodes": (Demand(nodes=3, slots=2, wants=(2, 2), room=1), None),
}
ENOUGH = 400_000

WORLDS: dict[str, Any] = {**LARGE, **SMALL, **PERMITS}


def _permits(demand: Demand, whole: int | None) -> tuple[bool, str]:
    states, complete = slots.explore(Slots(demand), ENOUGH)
    fine = complete == (whole is not None) and abs(states - (whole or states)) < states / 2
    return fine, f"{states} states{'' if complete else ' and more'}"


def _world(world: World) -> tuple[bool, str]:
    explored = Search(world.bounds).run(world.most)
    missing = sorted(set(world.shows) - explored.seen.keys())
    fine = world.least < explored.states < world.most and not missing
    told = f"{explored.states} states, {explored.events} events"
    return fine, told if fine else f"{told}: expected {world.least} to {world.most} states, and to see {missing or 'all that was seen'}"


def explore(name: str) -> tuple[bool, str]:
    """Whether it is fine, and what there is to tell."""
    began = time.monotonic()
    try:
        fine, told = _permits(*PERMITS[name]) if name in PERMITS else _world(WORLDS[name])
    except Broken as broken:
        return False, f"{name}: {broken}"
    return fine, f"{name}: {told}, {time.monotonic() - began:.1f} s"
