"""The connection: how it introduces itself, when it may speak, who gets which answer, and what becomes of all that when it breaks.

Everything here is bytes in and bytes out.
"""

from __future__ import annotations

import random
import weakref
from collections.abc import Callable
from math import inf
from typing import Any

import pytest
from wire.servers import (
    GUARD,
    HUGE,
    LOADED,
    MOVES,
    OK,
    OTHER,
    PLAIN,
    SCRIPTS,
    Asked,
    Server,
    a_connection,
    array,
    bulk,
    command,
    invalidate,
    log,
    meet,
    message,
    near,
    promoted,
    push,
    reigning,
    up,
)

from holdfast.errors import ConfigError, message_of
from holdfast.scripts import REQUEST, RW_REQUEST
from holdfast.wire import rights
from holdfast.wire.address import parse
from holdfast.wire.connection import AVERAGED, PROMPT, SHORT, Connection, ConnectionState
from holdfast.wire.resp import Refusal, pack


@pytest.fixture(autouse=True)
def whoever_listens_knows_when_there_is_something_to_send(monkeypatch: pytest.MonkeyPatch) -> None:
    """In every test of this file: a driver that goes by `spoke` leaves nothing unsent."""
    take = Connection.take

    def taken(connection: Connection[Any]) -> bytes:
        assert connection.listener.spoke or not connection.out
        connection.listener.spoke = False
        return take(connection)

    monkeypatch.setattr(Connection, "take", taken)


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


def test_an_earlier_run_has_spoken_by_its_greeting() -> None:
    connection = a_connection(guard=GUARD)
    assert opens(connection, 100.0, "a", 5) == 128.0  # it was not used yet; but it answered, and may have served others
    connection.broke(109.0)
    assert opens(connection, 110.0, "b", 5000) == 100.0 + GUARD
    connection.broke(111.0)
    assert opens(connection, 112.0, "c", 5000) == 110.0 + GUARD


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
    assert not connection.several, "nobody was there before"
    connection.broke(101.0)
    opens(connection, 110.0, "b", 11)
    assert (connection.several, connection.bad) == (False, None), "it may have started when the former one had just ended"
    connection.broke(111.0)
    opens(connection, 120.0, "c", 12)
    assert (connection.several, connection.bad) == (True, None)
    connection.broke(121.0)
    opens(connection, 200.0, "d", 3)
    assert not connection.several, "a restart"


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
    assert connection.bad is None and connection.several


def test_a_place_that_moves_and_a_promotion_may_come_back() -> None:
    connection = reigning(url=MOVES)
    for now, run in ((100.0, "a"), (110.0, "b"), (120.0, "a")):
        noted(connection, now, Server({"run_id": run * 40, "master_replid": run * 40}), None)
        connection.broke(now + 1.0)
    assert not connection.several
    connection = a_connection(BOUNDED, guard=GUARD)
    back(connection, 120.0)
    assert (connection.bad, connection.several) == (None, False), "its old primary may go on at the same address"
    connection = reigning()
    for now, run in ((100.0, "a"), (110.0, "b"), (120.0, "a")):
        noted(connection, now, promoted(run * 40, run_id=run), None)
        connection.broke(now + 1.0)
    assert not connection.several


# ------------------------------------------------ the guard after a promotion


NOTE = b"{app:}:reign:"


CLOCK = 1700000000.5  # what the node's clock says at each greeting here


def noted(connection: Connection[Asked], now: float, server: Server, reply: bytes | None, trip: float = 0.0) -> float:
    """When a connection that connects now may be used, if this is what the node's note says; None: what the connection has just written."""
    connection.dial(now)
    connection.connected(now, asked=now)
    connection.take()
    connection.received(server.greets(), now + trip)
    assert (connection.state, connection.bad) == (ConnectionState.GREETING, None)
    said = connection.take()
    tenure = str(server.facts.get("master_replid") or "a" * 40)
    again = "master_replid" in server.facts and connection._reign == tenure
    since = connection._known if again else now + trip
    at = b"%d" % round((CLOCK + since - now) * 1e6)
    key = NOTE + tenure.encode()
    assert said == b"".join(
        [
            command(b"SET", key, at, b"NX", b"PX", b"3024000000"),
            command(b"PEXPIRE", key, b"3024000000"),
            command(b"GET", key),
        ]
    )
    connection.received(b"_\r\n:1\r\n", now + trip)
    assert connection.state is ConnectionState.GREETING
    connection.received(bulk(at) if reply is None else reply, now + trip)
    assert (connection.state, connection.bad) == (ConnectionState.GUARDED, None)
    return connection.wake


def microseconds(seconds: float) -> bytes:
    return bulk(b"%d" % round(seconds * 1e6))


def test_a_replica_that_was_promoted_is_left_alone_though_its_process_is_old() -> None:
    # Rule G3.
    connection = reigning()
    assert noted(connection, 100.0, promoted(), None) == 100.0 + GUARD
    assert connection.promoted and connection.run_id == "a" * 40


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
    assert (connection.state, connection.wake, connection.take(), connection.promoted) == (ConnectionState.GUARDED, 100.0, b"", False)


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
    assert connection.promoted or left == 0


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


def test_a_note_that_was_not_written_is_written_when_the_guard_is_over() -> None:
    """A server that was just promoted has no replica yet, and writes nothing until it has (min-replicas-to-write)."""
    connection = reigning()
    assert noted(connection, 100.0, promoted(), b"_\r\n") == 100.0 + GUARD
    connection.opened(100.0 + GUARD)
    note = command(b"SET", NOTE + b"c" * 40, b"%d" % round(CLOCK * 1e6), b"NX", b"PX", b"3024000000")
    assert connection.take().startswith(note), "since it was first seen"
    connection.received(b"-NOREPLICAS Not enough\r\n:0\r\n" + LOADED, 150.0)
    connection.probe(200.0)
    connection.take()
    connection.received(array(), 200.0)
    assert connection.take().startswith(note), "and when it takes writes again"
    connection = reigning()
    noted(connection, 100.0, promoted(), microseconds(CLOCK - 10))
    connection.opened(200.0)
    assert b":reign:" not in connection.take()


def test_a_note_about_a_server_that_was_never_promoted_is_of_the_time_when_it_is_written() -> None:
    """Between two connections of this client, another server may have been the node, and granted locks."""
    connection = reigning(url=MOVES)
    for now in (100.0, 500.0):
        noted(connection, now, Server(), None)
        connection.broke(now + 1.0)
    meet(connection, 900.0, Server())
    assert command(b"SET", NOTE + b"a" * 40, b"%d" % round(CLOCK * 1e6), b"NX", b"PX", b"3024000000") in connection.take()


def found(connection: Connection[Asked], now: float, note: bytes | None = None) -> float:
    """When a connection whose place a function finds may be used, if it connects now and this is what the node's note says."""
    connection.address = connection.address.but(moves=True)
    connection.dial(now)
    connection.connected(now, asked=now)
    connection.take()
    connection.received(Server().greets(), now)
    at = b"%d" % round(CLOCK * 1e6)
    key, ends = NOTE + b"a" * 40, b"%d" % round((CLOCK + connection.outlives) * 1000)  # type: ignore[operator]  # (it is known here)
    assert connection.take() == command(b"SET", key, at, b"NX", b"PXAT", ends) + command(b"GET", key)
    connection.received(OK + bulk(note or at), now)
    assert connection.take() == command(b"SET", key, note or at, b"PXAT", ends)
    return connection.wake


def test_a_note_ends_with_what_is_known_of_the_place_where_the_same_server_may_be_the_node_once_more() -> None:
    """a, b, a: what a's note says is not true any more, so it is gone before b grants anything."""
    connection, note = reigning(), b"%d" % round((CLOCK - 70) * 1e6)
    connection = Connection(connection.listener, 0, connection.address.but(moves=True), connection.manners)
    assert found(connection, 100.0, note) == 100.0, "a client has seen it there before"
    connection.placed(connection.address, 109.0, 111.0)
    kept = command(b"SET", NOTE + b"a" * 40, note, b"PXAT", b"%d" % round((CLOCK + 9 + 15) * 1000))
    assert connection.take() == kept, "counted from the question, by the node's clock: a late command makes nothing last longer"
    connection.placed(ConnectionError("down"), 110.0, 112.0)
    connection.placed(connection.address.but(host="b"), 99.0, 112.0)
    assert (connection.take(), connection.bad) == (b"", None), "nothing is known, or it was asked for an earlier connection"
    connection = reigning(url=MOVES)
    meet(connection, 100.0, Server())
    assert b"$10\r\n3024000000\r\n" in connection.take(), "Sentinels never go back to a server that was not promoted since"


def test_a_note_that_was_not_taken_is_written_whenever_the_place_is_confirmed() -> None:
    connection = reigning()
    connection = Connection(connection.listener, 0, connection.address.but(moves=True), connection.manners)
    meet(connection, 100.0)
    connection.received(b"-OOM no\r\n_\r\n", 100.0)
    connection.take()
    connection.placed(connection.address, 105.0, 106.0)
    at, ends = b"%d" % round(CLOCK * 1e6), b"%d" % round((CLOCK + 5 + 15) * 1000)
    assert connection.take() == command(b"SET", NOTE + b"a" * 40, at, b"PXAT", ends), "of the time of the connection"


def test_a_node_that_does_not_take_the_note_in_its_guard_is_silent() -> None:
    """Rule T3 knows no guard: a connection that is half open ends."""
    connection = reigning()
    connection = Connection(connection.listener, 0, connection.address.but(moves=True), connection.manners)
    assert found(connection, 100.0) == 100.0 + GUARD + 15
    connection.received(OK, 100.0)
    assert (connection.due(), connection.late(110.0)) == (100.0 + GUARD + 15, False), "nothing is owed"
    connection.placed(connection.address, 105.0, 105.0)
    late = 105.0 + connection.manners.patience
    assert connection.state is ConnectionState.GUARDED
    assert (connection.due(), connection.late(late - 0.01), connection.late(late)) == (late, False, True)


def test_while_scripts_are_loaded_no_note_is_kept() -> None:
    """The connection waits for the answers to them, and for nothing that comes after."""
    connection = reigning()
    connection = Connection(connection.listener, 0, connection.address.but(moves=True), connection.manners)
    found(connection, 100.0, b"1")
    connection.fails = 1
    connection.opened(101.0)
    connection.take()
    connection.placed(connection.address, 101.0, 101.0)
    assert (connection.state, connection.take()) == (ConnectionState.LOADING, b"")
    connection.received(OK + LOADED, 101.0)
    assert connection.state is ConnectionState.UP


def test_a_client_that_did_not_know_the_place_for_a_while_knows_nothing_of_its_server_any_more() -> None:
    connection = reigning()
    connection = Connection(connection.listener, 0, connection.address.but(moves=True), connection.manners)
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


def test_nothing_is_asked_of_a_server_that_nobody_confirms() -> None:
    # Rule G13.
    connection = a_connection(guard=None, url=MOVES)
    up(connection, 100.0)
    assert (connection.sure, connection.reask, connection.lapsed(114.9)) == (115.0, 105.0, None)
    connection.placed(connection.address, 105.0, 106.0)
    assert (connection.sure, connection.reask) == (120.0, 110.0), "from when it was asked, and not from when it was told"
    connection.placed(ConnectionError("all away"), 110.0, 111.0)
    connection.take()
    connection.say(Asked(b"?", 119.9))
    connection.say(Asked(b"?", 120.0))
    connection.say(Asked(b"free", 120.0, again=True))
    assert connection.take() == b"?" and [it.data for it in connection.unsaid] == [b"free"]
    assert str(connection.lapsed(120.0)) == "for 15 s nobody has confirmed that it is still the node's server: all away"
    connection.placed(connection.address.but(host="other", port=7), 119.0, 119.5)
    assert str(connection.bad) == "the node has moved to other:7"
    connection.broke(121.0)
    assert connection.lapsed(200.0) is None
    assert a_connection().sure == inf, "the address of a node is what it is"


def test_for_how_long_a_server_may_be_used_after_another_took_its_place() -> None:
    urls = {"redis://h": None, BOUNDED: 15.0, MOVES: 30.0, "redis+sentinel://s/it": 30.0, "redis+sentinel://s/it?failover=40": 40.0}
    assert {it: a_connection(it, keep=60.0).outlives for it in urls} == urls, "at least half of the longest ttl, where it can be asked for"


def test_a_note_that_cannot_be_read_because_the_node_loads_is_read_later() -> None:
    connection = reigning()
    meet(connection, 100.0, promoted())
    connection.received(b"-LOADING x\r\n-LOADING x\r\n-LOADING x\r\n", 100.0)
    assert type(connection.bad) is ConnectionError and connection.state is ConnectionState.GREETING


def test_a_node_that_served_us_and_was_promoted_again_is_left_alone_whatever_the_note_says() -> None:
    connection = reigning()
    up(connection, 100.0, Server({"master_replid": "b" * 40}))
    connection.say(Asked(b"?"))
    connection.received(OK, 150.0)
    connection.broke(151.0)
    assert noted(connection, 160.0, promoted(), microseconds(CLOCK - 1000)) == 150.0 + GUARD
    assert connection.promoted, "and people are told why"
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
    assert connection.promoted


def test_a_promoted_server_that_was_restarted_since_is_guarded_for_the_later_of_both() -> None:
    connection = reigning()
    assert noted(connection, 100.0, promoted(uptime_in_seconds=5), microseconds(CLOCK - 1000)) == 100.0 + GUARD + 1 - 5
    assert not connection.promoted


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
    assert connection.promoted


def test_a_server_that_is_new_at_a_place_that_moves_is_left_alone_like_a_promoted_one() -> None:
    # Rule G12.
    connection = reigning(url=MOVES)
    assert noted(connection, 100.0, Server(), None) == 100.0 + GUARD + 15
    assert (connection.replaced, connection.promoted, connection.unbounded) == (True, False, False)
    assert noted(reigning(url=MOVES), 100.0, Server(), microseconds(CLOCK - 47)) == 100.0, "a client has seen it there before"
    connection = reigning(url=MOVES)
    assert noted(connection, 100.0, adopted("a" * 40), None) == 100.0 + GUARD + 15, "it forgot nothing, but another server was there"
    connection = reigning(url=MOVES)
    noted(connection, 100.0, promoted(), microseconds(CLOCK - 1000))
    assert (connection.replaced, connection.promoted, connection.wake) == (False, True, 100.0)
    connection.broke(101.0)
    # Another server, which was there before this one: what this client heard counts.
    other = Server({"run_id": "d" * 40, "master_replid": "d" * 40})
    assert noted(connection, 110.0, other, microseconds(CLOCK - 1000)) == 100.0 + GUARD + 15
    assert opens(a_connection(guard=None, url=MOVES), 100.0, "b", 10) == 100.0


def test_a_sentinel_is_no_node() -> None:
    connection = a_connection()
    meet(connection, 100.0, Server({"redis_mode": "sentinel", "role": "sentinel"}))
    assert isinstance(connection.bad, ConfigError) and "it is a Sentinel: write redis+sentinel://host:26379/NAME" in str(connection.bad)


def test_what_has_not_answered_is_named() -> None:
    connection = a_connection()
    connection.dial(100.0)
    connection.asks = "credentials()"
    assert str(connection.silence()) == "no connection within 1 s: no answer yet from credentials()"


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
    assert (connection.state, connection.unbounded) == (ConnectionState.GUARDED, unbounded)
    connection.broke(101.0)
    connection.connected(102.0)
    assert connection.unbounded is unbounded, "it is remembered while the node is away"


def test_where_there_is_no_guard_nothing_is_noted() -> None:
    connection = a_connection(guard=None)
    meet(connection, 100.0, promoted())
    assert (connection.state, connection.wake, connection.take()) == (ConnectionState.GUARDED, 100.0, b"")


def test_a_promoted_node_of_a_cluster_is_asked_for_both_in_one_write() -> None:
    connection = reigning()
    meet(connection, 100.0, promoted(redis_mode="cluster"))
    assert [it for it in connection.take().split(b"\r\n") if it.isupper()] == [
        b"CLUSTER",
        b"INFO",
        b"SET",
        b"NX",
        b"PX",
        b"PEXPIRE",
        b"GET",
    ]
    connection.received(bulk(b"cluster_size:1\r\n") + b"_\r\n:1\r\n", 100.0)
    assert connection.state is ConnectionState.GREETING
    connection.received(microseconds(CLOCK - 1000), 100.0)
    assert (connection.state, connection.wake) == (ConnectionState.GUARDED, 100.0)


# ------------------------------------------------ when it may speak


def test_nothing_but_the_greeting_is_said_before_the_guard_is_over() -> None:
    # Rule G1.
    connection = a_connection(guard=GUARD, keep=60.0)
    connection.dial(0.0)
    connection.say(Asked(b"dialling"))
    connection.connected(0.0)
    connection.say(Asked(b"greeting", again=True))
    assert connection.take() == b"".join(command(*words) for words in PLAIN)
    connection.received(Server({"uptime_in_seconds": 2}).greets(), 0.0)
    connection.say(Asked(b"guarded"))
    connection.say(Asked(b"a release", again=True))
    assert (connection.state, connection.wake, connection.take(), list(connection.ledger)) == (ConnectionState.GUARDED, 31.0, b"", [])
    assert not connection.late(31.0) and not connection.late(1000.0)  # it owes nothing
    connection.opened(31.0)
    connection.say(Asked(b"and then"))
    scripts = b"".join(command(b"SCRIPT", b"LOAD", it) for it in SCRIPTS)
    assert connection.take() == scripts + b"greeting" + b"a release" + b"and then"
    assert (connection.state, connection.wake, connection.due()) == (ConnectionState.UP, inf, 32.0)


LATER = b"return 'later'"


def test_a_script_that_is_used_later_goes_before_whatever_is_said_next() -> None:
    connection = a_connection()
    up(connection)
    connection.learn(LATER, 1.0)
    connection.say(Asked(b"and then", 1.0))
    assert connection.take() == command(b"SCRIPT", b"LOAD", LATER) + b"and then"
    connection.received(bulk(b"%040d" % 0) + b":1\r\n", 1.5)
    assert (connection.bad, log(connection)) == (None, [(7, b"and then", 1, 1.5)])


def test_a_script_goes_with_the_others_where_they_are_not_loaded_yet() -> None:
    connection = a_connection()
    connection.learn(LATER, 0.0)
    meet(connection)
    connection.learn(LATER, 0.0)
    assert connection.take() == b""
    connection.broke(0.0)
    connection.learn(LATER, 0.0)
    meet(connection, 1.0)
    connection.opened(1.0)
    assert (connection.state, connection.fails) == (ConnectionState.LOADING, 1)
    connection.take()
    connection.learn(LATER, 1.0)
    assert connection.take() == command(b"SCRIPT", b"LOAD", LATER)
    connection.received(LOADED, 1.0)
    assert connection.state is ConnectionState.LOADING, "it is of use when it has taken all of them"
    connection.received(bulk(b"%040d" % 0), 1.0)
    assert connection.state is ConnectionState.UP


def test_a_script_that_is_loaded_later_does_not_make_a_connection_of_use_look_new() -> None:
    connection = a_connection()
    up(connection)
    connection.learn(LATER, 10.0)
    connection.received(bulk(b"%040d" % 0), 10.0)
    connection.broke(10.0 + SHORT / 2)
    assert connection.fails == 0


def test_the_mean_round_trip_is_that_of_the_latest_prompt_answers() -> None:
    connection = a_connection()
    up(connection)
    answered = connection.answered
    assert (connection.rtt, answered) == (0.0, len(Server().answers()) - 1 + len(SCRIPTS)), "everything came at once"
    for number in range(AVERAGED * 8):
        connection.say(Asked(b"?", float(number)))
        connection.received(b":1\r\n", number + 0.25)
    assert connection.rtt == pytest.approx(0.25, rel=0.01)
    connection.say(Asked(b"?", 1000.0))
    connection.received(b":1\r\n", 1000.0 + PROMPT)
    assert connection.rtt == pytest.approx(0.25, rel=0.01), "one that took a second tells nothing of the way"
    assert connection.answered == answered + AVERAGED * 8 + 1


def test_the_first_answers_all_count_the_same() -> None:
    connection = a_connection(scripts=())
    connection.dial(0.0)
    connection.connected(0.0)
    for number, answer in enumerate(it for it in Server().answers() if not it.startswith(b">")):
        connection.received(answer, number / 50)
        assert connection.rtt == near(number / 100)


def test_a_guard_over_begins_with_the_scripts_even_if_nothing_else_is_to_be_said() -> None:
    # Rule G4.
    connection = a_connection(scripts=(b"return 5",))
    meet(connection)
    connection.opened(0.0)
    assert connection.take() == command(b"SCRIPT", b"LOAD", b"return 5")
    connection.received(b"-NOPERM no\r\n", 0.0)
    assert type(connection.bad) is ConfigError and "it does not take the scripts: NOPERM no. Grant it: " in message_of(connection.bad)


# ------------------------------------------------ answers and pushes


TALK = (
    array(b":5\r\n", b":0\r\n", b":1\r\n")
    + message(b"g token 5 name")
    + array(b":0\r\n", b":8000\r\n", b":-1\r\n", b"_\r\n")
    + push(b"invalidate", b"key", b"x")  # a push that means nothing here
    + invalidate(array(bulk(b"name"), bulk(b"with \0 and \xff")))
    + invalidate(b"_\r\n")  # FLUSHALL
    + invalidate(array())
    + invalidate(b":5\r\n")
    + b">3\r\n+message\r\n+channel\r\n:5\r\n"  # and others: a message is three things, the last of them text
    + b">0\r\n>1\r\n+message\r\n>2\r\n+message\r\n+channel\r\n>4\r\n+message\r\n+channel\r\n+text\r\n+more\r\n>1\r\n*0\r\n"
    + b"-ERR no\r\n"
    + message(b"with \r\n in it, \0 and \xff")
    + message(b"")
    + b":1\r\n"
)


QUESTIONS = (b"first", b"second", b"third", b"fourth")


UNDERSTOOD = [
    (7, b"first", [5, 0, 1], 9.0),
    (7, b"g token 5 name", 9.0),
    (7, b"second", [0, 8000, -1, None], 9.0),
    (7, ("changed", b"name"), 9.0),
    (7, ("changed", b"with \0 and \xff"), 9.0),
    (7, ("changed", None), 9.0),
    (7, b"third", "refused: ERR no", 9.0),
    (7, b"with \r\n in it, \0 and \xff", 9.0),
    (7, b"", 9.0),
    (7, b"fourth", 1, 9.0),
]


def converse(greeting: Callable[[bytes], list[bytes]], talk: Callable[[bytes], list[bytes]]) -> Connection[Asked]:
    """A whole conversation, whose parts arrive in the pieces that these functions make of them."""
    connection = a_connection()
    connection.dial(9.0)
    connection.connected(9.0)
    connection.take()
    for piece in greeting(Server().greets()):
        connection.received(piece, 9.0)
    connection.opened(9.0)
    for question in QUESTIONS:
        connection.say(Asked(question, 9.0))
    connection.take()
    for piece in talk(LOADED + TALK):
        connection.received(piece, 9.0)
    return connection


def whole(data: bytes) -> list[bytes]:
    return [data]


def in_bytes(data: bytes) -> list[bytes]:
    return [data[at : at + 1] for at in range(len(data))]


def cut(at: int) -> Callable[[bytes], list[bytes]]:
    return lambda data: [data[:at], data[at:]]


def assert_understood(connection: Connection[Asked]) -> None:
    assert log(connection) == UNDERSTOOD
    assert (connection.state, connection.bad, list(connection.ledger)) == (ConnectionState.UP, None, [])


# What the connection hands out: questions and the times of their answers.
Handed = list[tuple[bytes, float]]


def in_use(*questions: Asked) -> tuple[Connection[Asked], Handed, Any]:
    """A connection that has said these, what it hands out, and what takes that: all but what ends in "!"."""
    connection, handed = a_connection(), Handed()
    up(connection)
    for it in questions:
        connection.say(it)
    connection.take()

    def takes(node: int, question: Asked, now: float) -> bool:
        if not question.data.endswith(b"!"):
            handed.append((question.data, now))
        return not question.data.endswith(b"!")

    return connection, handed, takes


USUAL = Asked(b"one", 1.0, expected=b":1\r\n"), Asked(b"two", 1.5, expected=bulk(b"2"))


@pytest.mark.parametrize(
    "questions, data, left",
    [
        (USUAL, b":1\r\n" + bulk(b"2"), b""),
        (USUAL, b":1\r\n:0\r\n", b":0\r\n"),
        (USUAL, b":0\r\n", b":0\r\n"),
        (USUAL, b":1\r\n$1\r\n", b"$1\r\n"),
        (USUAL, b":1\r\n" + message(b"news"), message(b"news")),
        (USUAL[:1], b":1\r\n:1\r\n", b":1\r\n"),
        ((USUAL[0], Asked(b"three", 1.6)), b":1\r\n:1\r\n", b":1\r\n"),
        ((USUAL[0], Asked(b"four!", 1.6, expected=OK)), b":1\r\n" + OK, OK),
    ],
)
def test_usual_answers_are_handed_out_up_to_the_first_that_is_not(questions: tuple[Asked, ...], data: bytes, left: bytes) -> None:
    connection, handed, takes = in_use(*questions)
    assert connection.expected(data, 2.0, takes) == left
    taken = questions[: len(handed)]
    assert handed == [(it.data, 2.0) for it in taken] and list(connection.ledger) == list(questions[len(handed) :])
    # The same as if they had been read in full.
    other, _, _ = in_use(*questions)
    if taken:
        other.received(b"".join(it.expected for it in taken), 2.0)
    same = ("answered", "trip", "rtt", "heard", "bad")
    assert [getattr(connection, it) for it in same] == [getattr(other, it) for it in same]
    assert list(connection.ledger) == list(other.ledger)


def test_nobody_is_told_an_answer_that_nobody_wants_to_know() -> None:
    nobodys = Asked(b"zero", 0.5, expected=b":1\r\n", owner=None)
    connection, handed, takes = in_use(nobodys, *USUAL, nobodys)
    assert connection.expected(b":1\r\n:1\r\n" + bulk(b"2") + b":0\r\n", 2.0, takes) == b":0\r\n"
    assert [data for data, _ in handed] == [b"one", b"two"] and list(connection.ledger) == [nobodys]


def test_where_an_answer_may_mean_more_all_is_read_in_full() -> None:
    connection, _, takes = in_use(*USUAL)
    connection.received(b":", 1.7)
    assert connection.expected(b"1\r\n", 2.0, takes) == b"1\r\n", "the first bytes came before"
    for change in ({"lacks": {"ZSCORE": "NOPERM"}}, {"refusal": Refusal("OOM")}, {"state": ConnectionState.LOADING}):
        connection, handed, takes = in_use(*USUAL)
        for name, value in change.items():
            setattr(connection, name, value)
        assert connection.expected(b":1\r\n", 2.0, takes) == b":1\r\n" and not handed


def test_the_connection_may_end_while_a_usual_answer_is_handed_out() -> None:
    connection, _, _ = in_use(*USUAL)

    def interrupted(node: int, question: Asked, now: float) -> bool:
        connection.broke(2.0)
        return True

    assert connection.expected(b":1\r\n" + bulk(b"2"), 2.0, interrupted) == b""
    assert not connection.ledger


def test_what_can_be_said_at_once_is_not_put_into_the_line() -> None:
    connection, _, _ = in_use()
    assert connection.ready(Asked(b"one", 1.0)) and not connection.out and not connection.ledger
    assert not connection.ready(Asked(b"two", 1.0, watch=True)) and len(connection.ledger) == 2, (
        "it is said, with what makes the node watch"
    )
    connection.broke(2.0)
    assert not connection.ready(Asked(b"three", 2.0, again=True)) and [it.data for it in connection.unsaid] == [b"three"]


def test_answers_go_to_whoever_asked_and_pushes_to_the_engine_in_the_order_of_the_stream() -> None:
    # Rule T1.
    assert_understood(converse(whole, whole))


def test_the_same_byte_by_byte() -> None:
    assert_understood(converse(in_bytes, in_bytes))


def test_the_same_wherever_the_stream_is_cut() -> None:
    for at in range(max(len(Server().greets()), len(LOADED + TALK))):
        assert_understood(converse(cut(at), cut(at)))


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_every_kind_of_buffer_is_read(kind: Callable[[bytes], bytes]) -> None:
    assert_understood(converse(lambda data: [kind(data)], lambda data: [kind(data)]))


def test_what_is_understood_of_half_an_answer_is_nothing() -> None:
    connection = a_connection()
    up(connection)
    connection.say(Asked(b"?", 0.0))
    connection.received(b"*1\r\n", 1.0)
    assert (log(connection), connection.bad, len(connection.ledger)) == ([], None, 1)
    connection.received(b":1\r\n", 2.0)
    assert (log(connection), connection.bad, len(connection.ledger)) == ([(7, b"?", [1], 2.0)], None, 0)


def test_an_answer_that_nobody_asked_for() -> None:
    # Rule T5.
    connection = a_connection()
    up(connection)
    connection.say(Asked(b"?"))
    connection.received(b":1\r\n:2\r\n:3\r\n" + message(b"more"), 1.0)
    assert log(connection) == [(7, b"?", 1, 1.0)]  # nothing that comes later is believed
    assert type(connection.bad) is ConnectionError and str(connection.bad).startswith("it says what nobody asked for")


RUBBISH = {
    "another protocol": b"HTTP/1.1 400 Bad Request\r\n",
    "a null byte": b"\0",
    "a number that is none": b":x\r\n",
    "a length below nothing": b"$-5\r\n",
    "a length that is none": b"*x\r\n",
    "a map whose key is a list": b"%1\r\n*0\r\n:1\r\n",  # (hiredis raises a TypeError)
    "a map whose key is a map": b"%1\r\n%0\r\n:1\r\n",
}


@pytest.mark.parametrize("which", RUBBISH)
def test_what_is_no_answer_is_bad(which: str) -> None:
    connection = a_connection()
    up(connection)
    connection.say(Asked(b"?"))
    connection.received(RUBBISH[which], 1.0)
    assert type(connection.bad) is ConnectionError and log(connection) == []
    assert str(connection.bad).startswith("it does not speak the servers' protocol: ")
    connection.received(b":1\r\n", 1.0)
    assert log(connection) == []


def test_what_is_larger_than_any_answer_is_refused_before_it_is_read() -> None:
    # Rule T10.
    connection = a_connection()
    up(connection)
    connection.say(Asked(b"?"))
    connection.received(b"*2147", 1.0)
    connection.received(b"483647\r\n", 1.0)
    assert type(connection.bad) is ConnectionError
    assert str(connection.bad) == "it sends more than any answer to this client can be: a list of 2147483647 items"
    assert log(connection) == []


def test_a_reply_that_never_ends_is_refused_though_each_piece_of_it_is_usual() -> None:
    connection = a_connection()
    up(connection)
    connection.say(Asked(b"?"))
    connection.received(b"*1000000\r\n", 1.0)
    for _ in range(33):
        assert connection.bad is None
        connection.received(b"$1048560\r\n" + b"x" * 1048560 + b"\r\n", 1.0)
    assert "a reply of more than 33554432 bytes" in str(connection.bad)


def test_replies_that_end_may_be_as_many_as_there_are() -> None:
    connection = a_connection()
    up(connection)
    for _ in range(40):
        connection.say(Asked(b"?"))
        for piece in (b"*1\r\n$1048560\r\n", b"x" * 1048560, b"\r\n"):
            connection.received(piece, 1.0)
    assert connection.bad is None
    assert len(log(connection)) == 40


INSERTS = (b"~1\r\n*0\r\n", b"*0\r\n", b">0\r\n", b"(99\r\n", b"|1\r\n+a\r\n+b\r\n", b"-\xff\r\n", b"$-1\r\n", b"=1\r\nt\r\n", b",nan\r\n")


def damaged(data: bytes, chance: random.Random) -> bytes:
    """These bytes, some of them changed, lost or added."""
    result = bytearray(data)
    for _ in range(chance.randint(1, 3)):
        at = chance.randrange(len(result))
        match chance.randrange(4):
            case 0:
                result[at] = chance.randrange(256)
            case 1:
                del result[at : at + chance.randint(1, 5)]
            case 2:
                result[at:at] = chance.randbytes(chance.randint(1, 5))
            case 3:
                result[at:at] = chance.choice([*RUBBISH.values(), *INSERTS])
    return bytes(result)


@pytest.mark.parametrize("seed", range(150))
def test_damaged_bytes_never_raise_and_never_mix_up_answers(seed: int) -> None:
    chance = random.Random(seed)  # (the seed is this test's name)

    def damaged_and_cut(data: bytes) -> list[bytes]:
        data = LOADED + damaged(data.removeprefix(LOADED), chance)
        size = chance.choice([1, 7, 1000])
        return [data[at : at + size] for at in range(0, len(data), size)]

    connection = converse(whole, damaged_and_cut)
    heard = [it[1] for it in log(connection) if len(it) == 4]
    assert heard == list(QUESTIONS[: len(heard)])  # in order, none twice, none left out
    assert len(heard) + len(connection.ledger) == len(QUESTIONS)
    assert connection.bad is None or type(connection.bad) in (ConnectionError, Refusal)


@pytest.mark.parametrize("seed", range(150))
def test_a_damaged_greeting_never_raises_and_never_lets_anybody_in_early(seed: int) -> None:
    connection = a_connection(guard=GUARD)
    connection.connected(9.0)
    connection.received(damaged(Server({"uptime_in_seconds": 2}).greets(), random.Random(seed)), 9.0)
    if connection.state is ConnectionState.GUARDED:
        assert connection.wake == 9.0 + max(0, min(GUARD, GUARD + 1 - int(connection.facts["uptime_in_seconds"])))
    else:
        assert connection.state is ConnectionState.GREETING and (connection.bad is not None or connection.ledger)


@pytest.mark.parametrize(
    "error", ["NOSCRIPT No matching script.", "LOADING Redis is loading", "NOAUTH Authentication required.", "MASTERDOWN Link"]
)
def test_an_error_after_which_a_connection_begins_anew(error: str) -> None:
    connection = a_connection()
    up(connection)
    connection.say(Asked(b"one"))
    connection.say(Asked(b"two"))
    connection.received(b"-" + error.encode() + b"\r\n:1\r\n", 1.0)
    # It answers nothing: those who asked hear that the connection broke.
    assert (log(connection), [it.data for it in connection.ledger]) == ([], [b"one", b"two"])
    assert str(connection.bad) == error


@pytest.mark.parametrize(
    "error, told", [("MOVED 3999 h:1", "it belongs to a cluster with several shards"), ("NOSCRIPT No matching script.", "NOSCRIPT")]
)
def test_a_probe_that_the_node_cannot_run_is_not_taken_for_a_lack_of_rights(error: str, told: str) -> None:
    connection = a_connection()
    up(connection)
    connection.probe(1.0)
    connection.received(f"-{error}\r\n".encode(), 1.0)
    assert message_of(connection.bad).startswith(told) and "Grant it" not in message_of(connection.bad)


@pytest.mark.parametrize("error", ["ERR NOSCRIPT", "WRONGTYPE Operation", "OOM command not allowed", "ERR no READONLY here", "MOVEDX"])
def test_another_error_is_an_answer(error: str) -> None:
    connection = a_connection()
    up(connection)
    connection.say(Asked(b"one"))
    connection.say(Asked(b"two"))
    connection.received(b"-" + error.encode() + b"\r\n:1\r\n", 1.0)
    assert log(connection) == [(7, b"one", f"refused: {error}", 1.0), (7, b"two", 1, 1.0)]
    assert connection.bad is None


def test_an_answer_that_only_looks_like_an_error_is_one() -> None:
    connection = a_connection()
    up(connection)
    connection.say(Asked(b"one"))
    connection.received(b"+NOSCRIPT\r\n", 1.0)
    assert (log(connection), connection.bad) == ([(7, b"one", b"NOSCRIPT", 1.0)], None)


# ------------------------------------------------ what a node is to watch


CACHING = command(b"CLIENT", b"CACHING", b"YES")


UNTRACKED = b"-ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or OPTOUT mode enabled\r\n"


@pytest.mark.parametrize("caching", [OK, UNTRACKED])
def test_a_question_that_watches_is_said_behind_the_word_for_it_and_answers_stay_in_step(caching: bytes) -> None:
    connection = a_connection()
    up(connection)
    for question in (Asked(b"first"), Asked(b"watching", watch=True), Asked(b"last")):
        connection.say(question)
    assert connection.take() == b"first" + CACHING + b"watching" + b"last"
    connection.received(b":1\r\n" + caching + b":2\r\n" + invalidate(array(bulk(b"a"))) + b":3\r\n", 1.0)
    assert log(connection) == [(7, b"first", 1, 1.0), (7, b"watching", 2, 1.0), (7, ("changed", b"a"), 1.0), (7, b"last", 3, 1.0)]
    assert (connection.bad, list(connection.ledger)) == (None, [])


def test_the_word_for_watching_may_be_owed_for_as_long_as_its_question() -> None:
    connection = a_connection(patience=2.0)
    up(connection)
    connection.say(Asked(b"watching", sent=5.0, watch=True))
    assert (connection.due(), connection.late(6.9), connection.late(7.0)) == (7.0, False, True)
    connection.received(OK, 6.0)
    assert connection.due() == 7.0
    connection.received(b":1\r\n", 6.5)
    assert connection.due() == inf


def test_what_was_to_be_watched_is_forgotten_with_its_connection() -> None:
    connection = a_connection()
    up(connection)
    connection.say(Asked(b"watching", watch=True))
    connection.broke(1.0)
    connection.say(Asked(b"watching", watch=True))
    assert (connection.take(), list(connection.ledger), connection.unsaid) == (b"", [], [])
    up(connection, 2.0)
    assert connection.take() == b""


# ------------------------------------------------ breaks


def test_what_is_on_its_way_at_a_break_is_forgotten_but_for_releases() -> None:
    connection = a_connection(patience=10.0)
    up(connection)
    for question in (Asked(b"answered", again=True), Asked(b"request"), Asked(b"release", again=True)):
        connection.say(question)
    connection.received(OK, 1.0)
    assert connection.take() == b"answered" + b"request" + b"release"
    connection.say(Asked(b"unsent"))
    connection.say(Asked(b"unsent release", again=True))
    connection.broke(5.0)
    assert (connection.state, connection.take(), list(connection.ledger)) == (ConnectionState.DOWN, b"", [])
    connection.say(Asked(b"while it is down"))
    connection.say(Asked(b"release while it is down", again=True))
    assert connection.take() == b""

    meet(connection, 6.0)
    connection.opened(6.0)
    said = b"release" + b"unsent release" + b"release while it is down"
    assert connection.take() == b"".join(command(b"SCRIPT", b"LOAD", it) for it in SCRIPTS) + said
    connection.received(LOADED + b":0\r\n" * 3, 7.0)
    assert [it[1] for it in log(connection)] == [b"answered", b"release", b"unsent release", b"release while it is down"]

    connection.broke(8.0)  # answered: not said once more
    up(connection, 9.0)
    assert (connection.take(), list(connection.ledger), log(connection)[4:]) == (b"", [], [])


def test_a_release_is_said_until_it_is_answered_or_its_lease_has_run_out() -> None:
    connection = a_connection(keep=30.0, patience=50.0)
    up(connection)
    connection.say(Asked(b"late", 9.9, again=True))
    connection.say(Asked(b"in time", 10.1, again=True))
    for now in (11.0, 20.0, 38.0):
        connection.broke(now)
        meet(connection, now)
        connection.opened(now)
        assert connection.take().endswith(b"late" + b"in time")
        connection.received(LOADED, now)
    connection.broke(39.9)
    meet(connection, 39.9)
    connection.opened(39.9)
    assert connection.take().endswith(command(b"SCRIPT", b"LOAD", SCRIPTS[-1]) + b"in time")
    connection.received(LOADED, 39.9)
    assert [it.data for it in connection.ledger] == [b"in time"]  # once


def test_the_next_connection_begins_with_nothing_of_the_last() -> None:
    connection = a_connection()
    up(connection)
    connection.say(Asked(b"?"))
    connection.received(b"*2\r\n:1\r\n", 1.0)  # half an answer
    connection.received(b"!", 1.0)
    assert connection.bad is not None
    connection.broke(2.0)
    assert connection.bad is None
    up(connection, 3.0)
    connection.say(Asked(b"!"))
    connection.received(b":1\r\n", 4.0)
    assert log(connection) == [(7, b"!", 1, 4.0)]


def test_the_back_off_grows_and_is_capped() -> None:
    connection = a_connection(jitter=1.0)
    assert (connection.state, connection.wake, connection.due()) == (ConnectionState.DOWN, 0.0, 0.0)  # to be dialled at once
    delays = []
    for _ in range(9):
        connection.dial(100.0)
        connection.broke(100.0)
        delays.append(connection.wake - 100.0)
        connection.hurry(100.0)  # a caller has come
        assert connection.wake == pytest.approx(100.0 + min(delays[-1], 0.1))
    assert delays == pytest.approx([0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 1.28, 1.28])
    up(connection, 101.0)
    connection.hurry(101.0)
    assert connection.wake == inf, "it does not rest"
    assert connection.fails == 9


@pytest.mark.parametrize("jitter, part", [(0.0, 0.5), (0.4, 0.7), (1.0, 1.0)])
def test_the_back_off_is_not_everybodys(jitter: float, part: float) -> None:
    connection = a_connection(jitter=jitter)
    connection.dial(0.0)
    connection.broke(0.0)
    assert connection.wake == pytest.approx(0.02 * part)


def test_a_connection_that_was_of_use_is_dialled_at_once_and_the_back_off_starts_anew() -> None:
    connection = a_connection()
    for _ in range(5):
        connection.dial(0.0)
        connection.broke(0.0)
    meet(connection, 10.0)
    connection.opened(11.0)
    connection.received(LOADED, 11.0)
    connection.broke(11.0 + SHORT)
    assert (connection.fails, connection.wake) == (0, 12.0)
    connection.dial(12.0)
    connection.broke(12.0)
    assert connection.fails == 1 and connection.wake == pytest.approx(12.02)


def test_a_connection_that_was_of_use_for_a_moment_only_is_a_failure() -> None:
    connection = a_connection()
    up(connection, 10.0)
    connection.broke(10.0 + SHORT - 0.01)
    assert connection.fails == 1 and connection.wake == pytest.approx(11.01)
    meet(connection, 11.0)
    connection.broke(20.0)  # in its guard it was of no use
    assert connection.fails == 2
    up_again = 30.0
    meet(connection, up_again)
    connection.opened(up_again)
    connection.broke(up_again)  # opened is counted from this connection, not from an earlier one
    assert connection.fails == 3


def test_a_node_that_failed_before_is_of_use_when_it_has_taken_the_scripts() -> None:
    connection = a_connection(timeout=1.5)
    connection.say(Asked(b"owed", 0.0, again=True))
    connection.dial(0.0)
    connection.broke(0.0)
    meet(connection, 10.0)
    connection.opened(11.0)
    assert (connection.state, connection.wake, connection.due()) == (ConnectionState.LOADING, 12.5, 12.5)
    connection.say(Asked(b"not yet"))
    assert connection.take() == b"".join(command(b"SCRIPT", b"LOAD", it) for it in SCRIPTS)
    connection.received(bulk(b"1" * 40), 11.5)
    assert (connection.state, connection.take()) == (ConnectionState.LOADING, b"")
    connection.received(bulk(b"2" * 40), 12.0)
    assert (connection.state, connection.wake, connection.take()) == (ConnectionState.UP, inf, b"owed")
    connection.received(b":1\r\n", 12.0)
    assert log(connection) == [(7, b"owed", 1, 12.0)]


def test_scripts_that_are_taken_while_it_is_of_use_change_nothing() -> None:
    connection = a_connection()
    meet(connection)
    connection.opened(0.0)
    connection.say(Asked(b"?"))
    assert connection.state is ConnectionState.UP
    connection.received(LOADED, 0.0)
    assert (connection.state, [it.data for it in connection.ledger]) == (ConnectionState.UP, [b"?"])
    connection.say(Asked(b"release", again=True))  # is not kept for later, and so not said twice
    connection.received(b":1\r\n:2\r\n", 0.0)
    connection.broke(5.0)
    assert connection.unsaid == []


# ------------------------------------------------ lateness


def test_when_it_is_late_and_when_to_look_after_it() -> None:
    # Rule T3.
    connection = a_connection(patience=1.5, timeout=1.5, guard=GUARD)
    assert not connection.late(1000.0)  # nobody dials it
    connection.dial(10.0)
    assert connection.state is ConnectionState.DIALLING
    assert (connection.due(), connection.late(11.49), connection.late(11.5)) == (11.5, False, True)
    connection.connected(11.0)
    assert connection.state is ConnectionState.GREETING
    assert (connection.due(), connection.late(12.49), connection.late(12.5)) == (12.5, False, True)
    connection.received(Server({"uptime_in_seconds": 13}).greets(), 12.0)
    assert (connection.state, connection.due(), connection.late(1000.0)) == (ConnectionState.GUARDED, 32.0, False)
    connection.opened(40.0)
    assert (connection.state, connection.due(), connection.late(41.49), connection.late(41.5)) == (
        ConnectionState.UP,
        41.5,
        False,
        True,
    )  # it owes an answer to SCRIPT LOAD
    connection.received(LOADED, 41.0)
    assert (connection.due(), connection.late(1000.0)) == (inf, False)  # it owes nothing
    connection.say(Asked(b"older", 50.0))
    connection.say(Asked(b"younger", 51.0))
    assert (connection.due(), connection.late(51.49), connection.late(51.5)) == (51.5, False, True)
    connection.received(b":1\r\n", 51.6)
    assert (connection.due(), connection.late(52.49), connection.late(52.5)) == (52.5, False, True)
    connection.received(b":1\r\n", 52.0)
    connection.broke(60.0)
    assert (connection.due(), connection.late(1000.0)) == (60.0, False)
    connection.dial(60.0)
    connection.broke(61.5)
    meet(connection, 62.0, Server({"uptime_in_seconds": 100}))
    connection.opened(62.0)
    assert connection.state is ConnectionState.LOADING
    assert (connection.due(), connection.late(63.49), connection.late(63.5)) == (63.5, False, True)


def test_what_is_said_again_cannot_be_late_before_it_could_be_said() -> None:
    connection = a_connection(patience=1.5)
    up(connection)
    connection.say(Asked(b"release", 0.0, again=True))
    connection.broke(0.5)  # after a moment, so that this was a failure
    meet(connection, 10.0)
    connection.opened(10.0)
    connection.received(LOADED, 11.0)
    assert (connection.state, [it.data for it in connection.ledger]) == (ConnectionState.UP, [b"release"])
    assert (connection.due(), connection.late(12.49), connection.late(12.5)) == (12.5, False, True)
    connection.received(b":1\r\n", 12.0)
    connection.say(Asked(b"release", 15.0, again=True))
    connection.broke(16.0)  # of use
    meet(connection, 20.0)
    connection.opened(20.0)
    connection.received(LOADED, 21.0)
    assert (connection.due(), connection.late(21.49), connection.late(21.5)) == (21.5, False, True)


def test_silence_that_may_have_been_ours_is_excused_but_only_once_for_one_question() -> None:
    """Its driver was busy, and may have sent the question only now. A node that says nothing is found out all the same."""
    connection = a_connection(patience=1.5)
    connection.excuse(5.0, 1.0)
    up(connection, 10.0)
    connection.excuse(20.0, 1.0)  # it owes nothing
    connection.say(Asked(b"older", 50.0))
    connection.say(Asked(b"younger", 50.5))
    assert connection.due() == 51.5
    connection.excuse(51.0, 1.0)
    assert (connection.due(), connection.late(52.49), connection.late(52.5)) == (52.5, False, True)
    connection.excuse(52.0, 1.0)
    assert connection.late(52.5)
    connection.received(b":1\r\n", 52.2)
    connection.excuse(52.2, 1.0)
    assert (connection.due(), connection.late(53.7)) == (53.7, True)


@pytest.mark.parametrize("failed", [False, True])
def test_a_connection_that_ends_in_silence_was_of_no_use_however_long_it_was(failed: bool) -> None:
    connection = a_connection(patience=1.0)
    if failed:
        connection.dial(0.0)
        connection.broke(0.0)
    meet(connection, 10.0)
    connection.opened(10.0)
    assert connection.state is (ConnectionState.LOADING if failed else ConnectionState.UP)
    connection.say(Asked(b"?", 10.0))
    assert connection.late(11.0)
    connection.broke(11.0)
    assert connection.fails == failed + 1
    meet(connection, 20.0)
    connection.opened(20.0)
    connection.received(LOADED, 20.0)
    connection.say(Asked(b"?", 49.9))
    connection.broke(50.9)
    assert connection.fails == failed + 2


def test_a_quiet_connection_that_ends_in_silence_may_have_been_cut_long_ago() -> None:
    """After 30 s without a word it says nothing of the node: dialled at once, and hoped for. The second time it does."""
    connection = a_connection(patience=1.0)
    up(connection, 20.0)
    connection.say(Asked(b"?", 50.0))
    connection.say(Asked(b"!", 50.5))
    assert connection.late(51.0)
    connection.broke(51.0)
    assert (connection.fails, connection.wake) == (0, 51.0)
    connection.dial(51.0)
    connection.connected(51.0)
    connection.broke(52.0)
    assert connection.fails == 1


def test_silence_that_may_have_been_ours_is_excused_once_for_each_question() -> None:
    connection = a_connection(patience=1.5)
    up(connection)
    connection.excuse(5.0, 1.0)  # it owes no answer, so this has no effect
    connection.say(Asked(b"one", 6.0))
    assert connection.due() == 7.5
    connection.say(Asked(b"two", 6.5))
    connection.excuse(7.0, 1.0)
    assert (connection.due(), connection.late(8.49), connection.late(8.5)) == (8.5, False, True)
    connection.excuse(8.0, 1.0)  # once
    assert connection.due() == 8.5
    connection.received(b":1\r\n", 8.1)
    assert connection.due() == 8.5
    connection.excuse(8.2, 1.0)
    assert connection.due() == 9.7
    connection.received(b":1\r\n", 9.0)
    assert connection.due() == inf
    connection.say(Asked(b"three", 20.0))
    assert connection.due() == 21.5


def test_a_question_that_was_excused_is_not_kept_beyond_its_answer() -> None:
    connection, question = a_connection(patience=1.5), Asked(b"?", 6.0)
    up(connection)
    connection.say(question)
    alive = weakref.ref(question)
    del question
    connection.excuse(7.0, 1.0)
    assert alive() is not None
    connection.received(b":1\r\n", 7.1)
    assert alive() is None


def test_the_round_trip_is_the_shortest_that_was_seen_on_this_connection() -> None:
    connection = a_connection(scripts=())
    assert connection.trip == 0.0
    connection.connected(0.0)
    connection.received(Server().greets(), 0.4)
    assert connection.trip == 0.4
    connection.opened(1.0)
    connection.say(Asked(b"?", 2.0))
    connection.received(OK, 2.5)
    assert connection.trip == 0.4
    connection.say(Asked(b"?", 3.0))
    connection.received(OK, 3.25)
    assert connection.trip == 0.25
    connection.take()
    connection.measure(5.0)
    connection.measure(5.0)
    assert connection.take() == command(b"TIME")
    connection.received(array(bulk(b"1"), bulk(b"1")), 5.125)
    assert connection.trip == 0.125
    connection.broke(6.0)
    assert connection.trip == 0.125
    connection.measure(6.0)
    assert connection.take() == b"", "it is down"
    connection.connected(7.0)
    connection.received(Server().greets(), 7.3)
    assert connection.trip == near(0.3)


@pytest.mark.parametrize("trip, line", [(0.5, ConnectionState.UP), (0.51, ConnectionState.LOADING)])
def test_scripts_are_loaded_at_leisure_where_answers_take_longer_than_claims_can_wait(trip: float, line: object) -> None:
    connection = a_connection(timeout=2.0)
    connection.connected(0.0)
    connection.received(Server().greets(), trip)
    connection.manners.patience = 0.5
    connection.opened(1.0)
    assert (connection.state, connection.due()) == (line, 1.5 if line is ConnectionState.UP else 3.0)


@pytest.mark.parametrize("line", [ConnectionState.DIALLING, ConnectionState.GREETING, ConnectionState.LOADING])
def test_a_connection_that_is_being_made_has_as_much_time_from_now_as_our_own_side_was_late(line: ConnectionState) -> None:
    """One core with thousands of clients takes seconds for each of the steps, and that is no fault of the node."""
    connection = a_connection(timeout=1.5)
    connection.dial(0.0)
    connection.broke(0.0)
    connection.dial(1.0)
    if line is not ConnectionState.DIALLING:
        connection.connected(1.0)
    if line is ConnectionState.LOADING:
        connection.received(Server().greets(), 1.0)
        connection.opened(1.0)
    assert (connection.state, connection.due()) == (line, 2.5)
    connection.excuse(1.5, 0.25)
    assert connection.due() == 2.5, "there is as much time left"
    connection.excuse(2.5, 0.25)
    assert (connection.due(), connection.late(2.7), connection.late(2.75)) == (2.75, False, True)
    connection.excuse(3.0, 60.0)
    assert (connection.due(), connection.late(4.4), connection.late(4.5)) == (4.5, False, True), "no more than a new connection would have"


def test_what_has_no_time_limit_gets_none_by_an_excuse() -> None:
    connection = a_connection(guard=30.0)
    connection.excuse(0.5, 60.0)
    assert (connection.state, connection.due()) == (ConnectionState.DOWN, 0.0)
    meet(connection, 1.0, Server({"uptime_in_seconds": 10}))
    free = connection.due()
    connection.excuse(1.5, 60.0)
    assert (connection.state, connection.due()) == (ConnectionState.GUARDED, free)


def test_patience_is_everybodys_and_may_shrink() -> None:
    connection = a_connection(patience=1.5)
    up(connection)
    connection.say(Asked(b"?", 10.0))
    connection.manners.patience = 0.5
    assert (connection.due(), connection.late(10.49), connection.late(10.5)) == (10.5, False, True)


@pytest.mark.parametrize("failed", [False, True])
def test_a_connection_on_which_the_scripts_were_never_taken_was_of_no_use(failed: bool) -> None:
    """With a node_timeout of more than a second: a node (or a proxy) that hangs up two seconds after the greeting, every time.

    `opened` sets `_opened`, so the time for which SCRIPT LOAD was unanswered counts as use: the failures are forgotten, the node is
    dialled again without a pause, and counts as hoped for.
    """
    connection = a_connection(patience=5.0, timeout=5.0)
    if failed:
        connection.dial(0.0)
        connection.broke(0.0)
    meet(connection, 10.0)
    connection.opened(10.0)
    assert connection.state is (ConnectionState.LOADING if failed else ConnectionState.UP)
    connection.broke(11.0 + SHORT)
    assert connection.fails == failed + 1


def test_the_last_resort_leaves_nothing_of_the_connection_and_keeps_what_the_guard_needs() -> None:
    connection = a_connection(guard=60.0)
    up(connection)
    connection.say(Asked(b"release", again=True))
    run = connection.run_id
    connection.bad = ConnectionError("x")
    connection.renounce(5.0)
    assert (connection.state, connection.bad, connection.fails, connection.wake) == (ConnectionState.DOWN, None, 1, 5.0 + 1.28)
    assert (list(connection.ledger), connection.out, connection.unsaid, connection.run_id) == ([], [], [], run)


# ------------------------------------------------ probes of a node that refused


def test_a_node_that_refuses_is_probed_until_it_accepts() -> None:
    connection = a_connection()
    up(connection)
    connection.say(Asked(b"x", 1.0))
    connection.take()
    connection.received(b"-OOM full\r\n", 1.0)
    assert isinstance(connection.refusal, Refusal) and connection.wake < inf
    connection.probe(2.0)
    assert connection.wake == inf, "an answer is under way"
    assert connection.take() == connection.manners.probe
    connection.received(array(bulk(b"SET"), bulk(b"OOM full")), 2.0)
    assert isinstance(connection.refusal, Refusal) and 2.0 < connection.wake < inf
    connection.probe(3.0)
    connection.take()
    connection.received(array(), 3.0)
    assert (connection.refusal, connection.wake, connection.bad) == (None, inf, None)


def test_a_right_that_was_taken_away_ends_the_connection() -> None:
    connection = a_connection()
    up(connection)
    connection.probe(1.0)
    connection.take()
    connection.received(array(bulk(b"DEL"), bulk(b"NOPERM no permissions to run the 'del' command")), 1.0)
    assert isinstance(connection.bad, ConfigError)


def test_what_only_some_primitives_need_is_asked_for_by_the_larger_probe_and_makes_no_node_unfit() -> None:
    connection = a_connection()
    up(connection)
    told: list[object] = [b"ZSCORE", b"NOPERM User app has no permissions to run the 'zscore' command"]
    call = pack(b"EVALSHA", RW_REQUEST.sha, b"6")
    connection.judge(told, connection.manners.basic)
    assert (connection.lacks, connection.forbids(call, 5.0), connection.bad) == ({}, None, None)
    connection.judge(told, rights.question("", b"more"))
    assert (list(connection.lacks), connection.bad, connection.wake) == (["ZSCORE"], None, inf)
    assert isinstance(connection.forbids(call, 5.0), ConfigError)
    assert connection.wake == 5.0, "a probe tells whether it was granted meanwhile"
    assert connection.forbids(pack(b"EVALSHA", REQUEST.sha, b"4"), 5.0) is None
    connection.judge([], rights.question("", b"more"))
    assert (connection.lacks, connection.forbids(call, 5.0)) == ({}, None)


def test_an_error_that_answers_a_question_is_short_and_can_be_printed() -> None:
    connection = a_connection()
    up(connection, 0.0)
    for number, reply in enumerate((HUGE, b"-NOSCRIPT " + HUGE[1:])):
        connection.say(Asked(b"%d" % number))
        connection.received(reply, 1.0)
    ((_, _, told, _),) = log(connection)
    assert isinstance(told, str) and "ERR \\x1b[2Jnono" in told and len(told) < 500
    assert type(connection.bad) is Refusal and len(str(connection.bad)) < 500


UNSEALED = "if it speaks TLS on this port, write rediss://; if it is a proxy (twemproxy), name the server itself"


MUTE = {  # how the connection ended before the node said anything, and what is said of it
    "reset": (
        "redis://h",
        ConnectionResetError("reset"),
        "reset, before it said a word: " + UNSEALED,
    ),
    "closed": ("rediss://h", ConnectionError("closed"), "closed, before it said a word: it may want a certificate of ours (ssl_certfile)"),
    "silent": ("redis://h", TimeoutError("silent"), "silent"),
    "unfit": ("redis://h", ConfigError("unfit"), "unfit"),
}


@pytest.mark.parametrize("which", MUTE)
def test_what_it_may_mean_that_a_connection_ended_before_a_word_was_said(which: str) -> None:
    url, cause, told = MUTE[which]
    connection = a_connection(url)
    assert connection.explained(cause) is cause
    connection.connected(0.0)
    explained = connection.explained(cause)
    assert message_of(explained) == told and isinstance(explained, ConnectionError) is isinstance(cause, ConnectionError)
    connection.received(Server().answers(0)[0], 0.0)
    assert connection.explained(cause) is cause
    connection.received(b"".join(Server().answers(0)[1:]), 0.0)
    assert connection.explained(cause) is cause


@pytest.mark.parametrize("url, told", [("redis://h", False), ("rediss://h", True)])
def test_what_it_may_mean_that_a_connection_ended_while_it_was_made(url: str, told: bool) -> None:
    connection = a_connection(url)
    connection.dial(0.0)
    assert ("it may want a certificate of ours" in str(connection.explained(ConnectionError("closed")))) is told
    assert str(connection.explained(ConnectionRefusedError("refused"))) == "refused"


@pytest.mark.parametrize("url, told", [("redis://h", ""), ("rediss://h", " (TLS included: does it speak that on this port?)")])
def test_what_silence_means(url: str, told: str) -> None:
    connection = a_connection(url)
    connection.dial(0.0)
    assert str(connection.silence()) == f"no connection within 1 s{told}"
    connection.connected(0.0)
    assert str(connection.silence()) == "silent for 1 s"
    connection.received(Server().greets(), 0.0)
    connection.opened(0.0)
    connection.manners.patience = 0.25
    assert str(connection.silence()) == "silent for 0.25 s"


def test_what_is_wrong_with_its_first_words_is_not_explained_away() -> None:
    connection = a_connection()
    connection.connected(0.0)
    connection.received(b"HTTP/1.1 400 Bad Request\r\n", 0.0)
    assert connection.bad is not None and connection.explained(connection.bad) is connection.bad


@pytest.mark.parametrize("which", OTHER)
def test_an_address_that_says_so_admits_such_a_server_if_it_does_what_a_node_must_do(which: str) -> None:
    facts, product, name = OTHER[which]
    connection = a_connection("redis://h?unproven=true")
    meet(connection, 0.0, Server(dict(facts), product=product))
    assert connection.stranger == name
    told = {"Dragonfly": "it is no Redis or Valkey server", "Kvrocks": "its server is 4.0.0: Redis 6.2"}.get(which)
    if told is None:
        assert (connection.state, connection.bad) == (ConnectionState.GUARDED, None)
    else:
        assert type(connection.bad) is ConfigError and str(connection.bad).startswith(told)


@pytest.mark.parametrize("mode", ["server_mode", "redis_mode"])
@pytest.mark.parametrize(
    "reply, cause",
    [
        pytest.param(bulk(b"cluster_state:ok\r\ncluster_size:3\r\n"), "it belongs to a cluster of 3 shards", id="three shards"),
        pytest.param(b"=18\r\ntxt:cluster_size:2\r\n", "it belongs to a cluster of 2 shards", id="two shards"),
        pytest.param(bulk(b"cluster_state:ok\r\ncluster_size:1\r\n"), None, id="one shard"),
        pytest.param(bulk(b"cluster_state:fail\r\ncluster_size:0\r\n"), None, id="no slots yet"),
        pytest.param(b"-NOPERM no permissions to run the 'cluster|info' command\r\n", None, id="not allowed to ask"),
        pytest.param(bulk(b"nonsense"), None, id="no answer"),
        pytest.param(b":5\r\n", None, id="no text"),
    ],
)
def test_a_node_of_a_cluster_is_refused_if_there_are_several_shards(mode: str, reply: bytes, cause: str | None) -> None:
    connection = a_connection()
    meet(connection, 0.0, Server({mode: "cluster"}))
    assert (connection.state, connection.take()) == (ConnectionState.GREETING, command(b"CLUSTER", b"INFO"))
    connection.received(reply, 0.5)
    if cause is None:
        assert (connection.state, connection.bad) == (ConnectionState.GUARDED, None)
    else:
        assert type(connection.bad) is ConfigError and str(connection.bad).startswith(cause)
        assert connection.state is ConnectionState.GREETING


@pytest.mark.parametrize("server", ["plain", "promoted"])
def test_a_clock_that_was_read_late_is_asked_for_again_before_the_node_is_used(server: str) -> None:
    """The answer may have lain unread for all that time: the node's clock could be off by half of it."""
    connection = a_connection(prompt=2.0, timeout=1.5, guard=30.0)
    connection.dial(0.0)
    connection.connected(0.5)
    connection.take()
    told = Server() if server == "plain" else promoted()
    answers = told.answers()
    connection.received(b"".join(answers), 2.75)
    assert (connection.state, connection.ahead, connection.bad, connection.due()) == (ConnectionState.GREETING, None, None, 4.25)
    assert connection.take() == command(b"TIME")
    connection.received(answers[-1], 4.25)
    assert (connection.ahead, connection.blur, connection.measured) == (1700000000.5 - 3.5, 0.75, 4.25)
    assert (connection.state, connection.trip) == (ConnectionState.GUARDED if server == "plain" else ConnectionState.GREETING, 1.5)
    assert (b":reign:" in connection.take()) is (server == "promoted"), "only then it is known what to note"


def test_a_clock_that_is_read_just_in_time_counts() -> None:
    connection = a_connection(prompt=2.0)
    connection.dial(0.0)
    connection.connected(0.5)
    connection.received(Server().greets(), 2.5)
    assert (connection.state, connection.blur) == (ConnectionState.GUARDED, 1.0)


def test_a_clock_is_measured_again() -> None:
    connection = a_connection()
    connection.told_time([b"5", b"0"], 1.0, 2.0)
    assert connection.ahead is None, "nothing is known of it"
    up(connection)
    before = connection.ahead
    assert before is not None
    at = connection.measured
    connection.told_time(ConnectionError("no"), at + 1.0, at + 2.0)
    assert (connection.ahead, connection.measured) == (before, at)
    told = before + at + 10.5
    connection.told_time([b"%d" % told, b"%06d" % (told % 1 * 1e6)], at + 10.0, at + 11.0)
    assert (connection.ahead, connection.measured) == (before, at + 11.0), "the first measure was more exact"
    connection.told_time([b"%d" % (told + 60), b"%06d" % (told % 1 * 1e6)], at + 10.0, at + 11.0)
    assert connection.ahead == pytest.approx(before + 60.0, abs=1e-3) and connection.blur == 0.5


@pytest.mark.parametrize("first, second", [(1.0, 0.25), (0.25, 1.0)])
def test_a_clock_was_set_only_if_both_measures_together_cannot_be_wrong_by_that(first: float, second: float) -> None:
    connection = a_connection(prompt=2.0)
    connection.dial(0.0)
    connection.connected(0.0)
    connection.received(Server().greets(), first)
    ahead = connection.ahead
    assert ahead is not None
    for off, counts in (((first + second) / 2 - 0.01, False), ((first + second) / 2 + 0.01, True)):
        told = ahead + 10.0 + second / 2 + off
        connection.told_time([b"%d" % told, b"%06d" % (told % 1 * 1e6)], 10.0, 10.0 + second)
        assert (connection.ahead != ahead) is counts


def test_facts_are_of_this_connection() -> None:
    connection = a_connection()
    up(connection, 0.0, Server({"valkey_version": "8.1.0"}))
    connection.broke(5.0)
    meet(connection, 6.0, Server())
    assert "valkey_version" not in connection.facts


def test_credentials_of_the_moment_are_said_once() -> None:
    connection = a_connection("redis://me:old@h")
    connection.connected(0.0, parse("redis://you:new@h"))
    assert connection.take().startswith(command(b"HELLO", b"3", b"AUTH", b"you", b"new"))
    connection.broke(1.0)
    connection.connected(2.0)
    assert connection.take().startswith(command(b"HELLO", b"3", b"AUTH", b"me", b"old"))


def test_the_first_cause_is_the_one_that_is_told() -> None:
    connection = a_connection()
    connection.connected(0.0)
    connection.received(b"-WRONGPASS no\r\n" + b"-NOAUTH Authentication required.\r\n" * 9, 0.0)
    assert message_of(connection.bad) == "it refuses our user or password: WRONGPASS no"


def test_a_node_of_a_cluster_that_loads_its_data_is_asked_again_later() -> None:
    connection = a_connection()
    meet(connection, 0.0, Server({"redis_mode": "cluster"}))
    connection.received(b"-LOADING Redis is loading the dataset in memory\r\n", 0.5)
    assert type(connection.bad) is ConnectionError and connection.state is ConnectionState.GREETING


TIMES = {
    "a word": OK,
    "nothing": array(),
    "one number": array(bulk(b"1700000000")),
    "three numbers": array(bulk(b"1"), bulk(b"2"), bulk(b"3")),
    "words": array(bulk(b"a"), bulk(b"2")),
    "a number and a word": array(bulk(b"1"), bulk(b"b")),
    "a fraction": array(bulk(b"1.5"), bulk(b"2")),
    "nulls": array(b"_\r\n", b"_\r\n"),
    "an infinity": array(b",inf\r\n", b":0\r\n"),
    "lists": array(array(), array()),
    "too large": array(bulk(b"1" * 19), bulk(b"2")),
}


@pytest.mark.parametrize("which", TIMES)
def test_a_server_that_does_not_tell_the_time_is_no_server(which: str) -> None:
    connection = a_connection()
    connection.connected(10.0)
    connection.received(b"".join([*Server().answers()[:-1], TIMES[which]]), 10.5)
    assert (connection.state, connection.ahead) == (ConnectionState.GREETING, None)
    assert type(connection.bad) is ConnectionError and str(connection.bad).startswith("it tells no time: ")


def test_info_that_is_no_text_is_no_info() -> None:
    connection = a_connection()
    connection.connected(0.0)
    answers = Server().answers()
    answers[6] = b":1\r\n"
    connection.received(b"".join(answers), 0.0)
    assert str(connection.bad).startswith("its server is of no known version")


@pytest.mark.parametrize("url, user", [("redis://me:p@h", "me"), ("redis://:p@h", "default")])
def test_a_right_that_is_missing_is_told_for_the_user_who_lacks_it(url: str, user: str) -> None:
    connection = a_connection(url)
    connection.dial(0.0)
    connection.connected(0.0)
    answers = Server().answers()
    answers[6] = b"-NOPERM this user has no permissions to run the 'info' command\r\n"
    connection.received(b"".join(answers), 0.0)
    assert isinstance(connection.bad, ConfigError) and f"ACL SETUSER {user} " in f"{connection.bad} {connection.bad.fix}"
