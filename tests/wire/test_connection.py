"""The connection: streams that are cut or damaged, answers that are as usual, and what conversations do not show.

Most of its tests are conversations: `tests/wire/connection/*.txt`.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from math import inf
from typing import Any

import pytest
from wire.servers import GUARD, HUGE, LOADED, OK, SCRIPTS, Asked, Server, a_connection, array, bulk, invalidate, log, message, push, up

from holdfast.errors import ConfigError
from holdfast.scripts import REQUEST, RW_REQUEST
from holdfast.wire import rights
from holdfast.wire.connection import AVERAGED, PROMPT, Connection, ConnectionState
from holdfast.wire.resp import Refusal, pack

# ------------------------------------------------ what is known of the node


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


def test_answers_go_to_whoever_asked_and_pushes_to_the_engine_in_the_order_of_the_stream() -> None:
    # Rule T1.
    assert_understood(converse(whole, whole))


def test_the_same_wherever_the_stream_is_cut() -> None:
    for at in range(max(len(Server().greets()), len(LOADED + TALK))):
        assert_understood(converse(cut(at), cut(at)))


RUBBISH = {
    "another protocol": b"HTTP/1.1 400 Bad Request\r\n",
    "a null byte": b"\0",
    "a number that is none": b":x\r\n",
    "a length below nothing": b"$-5\r\n",
    "a length that is none": b"*x\r\n",
    "a map whose key is a list": b"%1\r\n*0\r\n:1\r\n",  # (hiredis raises a TypeError)
    "a map whose key is a map": b"%1\r\n%0\r\n:1\r\n",
}


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
