"""The engine: what it tells, jobs, several names, queries, and holders of another kind."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import count
from math import inf
from typing import Any

import pytest
from engine.world import (
    ANOTHER,
    START,
    TRIP,
    WALL,
    World,
    away,
    busy,
    denied,
    granted,
    guarded,
    lines,
    near,
    rests,
    timers,
    usual,
    warnings,
)
from proof.books import word

from holdfast import events
from holdfast.engine.recorder import Stats
from holdfast.errors import LockBusy, NoQuorum
from holdfast.protocol.claim import Claim, State
from holdfast.protocol.joint import JointRequest
from holdfast.protocol.semaphore import Slots
from holdfast.protocol.timing import Timing

# ------------------------------------------------ events


def test_what_is_told_of_a_lock_that_goes_well() -> None:
    world = World(telling=True, in_step=True).connect()
    claim = world.claim("a name")
    world.run(4.0)
    world.end(claim)
    world.run(1.0)
    assert [word(it) for it in world.events] == ["Attempt", "Acquired", "Renewed", "released"]
    attempt, acquired, renewed, released = world.events
    known: dict[str, Any] = {"name": "a name", "token": claim.token.decode(), "names": ("a name",), "want": claim.ticket}
    waited = near(2 * TRIP)
    fence: dict[str, Any] = {"fence": claim.ticket, "fences": {"a name": claim.ticket}}
    assert attempt == events.Attempt(**known, waited=0.0)
    assert acquired == events.Acquired(**known, **fence, waited=waited)
    assert isinstance(renewed, events.Renewed) and renewed.remaining == near(10 - 0.102 - 2 * TRIP)
    assert renewed.left == near(10 - 0.102 - 10 / 3 - 2 * TRIP, abs=0.2), "a third of the ttl had gone by"
    assert (renewed.name, renewed.token, renewed.waited, renewed.fence) == ("a name", claim.token.decode(), waited, claim.ticket)
    assert released == events.Ended(how="released", **known, **fence, waited=waited, held=near(4.0 - 2 * TRIP))
    began = datetime.fromtimestamp(WALL + 0.5, UTC)
    assert [it.at for it in (attempt, acquired, released)] == [began, began + timedelta(seconds=2 * TRIP), began + timedelta(seconds=4)]


@pytest.mark.parametrize("holder, told", [(None, None), (ANOTHER, ANOTHER.decode()), (b"caf\xe9", "caf\\xe9")])
def test_what_is_told_of_waiting(holder: bytes | None, told: str | None) -> None:
    world = World(telling=True).connect()
    for node in world.nodes:
        node.answer = lambda asked: denied(holder=holder)
    claim = world.claim()
    world.run(5.0)
    world.end(claim)
    queued, refused = world.events[1:]  # each once
    assert isinstance(queued, events.Queued)
    assert (queued.name, queued.token, queued.holder, queued.waited) == ("a", claim.token.decode(), told, 2 * TRIP)
    assert queued.place == 1
    # It gave up by itself.
    known: dict[str, Any] = {"name": "a", "token": claim.token.decode(), "names": ("a",), "want": claim.ticket}
    assert refused == events.Refused(**known, waited=near(5.0), error=None, outcome="gave_up")


def test_what_is_told_of_a_refusal() -> None:
    world = World(telling=True).connect()
    busy(world)
    claim = world.claim(patient=False)
    world.run(1.0)
    assert type(claim.refusal) is LockBusy and claim.refusal.holder == ANOTHER.decode()
    assert world.events[1:] == [
        events.Refused(
            name="a",
            token=claim.token.decode(),
            waited=near(2 * TRIP),
            names=("a",),
            want=claim.ticket,
            error=claim.refusal,
            outcome="busy",
        ),
    ]


@pytest.mark.parametrize("telling", [True, False])
def test_doubt_and_loss_are_told_in_any_case(telling: bool) -> None:
    world = World(in_step=True, telling=telling, node_timeout=0.5).connect()
    claim = world.claim()
    world.run(1.0)
    away(world, 0, 1, 2)
    world.run(10.0)
    assert claim.state is State.LOST
    told = [it for it in world.events if isinstance(it, events.Doubt | events.Ended)]
    known: dict[str, Any] = {"name": "a", "token": claim.token.decode(), "waited": near(2 * TRIP), "fence": claim.ticket}
    known |= {"names": ("a",), "want": claim.ticket, "fences": {"a": claim.ticket}}
    beat = 10 / 3 - 0.102 + 0.5  # the renewal, and as long as nodes may take to confirm it
    why = "; ".join(f"redis://n{node}:1: refused {node}" for node in range(3))
    lost = events.Ended(how="lost", **known, reason="expired", held=near(10 - 0.102 - 2 * TRIP), why=why)
    assert told == [events.Doubt(**known, remaining=near(10 - 0.102 - beat, abs=0.2), why=why), lost]


def test_nothing_is_told_of_locks_that_go_well_unless_somebody_listens() -> None:
    world = World().connect()
    claim = world.claim()
    world.run(4.0)
    busy(world, b"busy")
    waits, tries = world.claim("busy"), world.claim("busy", patient=False)
    world.run(4.0)
    world.end(claim)
    world.end(waits)
    world.run(1.0)
    assert [it.state for it in (claim, waits, tries)] == [State.OVER] * 3 and world.events == []


def test_a_release_is_told_once_and_not_after_a_loss() -> None:
    world = World(telling=True).connect()
    claim, lost = world.claim(), world.claim("lost")
    world.run(1.0)
    for number in (0, 1):
        world.publishes(number, b"x %b 0 lost" % lost.token)
    world.events.clear()
    for it in (claim, claim, lost):
        world.end(it)
    world.run(1.0)
    assert [word(it) for it in world.events] == ["released"]


# ------------------------------------------------ jobs


def test_all_slots_of_a_semaphore_have_the_ticket_that_counts() -> None:
    """Those that are asked for later, too."""
    world = World(3)
    for node in world.nodes:
        node.ahead = -3600.0
    slots = Slots("s", 3, 2, ttl=10, horizon=world.settings.horizon)
    joint = world.engine.want(slots, Timing(10.0), world.now)
    for claim in joint.claims[:1]:
        busy(world, claim.recipe.name)
    world.engine.begin(joint, world.now)
    world.run(2.0)
    assert joint.state is State.HELD
    assert len({it.ticket for it in joint.claims}) == 1
    assert all(abs(it.fence / 1e6 - WALL + 3600.0) < 3.0 for node in world.nodes for it in node.of("request"))


def test_nodes_whose_clocks_are_all_set_are_believed_and_who_waits_starts_over() -> None:
    # Rule F6.
    for nodes in (1, 3):
        world = World(nodes).connect()
        world.run(2.0)
        floor = int((WALL + 3600.0) * 1e6)
        for node in world.nodes:
            node.ahead = 3608.0
            node.answer = lambda asked, least=floor: usual(asked.fence) if asked.fence > least else granted(least, fresh=1)
        claim = world.claim()
        world.run(0.1)
        assert claim.state is State.HELD
        assert claim.fence == claim.ticket > floor
        assert lines(world) == ["up"] * nodes


def test_clocks_are_asked_again_now_and_then() -> None:
    world = World().connect()
    world.run(1300.0)
    world.nodes[1].ahead = -20.0
    world.claim()
    world.run(2.0)
    assert lines(world) == ["up", "down", "up"]


WRONGTYPE = b"-WRONGTYPE Operation against a key holding the wrong kind of value\r\n"


OF_ANOTHER_TYPE = "the key of 'jobs' holds data of another type than a lock's (a string): this node grants the lock to nobody. "


LASTS = "'jobs' is held there by 'a value', a value without an expiry: it stays until it is removed. "


@pytest.mark.parametrize("number", [0, 1, 2])
@pytest.mark.parametrize(
    "reply, told",
    [(WRONGTYPE, OF_ANOTHER_TYPE), (denied(left=-1, holder=b"a value"), LASTS)],
    ids=["another type", "no expiry"],
)
def test_a_key_that_keeps_a_minority_from_granting_is_warned_of_once(number: int, reply: bytes, told: str) -> None:
    """Whichever node it is on: also on the last one to answer."""
    world = World().connect()
    world.nodes[number].answer = lambda asked: reply
    claim = world.claim("jobs")
    world.run(20.0)
    world.claim("jobs", deadline=world.now + 1.0)
    world.run(2.0)
    assert claim.state is State.HELD
    ((node, warning),) = warnings(world)
    assert node == f"n{number}" and warning.startswith(told)
    world.claim("other", deadline=world.now + 1.0)
    world.run(2.0)
    assert warnings(world)[1:] == [(f"n{number}", warning.replace("jobs", "other"))]


def test_a_value_without_an_expiry_is_warned_of_once_for_a_name_and_a_node_whatever_it_is() -> None:
    """A lock of redis-py without a timeout has another value each time."""
    world = World().connect()
    values = count()
    for node in world.nodes:
        node.answer = lambda asked: denied(left=-1, holder=b"value%d" % next(values))
    claim = world.claim("jobs")
    world.run(60.0)
    assert claim.state is State.WAITING
    assert sorted(node for node, _ in warnings(world)) == ["n0", "n1", "n2"]
    assert all("call force_release('jobs', reason, only='value" in it for _, it in warnings(world))


def test_what_nodes_refuse_with_makes_no_long_message() -> None:
    """Each node answers with an error of 20 MB, which has control characters in it."""
    world = World(outage=1.0).connect()
    for node in world.nodes:
        node.answer = lambda asked: b"-ERR \x1b[2J" + b"no" * 10**7 + b"\r\n"
    claim = world.claim("jobs")
    world.run(5.0)
    error = claim.refusal
    assert type(error) is NoQuorum and len(error.causes) == 3
    assert str(error).replace("\n", "").isprintable() and len(str(error)) < 2000
    assert sum(len(str(it)) for it in world.events) < 2000


# ------------------------------------------------ several names


def test_several_names_are_one_batch_a_node_and_one_round_trip() -> None:
    world = World(telling=True).connect()
    joint = world.want("a", "b", "c")
    assert isinstance(joint, JointRequest)
    assert [node.writes[2:] for node in world.nodes] == [[world.nodes[0].writes[2]]] * 3
    assert world.nodes[0].writes[2].count(b"EVALSHA") == 4  # (the fourth is a note in the registry)
    world.run(2 * TRIP)
    assert (joint.state, joint.since, world.settled) == (State.HELD, START + 0.5 + 2 * TRIP, [joint])
    assert {it.token for it in joint.claims} == set(world.engine.live)
    assert len({it.ticket for it in joint.claims}) == 1
    assert [it.fence for it in joint.claims] == [joint.claims[0].ticket] * 3
    told = [(type(it), it.name, it.names, it.want) for it in world.events if isinstance(it, events.LockEvent)]
    ticket = joint.claims[0].ticket
    assert told == [(kind, "a,b,c", ("a", "b", "c"), ticket) for kind in (events.Attempt, events.Acquired)], "one for all"
    [acquired] = [it for it in world.events if isinstance(it, events.Acquired)]
    assert (acquired.fence, acquired.fences) == (ticket, dict.fromkeys("abc", ticket))
    world.end(joint)
    assert (joint.state, world.engine.live) == (State.OVER, {})
    world.run(2 * TRIP)
    assert [node.holders for node in world.nodes] == [{}, {}, {}]


def test_slots_are_asked_for_when_the_first_is_taken_and_given_back_when_one_is_held() -> None:
    world = World(telling=True).connect()
    slots = Slots("pool", 2, 1, 10.0, horizon=world.settings.horizon)

    def permit(**terms: Any) -> Any:
        want = world.wanted(slots, 10.0, **terms)
        world.engine.begin(want, world.now)
        world._send()
        world.run(6 * TRIP)
        return want

    one = permit()
    assert isinstance(one, JointRequest) and one.state is State.HELD and [it.token for it in one.claims] == list(world.engine.live)
    other = permit()
    assert other.state is State.HELD and {it.recipe.slot for it in (*one.claims, *other.claims)} == {0, 1}
    assert sorted(world.engine.live) == sorted(it.token for it in (*one.claims, *other.claims)), "what was too much is given back"
    refused = permit(patient=False)
    assert refused.state is State.OVER and len(world.engine.live) == 2
    waits = permit()
    assert waits.state is State.WAITING and len(world.engine.live) == 4, "it stands in both lines"
    world.end(one)
    world.run(4.0)  # (these nodes hand nothing on: it looks again after a third of its ttl)
    assert waits.state is State.HELD and waits.claims[0].recipe.slot == one.claims[0].recipe.slot and len(world.engine.live) == 2
    kinds = [word(it) for it in world.events if isinstance(it, events.LockEvent)]
    assert [kinds.count(it) for it in ("Attempt", "Acquired", "Refused", "released")] == [4, 3, 1, 1]
    assert isinstance(world.engine.want(Slots("one", 1, 1, 10.0, horizon=16_000), Timing(10.0), world.now), Claim)


def test_one_name_is_a_claim() -> None:
    world = World().connect()
    claim = world.want("a")
    world.run(1.0)
    assert isinstance(claim, Claim) and claim.state is State.HELD and world.settled == [claim]


def test_several_names_are_renewed_for_as_long_as_they_are_wanted() -> None:
    world = World(telling=True).connect()
    joint = world.want("a", "b", ttl=3.0)
    world.run(60.0)
    assert (joint.state, world.settled) == (State.HELD, [joint])
    assert joint.until > world.now
    assert world.engine.stats(world.now) == Stats(
        held=1,
        waiting=0,
        attempts=1,
        acquired=1,
        refused=0,
        released=0,
        lost=0,
        renewed=world.engine.stats(world.now).renewed,
        doubts=0,
        down=0,
        waited=near(2 * TRIP),
    )
    assert 59 <= world.engine.stats(world.now).renewed <= 61, "one for both names"


@pytest.mark.parametrize("busy_one", ["a", "b"])
def test_a_try_for_several_names_keeps_nothing_and_is_told_in_order(busy_one: str) -> None:
    world = World(telling=True).connect()
    busy(world, busy_one.encode())
    joint = world.want("a", "b", patient=False)
    world.run(1.0)
    assert (joint.state, joint.refusal.name, world.settled, world.engine.live) == (State.OVER, busy_one, [joint], {})
    told = [(type(it), it.name) for it in world.events if isinstance(it, events.LockEvent)]
    assert told == [(events.Attempt, "a,b"), (events.Refused, "a,b")]
    assert [node.holders for node in world.nodes] == [{busy_one.encode(): ANOTHER}] * 3


def test_what_is_refused_when_it_begins_was_attempted_before() -> None:
    world = World(telling=True)
    guarded(world, 0, 1, 2)
    world.connect()
    joint = world.want("a", "b", patient=False)
    assert (joint.state, world.settled, world.engine.live) == (State.OVER, [joint], {})
    assert [type(it) for it in world.events] == [events.Attempt, events.Refused]


@pytest.mark.parametrize("reason", ["forced", "expired", "max_hold"])
def test_the_loss_of_several_names_is_told_once(reason: str) -> None:
    world = World().connect()
    joint = world.want("a", "b", ttl=3.0, **({"max_hold": 1.0} if reason == "max_hold" else {}))
    world.run(0.5)
    world.settled.clear()
    if reason == "forced":
        for number in range(2):
            world.publishes(number, b"x %b 0 b" % joint.claims[1].token)
    elif reason == "expired":
        away(world, 0, 1)
    world.run(5.0)
    assert (joint.state, joint.reason, world.settled, world.engine.live) == (State.LOST, reason, [joint], {})
    assert [(it.name, it.reason) for it in world.events if word(it) == "lost"] == [("a,b", reason)]
    world.end(joint)
    assert world.engine.next_wake() == inf or joint.done


def test_an_extension_of_several_names_is_told_when_all_have_it_and_a_loss_at_once() -> None:
    world = World().connect()
    joint = world.want("a", "b")
    world.run(0.1)
    world.settled.clear()
    assert world.engine.extend(joint, 20.0, world.now)
    world.run(0.1)
    assert (world.settled, joint.setback) == ([joint], None)
    assert joint.until == near(world.now + 20.0 - 0.3, abs=0.2)
    world.settled.clear()
    for node in world.nodes:
        node.mute = True
    assert world.engine.extend(joint, 20.0, world.now)
    world.run(0.1)
    for number in range(2):
        world.publishes(number, b"x %b 0 a" % joint.claims[0].token)
    assert (joint.state, world.settled) == (State.LOST, [joint])
    assert not world.engine.extend(joint, 20.0, world.now)


def test_a_release_of_several_names_may_be_waited_for() -> None:
    world = World(telling=True).connect()
    joint = world.want("a", "b")
    world.run(0.1)
    world.settled.clear()
    world.end(joint, heard=True)
    assert (world.settled, joint.done) == ([], False)
    world.run(2 * TRIP)
    assert (world.settled, joint.freed, joint.done, world.engine.live) == ([joint], 2, True, {})
    assert [it.name for it in world.events if word(it) == "released"] == ["a,b"]


def test_closing_ends_several_names_at_once() -> None:
    world = World(telling=True).connect()
    busy(world)
    held, waits = world.want("b", "c"), world.want("a", "d")
    world.run(0.1)
    world.settled.clear()
    world.engine.close(world.now)
    world.run(0.0)
    assert (held.state, held.reason, waits.state, waits.refusal) == (State.LOST, "closed", State.OVER, None)
    assert sorted(map(id, world.settled)) == sorted(map(id, [held, waits])) and world.engine.live == {}


def test_several_names_wait_for_the_one_that_is_busy() -> None:
    world = World().connect()
    busy(world, b"b")
    joint = world.want("a", "b", ttl=3.0)
    world.run(9.5)
    assert (joint.state, world.settled, world.engine.stats(world.now).waiting) == (State.WAITING, [], 1)
    for number in range(2):
        world.nodes[number].holders[b"b"] = joint.claims[1].token
        world.publishes(number, b"g %b %d b" % (joint.claims[1].token, joint.claims[1].ticket + 5))
    assert (joint.state, world.settled) == (State.HELD, [joint])
    world.run(10.0)
    assert joint.state is State.HELD


# ------------------------------------------------ queries


def test_a_round_is_one_question_to_each_node() -> None:
    world = World().connect()
    query = world.consult(0, 1, 2)
    world.run(2 * TRIP)
    assert (world.found, query.sufficient, query.answers, query.causes) == ([query], True, dict.fromkeys(range(3), b"OK"), {})
    assert [len(node.of("PING")) for node in world.nodes] == [1, 1, 1]
    world.run(50.0)
    assert (world.found, world.engine.queries, timers(world), rests(world)) == ([query], {}, 0, True)


def test_a_round_before_anything_is_connected_waits_for_it() -> None:
    world = World()
    query = world.consult(0, 2)
    world.run(5 * TRIP)
    assert (world.found, set(query.answers)) == ([query], {0, 2})


def test_a_round_is_over_after_node_timeout_at_the_latest() -> None:
    world = World(node_timeout=0.7).connect()
    world.nodes[1].mute = True
    began = world.now
    query = world.consult(0, 1, 2)
    world.run(0.69)
    assert world.found == []
    world.run(0.02)
    assert (world.found, set(query.answers)) == ([query], {0, 2})
    assert "silent" in str(query.causes[1]) or "no answer yet" in str(query.causes[1])
    assert query.began == began


def test_a_round_does_not_wait_for_nodes_that_are_away_or_go_away() -> None:
    world = World(4, node_timeout=1.0).connect()
    world.run(60.0)
    away(world, 0)
    world.run(0.1)
    world.nodes[1].mute = world.nodes[3].mute = True
    query = world.consult(0, 1, 2, 3)
    world.run(0.1)
    assert world.found == []
    away(world, 1)
    world.nodes[3].mute = False
    world.cut(3)  # it is back at once, and asked again
    world.run(0.2)
    assert (world.found, set(query.answers), set(query.causes)) == ([query], {2, 3}, {0, 1})
    assert len(world.nodes[3].of("PING")) == 2


def test_whoever_asks_may_have_enough() -> None:
    world = World().connect()
    world.nodes[2].mute = True
    query = world.consult(0, 1, 2, enough=lambda answers: len(answers) > 1)
    world.run(2 * TRIP)
    assert (world.found, set(query.answers)) == ([query], {0, 1})
    nobody = world.consult()
    assert (world.found, nobody.over) == ([query, nobody], True)


def test_callers_who_ask_the_same_share_a_question_that_goes_out_after_they_came() -> None:
    world = World().connect()
    first = world.consult(0, 1, 2, share="a")
    second = world.consult(0, 1, 2, share="a")
    assert second is not first, "what is under way may have been answered before the second caller came"
    assert world.consult(0, 1, 2, share="a") is second
    other, own = world.consult(0, 1, 2, share="b"), world.consult(0, 1, 2)
    assert len({first, second, other, own}) == 4
    assert [len(node.of("PING")) for node in world.nodes] == [0, 0, 0]
    world.run(TRIP)
    assert [len(node.of("PING")) for node in world.nodes] == [3, 3, 3], "the first, and the two others"
    world.run(TRIP)
    assert (first.over, second.over, other.over, own.over) == (True, False, True, True)
    third = world.consult(0, 1, 2, share="a")
    assert third is not second
    world.run(2 * TRIP)
    assert (second.over, third.over) == (True, False)
    assert second.began >= first.ended
    world.run(2 * TRIP)
    assert third.over
    assert [len(node.of("PING")) for node in world.nodes] == [5, 5, 5]
    assert world.found.count(second) == 1
    world.run(80.0)
    assert (world.engine._shared, world.engine.queries, timers(world)) == ({}, {}, 0)


def test_a_shared_question_has_its_own_time() -> None:
    """It is over after `node_timeout` at the latest, counted from when it goes out."""
    world = World(node_timeout=0.7).connect()
    world.nodes[1].mute = True
    first = world.consult(0, 1, 2, share="a")
    world.run(0.5)
    second = world.consult(0, 1, 2, share="a")
    world.run(0.21)
    assert first.over
    assert second.began == first.ended
    assert second.deadline == second.began + 0.7


def test_a_shared_question_that_is_over_at_once_is_in_nobody_s_way() -> None:
    world = World().connect()
    for _ in range(2):
        nobody = world.consult(share="a")
        assert nobody.over
    assert world.engine._shared == {}


# ------------------------------------------------ holders of another kind


def test_the_release_of_a_foreign_holder_is_noticed_at_once() -> None:
    world = World().connect()
    for node in world.nodes:
        node.holders[b"a"] = b"my_random_value"
    claim = world.claim(ttl=12.0)
    world.run(0.1)
    for node in world.nodes:
        assert node.writes[-1].startswith(b"*3\r\n$6\r\nCLIENT\r\n$7\r\nCACHING\r\n$3\r\nYES\r\n*13\r\n$7\r\nEVALSHA\r\n")
        assert [it.word for it in node.asked[-3:]] == ["request", "CLIENT", "request"]
    for node in world.nodes[:2]:
        del node.holders[b"a"]
    told = world.now
    for number in range(2):
        world.says(number, b">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\na\r\n")
    world.run(0.1)
    assert (claim.state, claim.since) == (State.HELD, told + 2 * TRIP)
    assert [len(node.of("request")) for node in world.nodes] == [3, 3, 2]


def test_a_thousand_leases_ask_a_flushed_node_in_one_write() -> None:
    world = World().connect()
    node, leases = world.nodes[1], [world.claim(f"lock{it}", ttl=30.0) for it in range(1000)]
    reader = world.claim("reader")  # (and one that waits: others hear of it first)
    busy(world, b"waited for")
    waiter = world.claim("waited for", ttl=30.0)
    world.run(1.0)
    assert {it.state for it in leases} == {State.HELD} and waiter.state is State.WAITING
    for it in leases:
        del node.holders[it.recipe.name]
    del node.holders[b"reader"], node.holders[b"waited for"]
    before, writes = len(node.of("request")), len(node.writes)
    for _ in range(5):  # flush upon flush
        world.says(1, b">2\r\n$10\r\ninvalidate\r\n_\r\n")
    world.run(0.1)
    assert len(node.of("request")) - before == 1001
    assert len(node.writes) - writes == 1
    assert {it.state for it in (*leases, reader)} == {State.HELD} and waiter.state is State.WAITING
    assert all(node.holders[it.recipe.name] == it.token for it in leases)


@pytest.mark.parametrize(
    "keys, asked",
    [
        (b"*1\r\n$1\r\na\r\n", 3),
        (b"*2\r\n$1\r\nb\r\n$1\r\na\r\n", 3),
        (b"_\r\n", 3),
        (b"*1\r\n$1\r\nb\r\n", 2),
        (b"*0\r\n", 2),
    ],
)
def test_an_invalidation_is_for_those_who_watch_that_key(keys: bytes, asked: int) -> None:
    """And one without keys, after FLUSHALL, for all."""
    world = World().connect()
    world.nodes[0].answer = lambda asked: denied(holder=b"my_random_value")
    busy(world, numbers=(1, 2))
    claim = world.claim()
    world.claim("elsewhere")
    world.run(0.1)
    world.says(0, b">2\r\n$10\r\ninvalidate\r\n" + keys)
    world.run(0.1)
    assert len([it for it in world.nodes[0].of("request") if it.name == b"a"]) == asked
    assert (claim.state, world.nodes[0].connection, lines(world)) == (State.WAITING, 1, ["up"] * 3)


def test_a_server_that_tracks_nothing_is_asked_by_the_timer() -> None:
    world = World(1).connect()
    node = world.nodes[0]
    answers = node._answers
    node._answers = lambda words, now: b"-NOPERM no\r\n" if words[:2] == [b"CLIENT", b"CACHING"] else answers(words, now)  # type: ignore[method-assign]  # (a fake in its place)
    node.answer = lambda asked: denied(left=500, holder=b"my_random_value")
    claim = world.claim()
    world.run(0.3)
    node.answer = node.first_come
    world.run(0.3)
    assert (claim.state, node.connection) == (State.HELD, 1)
