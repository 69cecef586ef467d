"""The connection: what is noted on a node of its server's reign, and what is asked of a node whose place moves."""

from __future__ import annotations

from math import inf

from wire.servers import (
    CLOCK,
    GUARD,
    LOADED,
    MOVES,
    NOTE,
    OK,
    Asked,
    Server,
    a_connection,
    array,
    bulk,
    command,
    found,
    meet,
    microseconds,
    noted,
    promoted,
    reigning,
    up,
)

from holdfast.wire.connection import Connection, ConnectionState


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


def test_a_note_ends_with_what_is_known_of_the_place_where_the_same_server_may_be_the_node_once_more() -> None:
    """a, b, a: what a's note says is not true any more, so it is gone before b grants anything."""
    connection, note = reigning(), b"%d" % round((CLOCK - 70) * 1e6)
    connection = Connection(connection.listener, 0, connection.address.but(moves=True), connection.settings)
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
    connection = Connection(connection.listener, 0, connection.address.but(moves=True), connection.settings)
    meet(connection, 100.0)
    connection.received(b"-OOM no\r\n_\r\n", 100.0)
    connection.take()
    connection.placed(connection.address, 105.0, 106.0)
    at, ends = b"%d" % round(CLOCK * 1e6), b"%d" % round((CLOCK + 5 + 15) * 1000)
    assert connection.take() == command(b"SET", NOTE + b"a" * 40, at, b"PXAT", ends), "of the time of the connection"


def test_a_node_that_does_not_take_the_note_in_its_guard_is_silent() -> None:
    """Rule T3 knows no guard: a connection that is half open ends."""
    connection = reigning()
    connection = Connection(connection.listener, 0, connection.address.but(moves=True), connection.settings)
    assert found(connection, 100.0) == 100.0 + GUARD + 15
    connection.received(OK, 100.0)
    assert (connection.due(), connection.late(110.0)) == (100.0 + GUARD + 15, False), "nothing is owed"
    connection.placed(connection.address, 105.0, 105.0)
    late = 105.0 + connection.settings.patience
    assert connection.state is ConnectionState.GUARDED
    assert (connection.due(), connection.late(late - 0.01), connection.late(late)) == (late, False, True)


def test_while_scripts_are_loaded_no_note_is_kept() -> None:
    """The connection waits for the answers to them, and for nothing that comes after."""
    connection = reigning()
    connection = Connection(connection.listener, 0, connection.address.but(moves=True), connection.settings)
    found(connection, 100.0, b"1")
    connection.fails = 1
    connection.opened(101.0)
    connection.take()
    connection.placed(connection.address, 101.0, 101.0)
    assert (connection.state, connection.take()) == (ConnectionState.LOADING, b"")
    connection.received(OK + LOADED, 101.0)
    assert connection.state is ConnectionState.UP


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


def test_a_note_that_cannot_be_read_because_the_node_loads_is_read_later() -> None:
    connection = reigning()
    meet(connection, 100.0, promoted())
    connection.received(b"-LOADING x\r\n-LOADING x\r\n-LOADING x\r\n", 100.0)
    assert type(connection.bad) is ConnectionError and connection.state is ConnectionState.GREETING


def test_what_has_not_answered_is_named() -> None:
    connection = a_connection()
    connection.dial(100.0)
    connection.asks = "credentials()"
    assert str(connection.silence()) == "no connection within 1 s: no answer yet from credentials()"


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


def test_it_is_of_no_use_where_its_server_is_of_none_and_of_use_as_soon_as_its_server_is() -> None:
    connection = a_connection(guard=GUARD)
    for now, run in ((100.0, "a"), (110.0, "b"), (120.0, "a")):
        meet(connection, now, Server({"run_id": run * 40, "uptime_in_seconds": 0}))
        assert (connection.bad is None) is (connection.state is ConnectionState.GUARDED) is (now < 120.0)
        connection.shorten(now + 0.5)
        assert connection.wake == now + 0.5
        connection.broke(now + 1.0)
