"""Permits, several at once: rules P1 to P7 of docs/protocol-primitives.md, explored, and what happens without each of them."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from model.explorer import Broken
from model.slots import Demand, Permits, Slots, explore
from model.worlds import PERMITS

from holdfast.protocol.claim import Claim, State

pytestmark = pytest.mark.stories

WHOLE = {
    "2 of 2, twice": (Demand(nodes=1, slots=2, wants=(2, 2)), 800),
    "1 of 2, twice": (Demand(nodes=1, slots=2, wants=(1, 1)), 4_000),
    "2 of 2, thrice, one at a time": (Demand(nodes=1, slots=2, wants=(2, 2, 2), room=1), 2_000),
}


@pytest.mark.parametrize("name", WHOLE)
def test_nothing_is_broken(name: str) -> None:
    demand, least = WHOLE[name]
    states, complete = explore(Slots(demand), 20_000)
    assert complete, "it came to no end"
    assert states > least, "it hardly began"


@pytest.mark.parametrize("name", PERMITS)
def test_as_far_as_it_goes_nothing_is_broken(name: str) -> None:
    states, _ = explore(Slots(PERMITS[name][0]), 6_000)
    assert states >= 4_000


@pytest.mark.parametrize("seed", range(6))
def test_walks_with_three_nodes_and_three_slots(seed: int) -> None:
    """Anything may happen, at random, until nothing can: then everybody has had its permits, twice."""
    dice, world = random.Random(seed), Slots(Demand(nodes=3, slots=3, wants=(2, 2, 1), holds=2))
    state = world.first()
    for _ in range(5_000):
        world.look(state)
        found = list(world.successors(state))
        if not found:
            break
        if all(label[0] in ("begins", "gives it back") for label, _ in found):
            world.settled(state)
        state = dice.choice(found)[1]
    else:
        pytest.fail(f"seed {seed}: it goes on for ever")
    assert state[0] == (2, 2, 2), f"seed {seed}: nothing can happen, and not everybody had it"


class Greedy(Permits):
    """Superfluous slots are kept."""

    __slots__ = ()

    def complete(self, claim: Claim, now: float) -> bool:
        waiting = [it for it in self.claims if it is not claim and it.state is State.WAITING]
        terms = [(it, it.could_hold(now)) for it in waiting]
        able = [(it, held) for it, held in terms if held[0]][: self._needed - 1]
        for it, (fence, until) in able:
            it.hold(fence, until, now)
        return len(able) == self._needed - 1


class Hasty(Permits):
    """Held as soon as one slot is."""

    __slots__ = ()

    def complete(self, claim: Claim, now: float) -> bool:
        return True


def stubborn(cede: Callable[[Claim, float], None]) -> Callable[[Claim, float], None]:
    """A slot that is complete does not cede."""

    def keep(claim: Claim, now: float) -> None:
        if not claim.could_hold(now)[0]:
            cede(claim, now)

    return keep


@pytest.mark.parametrize("joint", [Greedy, Hasty])
def test_a_joint_that_is_a_little_wrong_is_found(joint: type[Permits]) -> None:
    world = Slots(Demand(nodes=1, slots=3, wants=(2, 2)))
    world.joint = joint
    with pytest.raises(Broken, match="whole"):
        explore(world, 6_000)


@pytest.mark.parametrize("demand", [Demand(nodes=1, slots=2, wants=(2, 2)), Demand(nodes=1, slots=3, wants=(3, 2))], ids=str)
def test_without_ceding_complete_slots_it_comes_to_a_stop(demand: Demand, monkeypatch: pytest.MonkeyPatch) -> None:
    # Rule P4.
    monkeypatch.setattr(Claim, "_cede", stubborn(Claim._cede))
    with pytest.raises(Broken, match="idle"):
        explore(Slots(demand), 20_000)


def test_a_claim_that_goes_round_in_a_circle_is_found() -> None:
    class Circle(Slots):
        def successors(self, state):  # type: ignore[no-untyped-def]  # (that of the base)
            return [(("again",), state)]

    with pytest.raises(Broken, match="circle"):
        explore(Circle(Demand(nodes=1, slots=1, wants=(1,))), 10)
