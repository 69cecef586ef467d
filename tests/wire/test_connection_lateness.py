"""The connection: when a node is late, and how one that refused is probed."""

from __future__ import annotations

from math import inf

import pytest
from wire.servers import (
    GUARD,
    HUGE,
    LOADED,
    OK,
    Asked,
    Server,
    a_connection,
    array,
    bulk,
    command,
    log,
    meet,
    near,
    promoted,
    up,
)

from holdfast.errors import ConfigError, message_of
from holdfast.scripts import REQUEST, RW_REQUEST
from holdfast.wire import rights
from holdfast.wire.connection import ConnectionState
from holdfast.wire.resp import Refusal, pack

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
    connection.settings.patience = 0.5
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
    connection.broke(12.0)
    assert connection.fails == failed + 1


def test_the_last_resort_leaves_nothing_of_the_connection_and_keeps_what_the_guard_needs() -> None:
    connection = a_connection(guard=60.0)
    up(connection)
    connection.say(Asked(b"release", again=True))
    run = connection.server.run_id
    connection.bad = ConnectionError("x")
    connection.renounce(5.0)
    assert (connection.state, connection.bad, connection.fails, connection.wake) == (ConnectionState.DOWN, None, 1, 5.0 + 1.28)
    assert (list(connection.ledger), connection.out, connection.unsaid, connection.server.run_id) == ([], [], [], run)


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
    assert connection.take() == connection.settings.probe
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
    connection.judge(told, connection.settings.basic)
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
    connection.settings.patience = 0.25
    assert str(connection.silence()) == "silent for 0.25 s"


def test_what_is_wrong_with_its_first_words_is_not_explained_away() -> None:
    connection = a_connection()
    connection.connected(0.0)
    connection.received(b"HTTP/1.1 400 Bad Request\r\n", 0.0)
    assert connection.bad is not None and connection.explained(connection.bad) is connection.bad


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
    assert (connection.state, connection.server.ahead, connection.bad, connection.due()) == (ConnectionState.GREETING, None, None, 4.25)
    assert connection.take() == command(b"TIME")
    connection.received(answers[-1], 4.25)
    assert (connection.server.ahead, connection.server.blur, connection.server.measured) == (1700000000.5 - 3.5, 0.75, 4.25)
    assert (connection.state, connection.trip) == (ConnectionState.GUARDED if server == "plain" else ConnectionState.GREETING, 1.5)
    assert (b":reign:" in connection.take()) is (server == "promoted"), "only then it is known what to note"


def test_facts_are_of_this_connection() -> None:
    connection = a_connection()
    up(connection, 0.0, Server({"valkey_version": "8.1.0"}, product=b"valkey"))
    assert connection.server.product == "valkey"
    connection.broke(5.0)
    meet(connection, 6.0, Server())
    assert "valkey_version" not in connection.server.facts and connection.server.product == "redis"


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
    assert (connection.state, connection.server.ahead) == (ConnectionState.GREETING, None)
    assert type(connection.bad) is ConnectionError and str(connection.bad).startswith("it tells no time: ")
