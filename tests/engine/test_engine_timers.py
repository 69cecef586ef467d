"""The engine: timers, how long it waits, and what callers want."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

import pytest
from engine.world import TRIP, World, busy, denied, lines, near, slow, timers
from proof.books import word

from holdfast import events
from holdfast.engine.engine import TURN
from holdfast.errors import ConfigError, message_of
from holdfast.protocol.claim import State
from holdfast.protocol.semaphore import Slots
from holdfast.protocol.timing import Timing

# ------------------------------------------------ timers


def test_renewals_that_are_due_soon_leave_together_with_the_one_that_is_due() -> None:
    world = World(in_step=True).connect()
    began = world.now
    for name, pause in (("a", 0.05), ("b", 0.06), ("c", 0.2), ("d", 0.0)):
        world.claim(name)
        world.run(pause)
    world.run(10.0)
    asked = [(it.name.decode(), round(it.at - TRIP - began, 3)) for it in world.nodes[0].of("request")][4:]
    due = [10 / 3 - 0.102 + turn * 10 / 3 for turn in range(3)]  # counted back from the deadline; then every third of it
    for turn, at in enumerate(due):
        then = [("a", near(at, abs=1e-3)), ("b", near(at, abs=1e-3)), ("c", near(at + 0.11, abs=1e-3)), ("d", near(at + 0.31, abs=1e-3))]
        assert asked[4 * turn : 4 * turn + 4] == then
    assert len({at for _, at in asked}) == 3 * 3  # in one turn each, hence in one write


def busiest(moments: Sequence[float], begin: float, end: float) -> float:
    """How many requests the busiest tenth of a second had, as a multiple of the mean."""
    tenths = [0] * round((end - begin) * 10)
    for at in moments:
        if begin <= at < end:
            tenths[int((at - begin) * 10)] += 1
    assert sum(tenths) > len(tenths), "hardly anybody has asked"
    return max(tenths) / (sum(tenths) / len(tenths))


@pytest.mark.parametrize("held", [True, False], ids=["leases", "waiters"])
def test_what_begins_together_does_not_ask_together_for_ever(held: bool) -> None:
    # Rule C21.
    world = World(3).connect()
    if not held:
        for node in world.nodes:
            node.answer = lambda asked: denied(left=60_000, place=5)
    began = world.now
    claims = [world.claim(str(i), ttl=9.0) for i in range(1000)]
    world.run(15.0)
    assert {it.state for it in claims} == {State.HELD if held else State.WAITING}
    moments = [it.at - began for it in world.nodes[0].of("request")]
    assert busiest(moments, 1.5, 2.9) < 2.0  # the first time in the later half of the period
    assert busiest(moments, 6.0, 15.0) < 2.0  # and then in all of it
    each = Counter(it.name for it in world.nodes[0].of("request"))
    assert min(each.values()) >= 5 and max(each.values()) <= 7


def test_one_turn_wakes_so_many_claims_and_the_next_one_comes_at_once() -> None:
    world = World(1, in_step=True).connect()
    claims = [world.claim(str(i), ttl=9.0) for i in range(TURN * 2 + 10)]
    world.run(2.8)
    world.now += 0.5
    owed = [0]
    for _ in range(3):
        world.engine.tick(world.now)
        owed.append(len(world.engine.connections[0].ledger))
        if owed[-1] < len(claims):
            assert world.engine.next_wake() == world.now, "what was left is not late"
    assert [after - before for before, after in pairwise(owed)] == [TURN, TURN, 10]
    assert world.engine.next_wake() > world.now
    world._send()
    world.run(0.1)
    assert {it.state for it in claims} == {State.HELD}


def test_what_else_is_due_soon_has_its_own_time() -> None:
    world = World(in_step=True).connect()
    busy(world, b"b")
    held, waiting = world.claim("a"), world.claim("b", deadline=world.now + 3.3)
    query = (world.run(3.2), world.consult(0, 1, 2))[1]
    for node in world.nodes:
        node.mute = True
    world.run(0.09)  # its renewal was in these
    assert (held.state, waiting.state, query.over) == (State.HELD, State.WAITING, False)
    world.run(0.02)
    assert (waiting.state, query.over) == (State.OVER, False)
    world.run(1.0)
    assert query.over


def test_the_heap_does_not_grow_with_leases_that_are_over() -> None:
    world = World(1).connect()
    for _ in range(2000):
        claim = world.claim()
        world.run(2 * TRIP)
        assert claim.state is State.HELD
        world.end(claim)
    assert timers(world) <= 2 * 101
    held = world.claim("held")
    world.run(9.0)
    assert timers(world) < 110 and held.state is State.HELD
    world.run(11.0)
    assert (held.state, timers(world)) == (State.HELD, 1)  # all the others have come, and gone


# ------------------------------------------------ patience


def test_the_spare_slots_of_a_short_semaphore_count_as_claims() -> None:
    world = World().connect()
    slots = Slots("s", 2, 1, 0.3, horizon=world.settings.horizon)
    for recipe in slots:
        busy(world, recipe.name)
    want = world.engine.want(slots, Timing(0.3), world.now)
    world.engine.begin(want, world.now)
    world._send()
    assert len(world.engine.live) == 1
    world.run(0.05)
    assert len(world.engine.live) == 2 and world.engine.upkeep.patience == near(0.1)
    world.end(want)
    assert world.engine.live == {} and world.engine.upkeep.patience == 1.0


@pytest.mark.parametrize("names", [1, 2])
def test_a_ttl_whose_third_is_shorter_than_the_round_trip_is_refused_in_words(monkeypatch: pytest.MonkeyPatch, names: int) -> None:
    # Rule C19.
    world = World(ttl=3.0)
    slow(world, 0.01, monkeypatch)
    world.connect()
    said = [len(it.asked) for it in world.nodes]
    claim = world.want(*"ab"[:names], ttl=0.05)
    words = (
        "ttl=0.05 is too short for these nodes: answers from a majority of them take 20 ms, and each has to come within a third of the "
        "ttl. The shortest ttl that can work is 0.06 seconds; choose several times that"
    )
    assert (type(claim.refusal), message_of(claim.refusal)) == (ConfigError, words)
    assert world.settled == [claim] and world.engine.live == {}
    refused = [it for it in world.events if isinstance(it, events.Refused)]
    assert refused == [] and world.engine.stats(world.now).refused == 1
    assert world.engine.upkeep.patience == 1.0, "it leaves nothing behind"
    assert [len(it.asked) for it in world.nodes] == said, "nothing was asked"
    later = world.claim("later")
    fits = world.claim("fits", ttl=0.0601)
    world.run(0.021)
    assert (later.state, fits.state, lines(world)) == (State.HELD, State.HELD, ["up"] * 3)


def test_a_ttl_that_was_refused_in_a_slow_moment_is_served_later(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(ttl=3.0)
    slow(world, 0.01, monkeypatch)
    world.connect().run(1.0)
    slow(world, 0.001, monkeypatch)
    assert world.claim(ttl=0.05).refusal is not None
    world.run(0.01)
    assert world.claim(ttl=0.05).refusal is None


def test_a_first_claim_is_refused_when_the_round_trip_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(ttl=0.05, outage=10.0)
    slow(world, 0.01, monkeypatch)
    claim, other = world.claim(ttl=0.05), world.claim("b", ttl=10.0)
    world.run(1.0)
    assert type(claim.refusal) is ConfigError and "The shortest ttl that can work is 0.06 seconds" in str(claim.refusal)
    assert other.state is State.HELD and lines(world) == ["up"] * 3
    assert not any(it.of("request")[0].ttl == 50 for it in world.nodes), "no node was asked for what cannot be had"


def test_a_short_claim_that_fits_is_served_when_its_nodes_come_up() -> None:
    world = World()
    claim = world.claim(ttl=0.3)
    world.run(0.1)
    assert claim.state is State.HELD and world.engine.upkeep.patience == near(0.1)


# ------------------------------------------------ what callers want


def test_an_extension_is_confirmed() -> None:
    world = World().connect()
    claim = world.claim(ttl=2.0)
    world.run(0.1)
    world.settled.clear()
    assert world.engine.extend(claim, 20.0, world.now)
    began = world.now
    world.run(0.1)
    assert [it.ttl for it in world.nodes[0].of("request")] == [2000, 20_000]
    assert world.settled == [claim] and claim.refusal is None
    # The nodes have the mark first.
    assert claim.until == near(began + 2 * TRIP + 20.0 - 0.202)
    world.end(claim)
    assert not world.engine.extend(claim, 20.0, world.now)


def test_an_extension_that_finds_the_lease_run_out_tells_so() -> None:
    world = World().connect()
    claim = world.claim(ttl=2.0)
    world.run(0.1)
    world.settled.clear()
    world.now += 5.0
    assert not world.engine.extend(claim, 2.0, world.now)
    world.run(0.0)
    assert (claim.state, claim.reason, world.settled) == (State.LOST, "slow", [claim])
    assert [word(it) for it in world.events] == ["lost"]


def test_closing_ends_a_lease_that_has_just_run_out() -> None:
    world = World().connect()
    claim = world.claim()
    world.run(1.0)
    world.now += 60.0
    world.engine.close(world.now)
    assert (claim.state, claim.reason, world.engine.live) == (State.LOST, "slow", {})


def test_a_first_claim_with_a_long_ttl_has_a_ticket_by_the_clock_of_the_nodes() -> None:
    # Rule F6.
    world = World()
    for node in world.nodes:
        node.ahead = 60.0
    claim = world.claim(ttl=20.0)
    ticket = claim.ticket
    world.run(1.0)
    assert claim.state is State.HELD
    assert claim.fence - ticket == near(60e6, abs=1e6)
