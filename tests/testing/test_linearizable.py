"""That the laws' two comparisons are linearizability: no search says otherwise.

Others search a history for an order in which a mutex with fences could have done it (Wing and Gong; Lowe). The laws look at windows and
fences instead. Here both judge the same small random histories, good ones and bad ones: they agree on every one.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import cache
from types import SimpleNamespace
from typing import Any

from holdfast.protocol.claim import State
from holdfast.protocol.timing import Timing
from holdfast.testing.laws import Laws
from holdfast.testing.world import DriftingClock, Violation, World

HISTORIES = 3000


@dataclass(frozen=True)
class Hold:
    """One acquire and its release: when each was called and returned. The lock is believed to be held from `granted` to `leaves`."""

    asked: int
    granted: int
    leaves: int
    left: int
    fence: int


def history(dice: random.Random, holds: int) -> list[Hold]:
    """Something that may have happened: mostly one after the other, with fences that mostly grow."""
    found, now, fence = [], 0.0, 0
    for _ in range(holds):
        granted = now + dice.random() * 2 if dice.random() < 0.85 else max(0.0, now - dice.random())
        leaves = granted + dice.random()
        fence = fence + dice.randint(1, 3) if dice.random() < 0.9 else dice.randint(1, 6)
        found.append((granted - dice.random() * 2, granted, leaves, leaves + dice.random() * 2, fence))
        now = max(now, leaves)
    moments = sorted(moment for each in found for moment in each[:4])
    return [Hold(*(moments.index(moment) for moment in each[:4]), each[4]) for each in found]


def linearizable(holds: list[Hold]) -> bool:
    """Is there an order of all acquires and releases, each at some moment between its call and its return, that a fenced mutex allows?"""
    calls = [(it.asked, it.granted, who, True) for who, it in enumerate(holds)]
    calls += [(it.leaves, it.left, who, False) for who, it in enumerate(holds)]

    @cache
    def goes_on(done: frozenset[int], owner: int | None, highest: int) -> bool:
        left = [at for at in range(len(calls)) if at not in done]
        if not left:
            return True
        first = min(calls[at][1] for at in left)  # whoever was called after this one returned cannot come before it
        for at in left:
            called, _, who, takes = calls[at]
            if called > first:
                continue
            if takes and owner is None and holds[who].fence > highest and goes_on(done | {at}, who, holds[who].fence):
                return True
            if not takes and owner == who and goes_on(done | {at}, None, highest):
                return True
        return False

    return goes_on(frozenset(), None, 0)


class Claimed:
    """What the laws see of a claim."""

    until, timing = 1e9, Timing(1.0)
    recipe = SimpleNamespace(name=b"L", proposes=0)
    token = b"somebody"
    as_usual = ()

    def __init__(self, fence: int) -> None:
        self.fence, self.state = fence, State.WAITING


def lawful(holds: list[Hold]) -> bool:
    """What the laws say of it, as it happens."""
    world = World(0)
    laws = Laws(world, [], guard=1.0)
    driver: Any = SimpleNamespace(dead=False, clock=DriftingClock(world, 0.0), nodes=())
    claims: list[Any] = [Claimed(it.fence) for it in holds]
    world.looks.clear()

    def begins(who: int) -> None:
        claims[who].state = State.HELD
        laws._granted(claims[who], driver)

    def ends(who: int) -> None:
        claims[who].state = State.OVER

    for who, it in enumerate(holds):
        world.at(it.granted, begins, who)
        world.at(it.leaves, ends, who)
    try:
        world.run()
    except Violation as violation:
        return violation.law not in ("exclusion", "fence")
    return True


def test_the_laws_and_a_search_agree() -> None:
    dice, judged = random.Random(1), {True: 0, False: 0}
    for _ in range(HISTORIES):
        holds = history(dice, dice.randint(2, 5))
        verdict = linearizable(holds)
        assert lawful(holds) is verdict, holds
        judged[verdict] += 1
    assert min(judged.values()) > HISTORIES // 10
