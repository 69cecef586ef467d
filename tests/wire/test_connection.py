"""The connection: how it introduces itself, when it may speak, who gets which answer, and what becomes of all that when it breaks.

Everything here is bytes in and bytes out.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from math import inf
from typing import Any

import pytest
from wire.servers import (
    GUARD,
    LOADED,
    OK,
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
    push,
    up,
)

from holdfast.errors import ConfigError, message_of
from holdfast.wire.connection import AVERAGED, PROMPT, SHORT, Connection, ConnectionState
from holdfast.wire.resp import Refusal

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


def test_the_same_wherever_the_stream_is_cut() -> None:
    for at in range(max(len(Server().greets()), len(LOADED + TALK))):
        assert_understood(converse(cut(at), cut(at)))


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
        assert connection.wake == 9.0 + max(0, min(GUARD, GUARD + 1 - int(connection.server.facts["uptime_in_seconds"])))
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
