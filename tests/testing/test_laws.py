"""Each law, broken by hand: something is changed that nobody but the laws can see."""

from __future__ import annotations

import re

import pytest
from engine.world import InStep
from swarm.faults import promote
from testing.theatre import Theatre

from holdfast.errors import NoQuorum
from holdfast.protocol.claim import Claim, State
from holdfast.protocol.readwrite import rw_keys_of
from holdfast.scripts import REGISTRY
from holdfast.testing.client import SimulatedClient
from holdfast.testing.laws import has_token, runs_out
from holdfast.testing.windows import HeldWindow
from holdfast.testing.world import Violation
from holdfast.wire.resp import pack

FENCE = b"{L}:fence"


class Court(Theatre):
    """A lock that one of the two clients holds."""

    def __init__(self, calm: bool = False) -> None:
        super().__init__(calm=calm)
        for driver in self.drivers:
            # Its claims have no places of their own: renewals leave when the tests expect them.
            driver.engine.tickets = InStep(driver.engine.tickets.inbox)
        self.claim = self.world.do(self.take(self.one))
        self.later(0.05)  # every node has it

    def works(self, driver: SimulatedClient) -> None:
        """It does what is due, and laws see that."""
        driver.driver.steer(lambda engine, now: None)
        driver.process.awake = True
        self.world.loop.look()
        self.world.loop.raises()

    def lets_go(self, driver: SimulatedClient, claim: Claim) -> None:
        """Give the lock back."""
        driver.driver.let_go(claim)
        self.works(driver)

    def breaks(self, said: str) -> None:
        """It is noticed, and this is said of it."""
        with pytest.raises(Violation) as raised:
            self.later(2.0)
        assert re.sub(r"\d{16}:(\w{4})\w{28}:\w{8}|(\.\d\d)\d+", r"\1\2", str(raised.value)) == said


@pytest.fixture
def court() -> Court:
    return Court()


def delete(court: Court, *nodes: int, known: bool = False) -> None:
    for node in nodes:
        if known:
            court.laws.takes_away(court.nodes[node], b"L")
        court.nodes[node].tell(pack(b"DEL", b"L"))


def test_nothing_is_wrong_where_nothing_is_wrong(court: Court) -> None:
    other = court.two.process.run(court.take(court.two))
    court.later(3.0)
    court.lets_go(court.one, court.claim)
    court.later(1.0)
    assert other.result().state is State.HELD
    court.lets_go(court.two, other.result())
    court.later(1.0)
    for driver in court.drivers:
        court.laws.quiet(driver)
    assert not court.laws.open


def test_exclusion(court: Court) -> None:
    """Two locks are held, and all at once they are the same."""
    other = court.world.do(court.take(court.two, "M"))
    court.laws.held.pop(other)
    other.recipe = court.claim.recipe
    court.world.at(0.0, lambda: None)
    court.breaks("exclusion: 62e6 is granted while ac4c holds, for 0.93 s more")


def test_a_majority_has_the_token(court: Court) -> None:
    delete(court, 0)
    court.later(0.1)
    delete(court, 1)
    court.breaks("majority: ac4c is held for 0.68 s more, but has only [2]")


def test_what_an_operator_did_is_excused_until_it_is_there_again(court: Court) -> None:
    delete(court, 0, 1, known=True)
    court.later(0.1)
    assert court.claim.state is State.HELD
    court.later(0.5)
    assert court.claim.state is State.LOST  # its renewal has told it
    claim = court.world.do(court.take(court.one))
    delete(court, 0, known=True)
    court.later(2.0)
    assert court.nodes[0].holder(b"L") == claim.token  # taken back
    delete(court, 0, 1)
    court.breaks("counted: ac4c counts node 0 for 0.68 s more, which has ''")


def test_what_was_taken_from_a_writer_was_taken_from_the_reader_that_it_becomes(court: Court) -> None:
    bare = court.claim.token
    court.laws.published(court.nodes[0], b"x %b:w 0 L" % bare)
    court.claim.token = bare + b":r"
    assert court.laws._unheard(court.claim, court.nodes[0])


def test_a_node_in_its_guard_is_out_of_reach(court: Court) -> None:
    court.nodes[0].restart()
    court.nodes[1].restart()
    court.later(0.1)
    court.nodes[0].born = court.nodes[1].born = -100.0
    court.breaks("counted: ac4c counts node 0 for 0.66 s more, which has ''")


def test_a_node_that_counts_has_the_token() -> None:
    court = Court()
    other = court.two.process.run(court.take(court.two))
    court.later(0.1)
    claim = next(claim for claim in court.laws.open if claim.state is State.WAITING)
    claim.votes[2].granted, claim.votes[2].bound = True, 1e9
    court.breaks("counted: 62e6 counts node 2 for 998588588.55 s more, which has 'ac4c'")
    assert not other.done()


def test_fences_increase(court: Court) -> None:
    court.lets_go(court.one, court.claim)
    court.laws.fences.passed(HeldWindow(b"L", "somebody's", 9 * 10**15, 0.0))
    with pytest.raises(Violation, match=r"^fence: "):
        court.world.do(court.take(court.two))


def test_what_is_over_does_not_rise(court: Court) -> None:
    court.lets_go(court.one, court.claim)
    court.later(0.1)
    court.claim.state = State.HELD
    court.breaks("risen: ac4c was OVER, and is HELD")


def test_whose_time_was_up_does_not_go_on(court: Court) -> None:
    court.one.process.pause(1.5)
    court.world.after(1.1, lambda: None)
    court.later(1.2)
    assert court.laws.held[court.claim].expired
    court.claim.until += 10.0
    court.world.after(0.1, lambda: None)
    court.breaks("risen: the time of ac4c was up, and it is held until 9.63 s from now")


def test_whose_time_is_up_is_told(court: Court) -> None:
    court.claim.until = court.one.clock() + 0.01
    court.world.after(0.02, lambda: None)
    court.breaks("silent: the time of ac4c was up 0.01 s ago, and its holder does not know")


def test_a_lease_ends_with_its_longest_hold(court: Court) -> None:
    claim = court.world.do(court.take(court.two, "M", max_hold=0.5))
    claim.until += 0.2
    court.breaks("max_hold: 62e6 may last for 0.50 s, and does for 0.70")


def test_a_gap_is_noticed(court: Court, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Claim, "_gap", lambda *_: False)
    delete(court, 0, 1, known=True)
    court.breaks("gap: ac4c is held through a gap, 0.00 s ago, though every node has spoken since")


@pytest.mark.parametrize("deleted", [False, True])
def test_a_gap_is_excused_if_a_record_was_deleted_since(court: Court, deleted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Claim, "_gap", lambda *_: False)
    court.nodes[2].freeze(0.5)
    delete(court, 0, 1, known=True)
    court.later(0.5)  # it has two nodes back
    if deleted:
        court.laws.forgets(court.nodes[2], lambda: court.nodes[2].tell(pack(b"DEL", FENCE)))
        court.later(2.0)
        assert court.claim.state is State.HELD
    else:
        court.breaks("gap: ac4c is held through a gap, 0.23 s ago, though every node has spoken since")


@pytest.mark.parametrize("deleted", [False, True])
def test_a_lease_is_lost_to_a_gap_only_if_a_node_has_lost_its_token(court: Court, deleted: bool) -> None:
    if deleted:  # a record that is deleted, and not made again at another fence, is no excuse
        court.laws.forgets(court.nodes[2], lambda: court.nodes[2].tell(pack(b"DEL", FENCE)))

    def loses() -> None:
        court.claim.lose(court.one.clock(), "gap")
        court.works(court.one)

    court.world.after(0.1, loses)
    court.breaks("unfounded: ac4c is lost to a gap, though every node that had its token has it still")


@pytest.mark.parametrize("how", ["by an operator", "killed", "run out, and granted again", "its record was made again"])
def test_a_gap_that_was_one_is_founded(court: Court, how: str) -> None:
    node = court.nodes[2]
    if how == "by an operator":
        delete(court, 2, known=True)
    elif how == "killed":
        node.restart()
    elif how == "its record was made again":
        court.later(1.0)  # the clock floor is half of K behind
        court.laws.forgets(node, lambda: node.tell(pack(b"DEL", FENCE)))
        node.tell(court.recipe(1.0).request(court.claim.token, 1.0, b"w", court.claim.ticket, court.claim.ticket))
    else:
        node.tell(pack(b"PEXPIRE", b"L", b"1"))
        for when in (0.0, 0.04):  # laws look after events: here are two
            court.world.after(when, lambda: None)
        court.later(0.02)
        assert node.holder(b"L") == b""
        node.tell(pack(b"SET", b"L", court.claim.token, b"PX", b"900"))
    court.later(0.05)
    court.claim.lose(court.one.clock(), "gap")
    court.one.engine.act(court.claim, court.one.clock())
    court.works(court.one)
    assert court.laws.looked["unfounded"] == 1
    court.later(0.5)


def test_another_who_was_granted_it_meanwhile_is_noticed(court: Court, monkeypatch: pytest.MonkeyPatch) -> None:
    waiter = court.two.process.run(court.take(court.two))
    court.later(0.01)
    delete(court, 0, 1, known=True)
    for node in court.nodes[:2]:
        promote(node, court.recipe(1.0))
    court.later(0.01)
    assert waiter.result().state is State.HELD
    assert court.world.seen["held by two, after an operator took it away"] == 1
    assert court.laws.held[court.claim].taken > 0
    court.later(1.0)
    assert court.claim.state is State.LOST


def test_nothing_is_asked_for_what_is_over(court: Court) -> None:
    court.lets_go(court.one, court.claim)
    court.later(0.01)
    request = court.claim.recipe.request(court.claim.token, 1.0, b"w", 5)
    with pytest.raises(Violation, match=r"^zombie: "):
        court.laws.sends(court.two, court.nodes[0], request)


def test_nothing_is_asked_of_a_node_for_what_was_given_back_there(court: Court) -> None:
    recipe, token = court.claim.recipe, court.claim.token
    request = recipe.request(token, 1.0, b"w", 5)
    court.laws.sends(court.one, court.nodes[0], request + recipe.release(token))
    court.laws.sends(court.one, court.nodes[1], request)
    with pytest.raises(Violation, match=r"^zombie: "):
        court.laws.sends(court.one, court.nodes[0], request)


def test_a_release_is_seen_behind_a_script_that_is_told_no_token(court: Court) -> None:
    """As in one write after a greeting: a client registers, then gives back what is over."""
    recipe, token = court.claim.recipe, court.claim.token
    court.laws.sends(court.one, court.nodes[0], pack(b"EVALSHA", REGISTRY.sha, b"4", b"k") + recipe.release(token))
    assert court.laws.given_back == {(court.nodes[0], token): court.one.links[0]}


def test_a_node_is_told_of_what_is_over(court: Court) -> None:
    court.claim.state = State.OVER
    with pytest.raises(Violation, match=r"^release: client ac4c is connected to node 0, and has not given .* back there"):
        court.works(court.one)


def test_a_node_is_told_of_what_is_over_when_it_is_connected_again(court: Court) -> None:
    court.laws.given_back = {(node, court.claim.token): court.one.link(at) for at, node in enumerate(court.nodes)}
    court.one.links[0].cut()
    court.later(0.005)
    court.claim.state = State.OVER
    court.works(court.one)
    court.breaks("release: client ac4c is connected to node 0, and has not given ac4c back there")


def test_a_connection_on_which_no_answer_can_come_is_given_up(court: Court) -> None:
    began, link = court.world.now, court.one.links[0]
    for _ in range(2):
        link.node.unanswered(link)
    assert court.laws.looked["half open"] == 1
    court.breaks("half open: client ac4c still waits for node 0, from which no answer can come")
    assert 2 < (court.world.now - began) / court.settings.node_timeout < 2.1


def test_whoever_was_stopped_meanwhile_has_longer_to_give_up_a_connection(court: Court) -> None:
    court.nodes[0].unanswered(court.one.links[0])
    court.one.process.pause(0.1)
    court.later(2.1 * court.settings.node_timeout)
    assert court.laws.looked["half open"] == 2
    court.breaks("half open: client ac4c still waits for node 0, from which no answer can come")


def test_whoever_is_told_of_no_majority_can_see_it(court: Court) -> None:
    for node in court.nodes[:2]:
        node.stop()
    with pytest.raises(NoQuorum):
        court.world.do(court.take(court.two, "M"))
    court.later(0.1)
    assert (court.laws.looked["known"], court.laws.unknown) == (1, {})
    began = court.world.now
    court.laws.unknown[court.claim] = court.one, began + 9.0, began + 1.0
    court.breaks("known: ac4c: None, and its client says ['down', 'down', 'up']")
    assert 1.0 < court.world.now - began < 1.5


def test_who_has_a_lock_that_is_shared_or_was_a_writers(court: Court) -> None:
    node, bare = court.nodes[0], court.claim.token
    tokens = bare, bare + b":r", bare + b":w"

    def have(value: bytes, more: float = 0.0) -> tuple[bool, ...]:
        readers, deadline = rw_keys_of(b"M")[4], b"%d" % ((node.clock() + more) * 1000)
        node.tell(pack(b"ZADD", readers, deadline, tokens[1]) + pack(b"PEXPIRE", readers, b"9000"))
        node.tell(pack(b"SET", b"M", value, b"PX", b"9000"))
        return tuple(has_token(node, b"M", it) for it in tokens)

    assert [have(it) for it in tokens] == [(True, False, False), (False, True, False), (False, True, True)]
    assert runs_out(node, b"M", bare) == pytest.approx(court.world.now + 9, abs=0.01)
    assert (have(b"shared"), have(b"shared", 1.0)) == ((False, False, False), (False, True, False))
    assert runs_out(node, b"M", tokens[1]) == pytest.approx(court.world.now + 1, abs=0.01)


def test_every_key_has_an_expiry(court: Court) -> None:
    with pytest.raises(Violation, match=r"^no expiry: .*forever"):
        court.nodes[0].tell(pack(b"SET", b"forever", b"v"))


def test_nothing_is_left_over(court: Court) -> None:
    with pytest.raises(Violation, match=r"^left over: "):
        court.laws.quiet(court.one)
    court.laws.quiet(court.two)
    court.two.engine.connections[0].out.append(b"more")
    with pytest.raises(Violation, match=r"^left over: "):
        court.laws.quiet(court.two)


def test_who_has_died_believes_nothing(court: Court) -> None:
    court.one.process.crash()
    court.later(2.0)
    assert not court.laws.held
    assert court.world.do(court.take(court.two)).state is State.HELD


def test_what_a_restarted_node_had_written_down_is_nobody_s(court: Court) -> None:
    """It restarts with what it had before: the token of whoever had it then. Until its guard is over, that is no gap and no grant."""
    court.nodes[0].keeps = court.nodes[1].keeps = True
    court.lets_go(court.one, court.claim)
    court.later(0.1)
    first = court.world.do(court.take(court.two))
    court.later(0.1)
    court.lets_go(court.two, first)
    court.later(0.1)
    second = court.world.do(court.take(court.one))
    court.later(0.02)
    for node in court.nodes[:2]:
        node.restart(lost=0.16)
        assert node.holder(b"L") == first.token
    court.later(0.1)
    assert second.state is State.HELD
    court.nodes[0].server.data[0].put(b"L", b"somebody new", court.nodes[0].server.data[0].deadlines[b"L"])
    court.nodes[0].changes += 1
    court.nodes[1].had.clear()
    court.breaks("majority: ac4c is held for 0.85 s more, but has only [2]")


def test_laws_are_counted_when_they_look(court: Court) -> None:
    court.world.do(court.take(court.two, "M", max_hold=0.5))
    court.later(0.1)
    looked = court.laws.looked
    assert {law for law, times in looked.items() if times > 0} == {"exclusion", "zombie", "no expiry", "max_hold", "majority"}
    court.lets_go(court.one, court.claim)
    court.world.do(court.take(court.two))
    assert looked["fence"] == 1
    assert "order" not in looked


# ---- where there are no faults


@pytest.fixture
def calm() -> Court:
    return Court(calm=True)


def test_waiters_are_served_in_order(calm: Court) -> None:
    for _ in range(2):
        calm.two.process.run(calm.take(calm.two))
        calm.later(0.05)
    first, _ = [claim for claim in calm.laws.open if claim.state is State.WAITING]
    for node in calm.nodes:
        node.tell(pack(b"ZREM", b"{L}:queue", first.token))
    calm.lets_go(calm.one, calm.claim)
    calm.breaks("order: 62e6 is served before 62e6, which waits since 1.55")


def test_a_try_passes_a_waiter_that_it_did_not_find_in_line(calm: Court) -> None:
    calm.two.process.run(calm.take(calm.two))
    calm.later(0.05)
    (waiter,) = [claim for claim in calm.laws.open if claim.state is State.WAITING]
    began, swift = calm.laws.open[waiter][1], calm.world.swift
    calm.claim.patient, calm.claim.ticket = False, waiter.ticket + 1
    calm.laws.open[calm.claim] = calm.one, began + swift / 2
    calm.laws._in_order(calm.claim, swift)
    calm.laws.open[calm.claim] = calm.one, began + swift * 2
    with pytest.raises(Violation, match=r"^order: "):
        calm.laws._in_order(calm.claim, swift)


def test_nobody_waits_for_a_free_lock(calm: Court) -> None:
    calm.two.process.run(calm.take(calm.two))
    calm.later(0.05)
    for node in calm.nodes:
        node.tell(pack(b"DEL", b"{L}:queue"))
    calm.lets_go(calm.one, calm.claim)
    calm.breaks("idle: nobody has had 'L' since 1.60, and somebody waits")


def test_nobody_polls(calm: Court) -> None:
    calm.laws.requests[calm.claim.token] = 1000
    with pytest.raises(Violation, match=r"^polling: "):
        calm.lets_go(calm.one, calm.claim)


def test_nothing_is_lost(calm: Court) -> None:
    delete(calm, 0, 1, known=True)
    calm.breaks("lost: ac4c is lost (gap), though nothing has happened")
