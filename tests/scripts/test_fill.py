"""The scripts of fills, on simulated and on real servers: what is kept and dropped, for how long, and who is told."""

from __future__ import annotations

from typing import Any

import hiredis
import pytest
from scripts.bench import INBOXES, LONG, NAME, SHORT, SLACK, TOP, Bench, about, spoken

from holdfast.primitives.fill.commands import Cache
from holdfast.protocol.exclusive import Exclusive
from holdfast.scripts import FILLS

CACHE = Cache(Exclusive(NAME.decode(), ttl=30.0, horizon=16_000))
KEY = b"{n}:cache"


def say(bench: Bench, data: bytes) -> Any:
    """A recipe's bytes, said to the server; its answer, an error too."""
    bench.load(*FILLS)
    [reply] = bench.client.batch(tuple(spoken(data)))
    bench.mortal()
    return reply


def put(bench: Bench, fence: int, data: bytes, fresh: int = LONG, stale: int = 0, ttl: int | None = None) -> Any:
    return say(bench, CACHE.put(fence, fresh, stale, fresh if ttl is None else ttl, data))


def void(bench: Bench, fence: int = 0, lasts: int = LONG) -> Any:
    return say(bench, CACHE.void(fence, lasts))


def peek(bench: Bench) -> Any:
    return say(bench, CACHE.peek)


def left(bench: Bench) -> int:
    """PTTL of the key."""
    ms: int = bench.operator.say("PTTL", KEY)
    return ms


def test_what_is_put_is_there_for_its_time(bench: Bench) -> None:
    assert put(bench, 5, b"value") == 1
    fresh, fence, ttl, data = peek(bench)
    assert (fence, ttl, data) == (5, LONG, b"value")
    assert about(fresh, LONG)
    assert about(left(bench), LONG)


def test_stale_is_told_from_fresh_by_who_put_it(bench: Bench) -> None:
    put(bench, 5, b"value", SHORT, LONG)
    assert about(left(bench), LONG + SHORT)
    bench.lapse()
    fresh, _, ttl, data = peek(bench)
    assert (ttl, data) == (SHORT, b"value")
    assert -LONG < fresh <= 0, "for how long it has not been"
    put(bench, 6, b"newer", LONG, 2 * LONG)
    assert about(peek(bench)[0], LONG)
    assert about(left(bench), 3 * LONG)


def test_a_later_holder_replaces_and_the_same_one_and_no_earlier_one(bench: Bench) -> None:
    put(bench, 9, b"first")
    assert put(bench, 10, b"second") == 1, "as numbers"
    assert put(bench, 10, b"third") == 1
    assert put(bench, 9, b"late", 3 * LONG) == 0
    assert peek(bench)[3] == b"third"
    assert about(left(bench), LONG), "and it leaves no trace"


def test_fences_are_compared_to_the_last_digit(bench: Bench) -> None:
    put(bench, TOP - 1, b"value")
    assert put(bench, TOP - 2, b"lower") == 0
    assert put(bench, TOP, b"higher") == 1
    assert put(bench, TOP - 1, b"lower") == 0
    assert peek(bench)[3] == b"higher"


@pytest.mark.parametrize("data", [b"", b" ", b"0 0 ", b"\0\r\n\xff", bytes(range(256)) * 4096], ids=lambda data: str(len(data)))
def test_a_value_may_be_anything(bench: Bench, data: bytes) -> None:
    put(bench, 5, data, LONG, 7)
    assert peek(bench)[3] == data
    assert about(peek(bench)[0], LONG)


def test_long_times_are_written_in_full(bench: Bench) -> None:
    long = 10**11
    assert put(bench, TOP, b"value", long, long) == 1
    assert about(left(bench), 2 * long)
    assert about(peek(bench)[0], long)


def test_whoever_waits_is_told_to_look(bench: Bench) -> None:
    listener = bench.connect(*INBOXES[:2])
    held = bench.token(1, INBOXES[2])
    bench.request(held)
    waiting = [bench.token(2, INBOXES[0]), bench.token(3, INBOXES[1]), bench.token(4, INBOXES[1])]
    for token in waiting:
        bench.request(token, client=bench.connect())
    listener.heard()
    put(bench, 5, b"value")
    assert listener.heard() == [(token[17:49], b"n %b 0 %b" % (token, NAME)) for token in waiting]
    put(bench, 4, b"late")
    assert listener.heard() == [], "there is nothing new"


def test_it_is_kept_though_nobody_may_be_told(bench: Bench) -> None:
    bench.request(bench.token(1))
    bench.request(bench.token(2))
    with bench.mute():
        assert put(bench, 5, b"value") == 1
    assert peek(bench)[3] == b"value"


def test_what_somebody_else_has_written_there_is_no_value_and_is_replaced(bench: Bench) -> None:
    for text in (b"x", b"1", b"1 x", b"", b"x 1 y", b"1  y", b"1 0 y", b"1:2 y", b"1:0:0", b":", b"1::", b"1:2:"):
        bench.operator.say("SET", KEY, text, "PX", LONG)
        assert peek(bench) is None, text
    assert put(bench, 5, b"value") == 1
    assert peek(bench)[3] == b"value"


def test_a_key_of_another_type_is_an_error(bench: Bench) -> None:
    bench.operator.batch(("HSET", KEY, "a", "b"), ("PEXPIRE", KEY, LONG))
    for reply in (peek(bench), put(bench, 5, b"value"), void(bench), void(bench, 5)):
        assert isinstance(reply, hiredis.ReplyError)
        assert "WRONGTYPE" in str(reply)


def test_its_age_is_told_by_what_is_missing_of_its_time(bench: Bench) -> None:
    put(bench, 5, b"value", LONG, 0, 3 * LONG)
    fresh, _, ttl, _ = peek(bench)
    assert about(fresh, LONG)
    assert ttl == 3 * LONG


def test_what_replaces_a_value_that_stays_for_longer_stays_as_long_and_is_fresh_for_its_own_time(bench: Bench) -> None:
    put(bench, 5, b"value", 3 * LONG)
    put(bench, 6, b"newer", SHORT)
    assert about(left(bench), 3 * LONG)
    assert about(peek(bench)[0], SHORT)
    assert peek(bench)[3] == b"newer"


def test_the_highest_fence_is_that_of_the_lock_or_of_what_is_kept(bench: Bench) -> None:
    fence, stays = void(bench)
    assert abs(fence - (bench.now() * 1000 - CACHE.horizon * 500)) < SLACK * 1000, "without a record: the clock floor"
    assert stays == 0
    bench.operator.say("SET", b"{n}:fence", b"%d" % (TOP - 1), "PX", LONG)
    assert void(bench) == [TOP - 1, 0]
    put(bench, TOP, b"value")
    fence, stays = void(bench)
    assert fence == TOP
    assert about(stays, LONG)
    assert peek(bench)[3] == b"value", "it was only asked"
    bench.operator.say("SET", b"{n}:fence", b"7", "PX", LONG)
    bench.operator.say("DEL", KEY)
    assert void(bench) == [7, 0], "a record counts, though it is below the clock floor"


def test_what_was_dropped_is_gone_and_so_is_what_comes_late_of_the_same_fence_or_a_lower_one(bench: Bench) -> None:
    put(bench, 5, b"value")
    void(bench, 7)
    assert peek(bench) == [0, 7]
    for fence in (5, 6, 7):
        assert put(bench, fence, b"late") == 0
    assert peek(bench) == [0, 7]
    assert put(bench, 8, b"new") == 1
    assert peek(bench)[3] == b"new"


def test_a_value_that_is_newer_than_the_note_stays(bench: Bench) -> None:
    put(bench, 8, b"new")
    void(bench, 7)
    assert peek(bench)[3] == b"new"
    void(bench, 8)
    assert peek(bench) == [0, 8]
    void(bench, 6)
    assert peek(bench) == [0, 8]


def test_a_note_stays_for_its_time_and_never_shorter_than_what_was_there(bench: Bench) -> None:
    void(bench, 7, LONG)
    assert about(left(bench), LONG)
    void(bench, 8, SHORT)
    assert about(left(bench), LONG)
    void(bench, 8, 3 * LONG)
    assert about(left(bench), 3 * LONG)
    put(bench, 9, b"new", SHORT)
    assert about(left(bench), 3 * LONG), "what replaces it hides older values as long as it would have"
    assert about(peek(bench)[0], SHORT)


def test_a_note_is_of_its_fence_to_the_last_digit(bench: Bench) -> None:
    void(bench, TOP - 1, 10**11)
    assert peek(bench) == [0, TOP - 1]
    assert about(left(bench), 10**11)
    assert put(bench, TOP - 1, b"late") == 0
    assert put(bench, TOP, b"new") == 1
