"""The server: when one that is new, or was promoted, may be used."""

from __future__ import annotations

from math import inf

import pytest
from wire.servers import (
    CLOCK,
    GUARD,
    LOADED,
    MOVES,
    OK,
    OTHER,
    Asked,
    Server,
    a_connection,
    bulk,
    found,
    meet,
    message,
    microseconds,
    near,
    noted,
    promoted,
    reigning,
    up,
)

from holdfast.errors import ConfigError, message_of
from holdfast.wire.connection import Connection, ConnectionState

# ------------------------------------------------ the restart guard


def opens(connection: Connection[Asked], now: float, run: str, uptime: int) -> float:
    """When a connection that connects now may be used."""
    meet(connection, now, Server({"run_id": run, "uptime_in_seconds": uptime}))
    assert connection.state is ConnectionState.GUARDED
    return connection.wake


@pytest.mark.parametrize(
    "uptime, left",
    [
        pytest.param(0, 33, id="just started"),
        pytest.param(10, 23, id="a while ago"),
        pytest.param(32, 1, id="the guard ago: uptime is rounded"),
        pytest.param(33, 0, id="longer ago than the guard"),
        pytest.param(10**9, 0, id="long ago"),
        pytest.param(-500, 32, id="in the future: known for the guard is the best that can be had"),
    ],
)
def test_a_server_that_is_new_to_us(uptime: int, left: float) -> None:
    # (33 s, from the uptime, would be later than 32 s, from now on: to have known it for that long is as good)
    assert opens(a_connection(guard=GUARD), 100.0, "a", uptime) == 100.0 + min(left, GUARD)


@pytest.mark.parametrize(
    "uptime, soonest, remembers",
    [
        pytest.param(0, 12, 64, id="just started: to have known it for so long is as good"),
        pytest.param(5, 8, 60, id="a while ago"),
        pytest.param(40, -27, 25, id="longer ago than the guard"),
        pytest.param(10**9, 13 - 10**9, 65 - 10**9, id="long ago"),
    ],
)
def test_when_a_guard_may_end_early_and_from_when_on_the_server_remembers(uptime: int, soonest: float, remembers: float) -> None:
    it = a_connection(guard=GUARD, short_guard=12.0, marked=64.0)
    opens(it, 100.0, "a", uptime)
    assert (it.server.soonest, it.server.remembers) == (100.0 + soonest, 100.0 + remembers)


def test_a_guard_that_ended_early_is_over_for_this_run() -> None:
    it = a_connection(guard=GUARD, short_guard=12.0, marked=64.0)
    opens(it, 100.0, "a", 0)
    it.shorten(112.0)
    assert (it.wake, it.server.soonest, it.server.remembers) == (112.0, inf, 112.0)
    it.broke(113.0)
    assert opens(it, 114.0, "a", 14) == it.server.remembers == 114.0
    it.broke(115.0)
    assert opens(it, 116.0, "b", 10**9) == 114.0 + GUARD, "an earlier run has just answered"
    assert (it.server.soonest, it.server.remembers) == (114.0 + 12.0, 114.0 + 64.0)


def test_no_guard() -> None:
    assert opens(a_connection(guard=None), 100.0, "a", 0) == 100.0


def adopted(run: str, **facts: object) -> Server:
    """A server that says that it is the run `run` of which an operator has said that it is new."""
    return Server({"run_id": "a" * 40, "uptime_in_seconds": 0, **facts}, adopted=bulk(run.encode()))


def test_a_run_that_was_adopted_needs_no_guard() -> None:
    # Rule G5.
    connection = a_connection(guard=GUARD)
    meet(connection, 100.0, adopted("a" * 40))
    assert (connection.state, connection.wake) == (ConnectionState.GUARDED, 100.0)
    connection.broke(101.0)
    assert opens(connection, 102.0, "b" * 40, 0) == 101.0 - 1.0 + GUARD + 2.0, "it restarted: the word is of another run"


OTHER_WORDS = [bulk(b"b" * 40), bulk(b"a" * 39), b"_\r\n", OK, b"-NOPERM no\r\n", b"-LOADING no\r\n", b":1\r\n", b"*0\r\n"]


@pytest.mark.parametrize("told", OTHER_WORDS)
def test_the_word_about_another_run_or_none_ends_no_guard(told: bytes) -> None:
    # Rule G5.
    connection = a_connection(guard=GUARD)
    meet(connection, 100.0, Server({"run_id": "a" * 40, "uptime_in_seconds": 0}, adopted=told))
    assert connection.wake == 100.0 + GUARD
    connection.broke(101.0)
    meet(connection, 102.0, adopted("a" * 40))
    assert connection.wake == 102.0, "an operator has said it meanwhile"


def test_a_client_that_an_earlier_run_has_answered_knows_better_than_the_operator() -> None:
    # Rule G5.
    connection = a_connection(guard=GUARD)
    up(connection, 100.0, Server({"run_id": "b" * 40}))
    connection.say(Asked(b"?"))
    connection.received(OK, 110.0)
    connection.broke(111.0)
    meet(connection, 112.0, adopted("a" * 40))
    assert connection.wake == 110.0 + GUARD


def test_a_run_that_is_known_already() -> None:
    connection = a_connection(guard=GUARD)
    assert opens(connection, 100.0, "a", 5) == 128.0
    connection.broke(110.0)
    assert opens(connection, 120.0, "a", 25) == 128.0  # the same run: its guard has gone on
    connection.broke(121.0)
    assert opens(connection, 122.0, "a", -7) == 132.0  # known since 100, whatever it now says
    connection.broke(123.0)
    assert opens(connection, 132.0, "a", -7) == 132.0
    connection.broke(133.0)
    assert opens(connection, 200.0, "a", 0) == 200.0


def test_an_uptime_is_wrong_if_an_earlier_run_spoke_less_than_a_guard_ago() -> None:
    # Rule G2.
    connection = a_connection(guard=GUARD)
    up(connection, 100.0, Server({"run_id": "a"}))
    connection.say(Asked(b"?"))
    connection.received(OK, 150.0)
    connection.broke(151.0)
    assert opens(connection, 165.0, "b", 5000) == 150.0 + GUARD
    connection.broke(166.0)
    assert opens(connection, 170.0, "b", 5000) == 150.0 + GUARD  # also the second time
    connection.broke(171.0)
    assert opens(connection, 190.0, "b", 5000) == 190.0
    connection.broke(191.0)
    assert opens(connection, 192.0, "b", 5) == 197.0  # (known for a guard by then)


def test_an_earlier_run_has_spoken_by_whatever_came_while_it_was_guarded_or_took_the_scripts() -> None:
    connection = a_connection(guard=GUARD)
    assert opens(connection, 100.0, "a", 5) == 128.0
    connection.received(message(b"g token 5 name"), 120.0)
    connection.broke(121.0)
    assert opens(connection, 130.0, "b", 5000) == 120.0 + GUARD
    connection.broke(131.0)
    assert opens(connection, 160.0, "c", 10**6) == 130.0 + GUARD
    connection.opened(162.0)
    assert connection.state is ConnectionState.LOADING
    connection.received(LOADED, 170.0)
    connection.broke(171.0)
    assert opens(connection, 172.0, "d", 10**6) == 170.0 + GUARD


def test_what_comes_before_it_is_known_who_speaks_counts_for_no_earlier_run() -> None:
    connection = a_connection(guard=GUARD)
    connection.connected(100.0)
    for answer in Server({"run_id": "a", "uptime_in_seconds": 5000}).answers():
        connection.received(answer, 101.0)
    assert (connection.state, connection.wake) == (ConnectionState.GUARDED, 101.0)


@pytest.mark.parametrize("now, uptime, when", [(131.9, 5000, 132.0), (132.0, 5000, 132.0), (140.0, 5000, 140.0), (140.0, 10, 163.0)])
def test_an_uptime_is_right_again_a_guard_after_the_earlier_run(now: float, uptime: int, when: float) -> None:
    connection = a_connection(guard=GUARD)
    up(connection, 100.0, Server({"run_id": "a"}))
    connection.say(Asked(b"?"))
    connection.received(OK, 100.0)
    connection.broke(101.0)
    assert opens(connection, now, "b", uptime) == when


# ------------------------------------------------ an address that leads to several servers


def test_a_server_that_ran_while_another_one_answered_at_the_address_is_noticed() -> None:
    connection = a_connection(guard=GUARD)
    opens(connection, 100.0, "a", 10**6)
    assert not connection.server.several, "nobody was there before"
    connection.broke(101.0)
    opens(connection, 110.0, "b", 11)
    assert (connection.server.several, connection.bad) == (False, None), "it may have started when the former one had just ended"
    connection.broke(111.0)
    opens(connection, 120.0, "c", 12)
    assert (connection.server.several, connection.bad) == (True, None)
    connection.broke(121.0)
    opens(connection, 200.0, "d", 3)
    assert not connection.server.several, "a restart"


def back(connection: Connection[Asked], now: float) -> str:
    """The first run comes back. What is wrong with that?"""
    opens(connection, 100.0, "a" * 40, 10**6)
    connection.broke(101.0)
    opens(connection, 110.0, "b" * 40, 10**6)
    connection.broke(111.0)
    meet(connection, now, Server({"run_id": "a" * 40}))
    return message_of(connection.bad)


@pytest.mark.parametrize("guard", [GUARD, None])
def test_a_run_that_comes_back_shows_that_the_address_leads_to_several_servers(guard: float | None) -> None:
    connection = a_connection(guard=guard)
    assert back(connection, 120.0) == (
        "its address leads to several servers (aaaaaaaa and bbbbbbbb take turns, by their run ids): "
        "name a single server, and no load balancer before several"
    )
    assert (type(connection.bad), connection.state) == (ConfigError, ConnectionState.GREETING)
    connection.broke(121.0)
    # It has stayed there since: it is used when its guard is over.
    assert opens(connection, 123.0, "a" * 40, 10**6) == (110.0 + GUARD if guard else 123.0)


def test_a_run_that_comes_back_late_is_a_place_that_was_changed_twice() -> None:
    connection = a_connection(guard=GUARD)
    back(connection, 110.0 + GUARD)
    assert connection.bad is None and connection.server.several


def test_a_place_that_moves_and_a_promotion_may_come_back() -> None:
    connection = reigning(url=MOVES)
    for now, run in ((100.0, "a"), (110.0, "b"), (120.0, "a")):
        noted(connection, now, Server({"run_id": run * 40, "master_replid": run * 40}), None)
        connection.broke(now + 1.0)
    assert not connection.server.several
    connection = a_connection(BOUNDED, guard=GUARD)
    back(connection, 120.0)
    assert (connection.bad, connection.server.several) == (None, False), "its old primary may go on at the same address"
    connection = reigning()
    for now, run in ((100.0, "a"), (110.0, "b"), (120.0, "a")):
        noted(connection, now, promoted(run * 40, run_id=run), None)
        connection.broke(now + 1.0)
    assert not connection.server.several


# ------------------------------------------------ the guard after a promotion


def test_a_replica_that_was_promoted_is_left_alone_though_its_process_is_old() -> None:
    # Rule G3.
    connection = reigning()
    assert noted(connection, 100.0, promoted(), None) == 100.0 + GUARD
    assert connection.server.promoted and connection.server.run_id == "a" * 40


@pytest.mark.parametrize(
    "facts",
    [
        {"second_repl_offset": 0, "master_replid2": "0" * 40},
        {"second_repl_offset": -1},
        {"second_repl_offset": None},
        {"master_replid2": None},
        {"master_replid": None},
    ],
)
def test_either_sign_of_a_promotion_is_enough(facts: dict[str, object]) -> None:
    assert noted(reigning(), 100.0, promoted(**facts), None) == 100.0 + GUARD


@pytest.mark.parametrize("facts", [{}, {"master_replid2": "0" * 40, "second_repl_offset": -1}, {"second_repl_offset": "x"}])
def test_a_primary_that_never_was_a_replica_is_asked_for_no_note(facts: dict[str, object]) -> None:
    connection = reigning()
    meet(connection, 100.0, Server({"master_replid": "c" * 40, **facts}))
    assert (connection.state, connection.wake) == (ConnectionState.GUARDED, 100.0)
    assert (connection.take(), connection.server.promoted) == (b"", False)


@pytest.mark.parametrize(
    "age, left",
    [
        pytest.param(0, GUARD, id="just now"),
        pytest.param(10, GUARD - 10, id="a while ago"),
        pytest.param(32, 0, id="a guard ago"),
        pytest.param(10**6, 0, id="long ago"),
        pytest.param(-50, GUARD, id="in the future, since the node's clock went back"),
    ],
)
def test_a_note_says_since_when_it_is_a_primary(age: float, left: float) -> None:
    connection = reigning()
    assert noted(connection, 100.0, promoted(), microseconds(CLOCK - age)) == near(100.0 + left)
    assert connection.server.promoted or left == 0


def test_what_is_not_known_of_the_node_s_clock_is_waited_for() -> None:
    # The greeting took 0.5 s, so the clock is known to 0.25 s: that much is added.
    assert noted(reigning(), 100.0, promoted(), microseconds(CLOCK - 10), trip=0.5) == near(100.5 + GUARD - 10)


@pytest.mark.parametrize("reply", [b"_\r\n", b"-NOPERM no\r\n", b"-WRONGTYPE Operation\r\n", b":5\r\n", bulk(b"x"), bulk(b"1e9")])
def test_without_a_note_it_was_promoted_just_now(reply: bytes) -> None:
    connection = reigning()
    assert noted(connection, 100.0, promoted(), reply) == 100.0 + GUARD
    connection.broke(101.0)
    assert noted(connection, 110.0, promoted(), reply) == 100.0 + GUARD, "this client has known that reign since then"
    connection.broke(111.0)
    assert noted(connection, 140.0, promoted(), reply) == 140.0


def test_a_client_that_did_not_know_the_place_for_a_while_knows_nothing_of_its_server_any_more() -> None:
    connection = reigning()
    connection = Connection(connection.listener, 0, connection.address.but(moves=True), connection.settings)
    assert found(connection, 100.0) == 100.0 + GUARD + 15
    connection.broke(101.0)
    assert found(connection, 114.0) == 100.0 + GUARD + 15
    connection.broke(115.0)
    assert found(connection, 129.0) == 129.0 + GUARD + 15, "another server may have been the node"
    connection.broke(130.0)
    assert found(connection, 190.0, b"%d" % round((CLOCK - 70) * 1e6)) == 190.0, "by the note, there was none"
    connection = reigning(url=MOVES)
    assert noted(connection, 100.0, promoted(), None) == 100.0 + GUARD + 15
    connection.broke(101.0)
    assert noted(connection, 130.0, promoted(), None) == 100.0 + GUARD + 15, "Sentinels never go back to it without a promotion"


def test_for_how_long_a_server_may_be_used_after_another_took_its_place() -> None:
    urls = {"redis://h": None, BOUNDED: 15.0, MOVES: 30.0, "redis+sentinel://s/it": 30.0, "redis+sentinel://s/it?failover=40": 40.0}
    told = "at least half of the longest ttl, where it can be asked for"
    assert {it: a_connection(it, keep=60.0).server.outlives for it in urls} == urls, told


def test_a_node_that_served_us_and_was_promoted_again_is_left_alone_whatever_the_note_says() -> None:
    connection = reigning()
    up(connection, 100.0, Server({"master_replid": "b" * 40}))
    connection.say(Asked(b"?"))
    connection.received(OK, 150.0)
    connection.broke(151.0)
    assert noted(connection, 160.0, promoted(), microseconds(CLOCK - 1000)) == 150.0 + GUARD
    assert connection.server.promoted, "and people are told why"
    connection.broke(161.0)
    assert noted(connection, 170.0, promoted(), microseconds(CLOCK - 1000)) == 150.0 + GUARD, "also the second time"
    connection.broke(171.0)
    assert noted(connection, 200.0, promoted("e" * 40), None) == 200.0 + GUARD, "another reign"


def test_a_promoted_server_that_has_no_trace_of_it_any_more_is_the_same_run() -> None:
    connection = reigning()
    noted(connection, 100.0, promoted(), microseconds(CLOCK - 1000))
    connection.broke(101.0)
    meet(connection, 102.0, Server({"master_replid": "e" * 40, "master_replid2": "0" * 40, "second_repl_offset": -1}))
    assert (connection.state, connection.wake) == (ConnectionState.GUARDED, 102.0)


def test_servers_that_were_just_made_are_guarded_after_a_promotion() -> None:
    # Rule G5.
    connection = reigning()
    server = promoted(uptime_in_seconds=1)
    server.adopted = adopted("a" * 40).adopted
    assert noted(connection, 100.0, server, None) == 100.0 + GUARD
    assert connection.server.promoted


def test_a_promoted_server_that_was_restarted_since_is_guarded_for_the_later_of_both() -> None:
    connection = reigning()
    assert noted(connection, 100.0, promoted(uptime_in_seconds=5), microseconds(CLOCK - 1000)) == 100.0 + GUARD + 1 - 5
    assert not connection.server.promoted


BOUNDED = "redis://h?failover=15"


def test_a_promoted_server_is_left_alone_until_its_old_primary_has_stopped_too() -> None:
    # Rule G10.
    connection = reigning(url=BOUNDED)
    assert noted(connection, 100.0, promoted(), None) == 100.0 + GUARD + 15, "as this client has just seen it"
    connection.broke(101.0)
    assert noted(connection, 110.0, promoted(), b"_\r\n") == 100.0 + GUARD + 15, "this client has known that reign since then"
    assert noted(reigning(url=BOUNDED), 100.0, promoted(), microseconds(CLOCK - 10)) == near(100.0 + GUARD + 5), "by the note"
    assert noted(reigning(url=BOUNDED), 100.0, promoted(), microseconds(CLOCK - 47)) == 100.0
    connection = reigning(url=BOUNDED)
    up(connection, 100.0, Server({"master_replid": "b" * 40}))
    connection.say(Asked(b"?"))
    connection.received(OK, 150.0)
    connection.broke(151.0)
    assert noted(connection, 160.0, promoted(), microseconds(CLOCK - 1000)) == 150.0 + GUARD + 15, "by what this client heard before"
    assert connection.server.promoted


def test_a_server_that_is_new_at_a_place_that_moves_is_left_alone_like_a_promoted_one() -> None:
    # Rule G12.
    connection = reigning(url=MOVES)
    assert noted(connection, 100.0, Server(), None) == 100.0 + GUARD + 15
    assert (connection.server.replaced, connection.server.promoted, connection.server.unbounded) == (True, False, False)
    assert noted(reigning(url=MOVES), 100.0, Server(), microseconds(CLOCK - 47)) == 100.0, "a client has seen it there before"
    connection = reigning(url=MOVES)
    assert noted(connection, 100.0, adopted("a" * 40), None) == 100.0 + GUARD + 15, "it forgot nothing, but another server was there"
    connection = reigning(url=MOVES)
    noted(connection, 100.0, promoted(), microseconds(CLOCK - 1000))
    assert (connection.server.replaced, connection.server.promoted, connection.wake) == (False, True, 100.0)
    connection.broke(101.0)
    # Another server, which was there before this one: what this client heard counts.
    other = Server({"run_id": "d" * 40, "master_replid": "d" * 40})
    assert noted(connection, 110.0, other, microseconds(CLOCK - 1000)) == 100.0 + GUARD + 15
    assert opens(a_connection(guard=None, url=MOVES), 100.0, "b", 10) == 100.0


def test_a_restart_may_hide_a_promotion() -> None:
    # A server that was promoted and then restarted without its data has no trace of the promotion.
    assert opens(reigning(url=BOUNDED), 100.0, "b", 10) == 100.0 + GUARD + 15 + 1 - 10
    assert opens(reigning(url=BOUNDED), 100.0, "b", 48) == 100.0
    connection = reigning(url=BOUNDED)
    opens(connection, 100.0, "b", 1)
    connection.broke(101.0)
    assert opens(connection, 140.0, "b", 1) == 100.0 + GUARD + 15, "its uptime is wrong, and this client knows it since then"


def test_a_bound_of_zero_and_none_cost_the_guard_and_nothing_more() -> None:
    for url in ("redis://h?failover=0", "redis://h"):
        assert noted(reigning(url=url), 100.0, promoted(), None) == 100.0 + GUARD
    connection = a_connection(guard=None, url=BOUNDED)
    meet(connection, 100.0, promoted())
    assert (connection.state, connection.wake) == (ConnectionState.GUARDED, 100.0), "without a guard there is none here, either"


@pytest.mark.parametrize(
    "url, facts, unbounded",
    [
        ("redis://h", {"connected_slaves": 0}, False),
        ("redis://h", {"connected_slaves": 1}, True),
        ("redis://h", {"connected_slaves": "x"}, False),
        ("redis://h", {"master_replid": "c" * 40, "master_replid2": "d" * 40, "second_repl_offset": 277}, True),
        ("redis://h?failover=0", {"connected_slaves": 1}, False),
        (BOUNDED, {"connected_slaves": 1, "master_replid": "c" * 40, "second_repl_offset": 277}, False),
    ],
)
@pytest.mark.parametrize("guard", [None, GUARD])
def test_a_node_that_can_fail_over_needs_a_bound(url: str, facts: dict[str, object], unbounded: bool, guard: float | None) -> None:
    # Rule G11.
    connection = a_connection(url=url, guard=guard)
    meet(connection, 100.0, Server(facts))
    if connection.ledger:
        connection.received(b"_\r\n:1\r\n" + microseconds(CLOCK), 100.0)
    assert (connection.state, connection.server.unbounded) == (ConnectionState.GUARDED, unbounded)
    connection.broke(101.0)
    connection.connected(102.0)
    assert connection.server.unbounded is unbounded, "it is remembered while the node is away"


# ------------------------------------------------ its clock


def test_a_clock_is_measured_again() -> None:
    connection = a_connection()
    connection.server.told_time([b"5", b"0"], 1.0, 2.0)
    assert connection.server.ahead is None, "nothing is known of it"
    up(connection)
    before = connection.server.ahead
    assert before is not None
    at = connection.server.measured
    connection.server.told_time(ConnectionError("no"), at + 1.0, at + 2.0)
    assert (connection.server.ahead, connection.server.measured) == (before, at)
    told = before + at + 10.5
    connection.server.told_time([b"%d" % told, b"%06d" % (told % 1 * 1e6)], at + 10.0, at + 11.0)
    assert (connection.server.ahead, connection.server.measured) == (before, at + 11.0), "the first measure was more exact"
    connection.server.told_time([b"%d" % (told + 60), b"%06d" % (told % 1 * 1e6)], at + 10.0, at + 11.0)
    assert connection.server.ahead == pytest.approx(before + 60.0, abs=1e-3) and connection.server.blur == 0.5


@pytest.mark.parametrize("first, second, side", [(1.0, 0.25, 1), (0.25, 1.0, 1), (1.0, 1.0, -1)])
def test_a_clock_was_set_only_if_both_measures_together_cannot_be_wrong_by_that(first: float, second: float, side: int) -> None:
    connection = a_connection(prompt=2.0)
    connection.dial(0.0)
    connection.connected(0.0)
    connection.received(Server().greets(), first)
    ahead = connection.server.ahead
    assert ahead is not None
    for off, counts in (((first + second) / 2 - 0.01, False), ((first + second) / 2 + 0.01, True)):
        told = ahead + 10.0 + second / 2 + side * off
        connection.server.told_time([b"%d" % told, b"%06d" % (told % 1 * 1e6)], 10.0, 10.0 + second)
        assert (connection.server.ahead != ahead) is counts


# ------------------------------------------------ its product


@pytest.mark.parametrize("which", OTHER)
def test_an_address_that_says_so_admits_such_a_server_if_it_does_what_a_node_must_do(which: str) -> None:
    facts, product, name = OTHER[which]
    connection = a_connection("redis://h?unproven=true")
    meet(connection, 0.0, Server(dict(facts), product=product))
    assert connection.server.stranger == name
    told = {"Dragonfly": "it is no Redis or Valkey server", "Kvrocks": "its server is 4.0.0: Redis 6.2"}.get(which)
    if told is None:
        assert (connection.state, connection.bad) == (ConnectionState.GUARDED, None)
    else:
        assert type(connection.bad) is ConfigError and str(connection.bad).startswith(told)
