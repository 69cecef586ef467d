"""request.lua where a conversation does not show it (tests/scripts/locks): two ways that are compared, all of a server's keys, errors.

Every test is a function of a bench alone.
"""

from __future__ import annotations

from collections.abc import Callable

import hiredis
import pytest
from scripts.bench import INBOXES, LONG, NAME, SLACK, Bench, Denied, Granted, K, about, keys


def somebody(bench: Bench, ticket: int) -> bytes:
    """A token of this ticket, always the same."""
    return b"%016d:%b:%08x" % (bench.base + ticket, INBOXES[1], 7)


SITUATIONS: dict[str, Callable[[Bench, bytes], object]] = {
    "as usual": lambda bench, name: None,
    "nearly run out": lambda bench, name: bench.operator.say("PEXPIRE", name, LONG // 3),
    "the record runs out before the lease": lambda bench, name: bench.operator.say("PEXPIRE", keys(name)[1], LONG // 3),
    "the record is gone": lambda bench, name: bench.operator.say("DEL", keys(name)[1]),
    "the record is lower": lambda bench, name: bench.operator.say("SET", keys(name)[1], bench.base, "PX", LONG),
    "the record is higher": lambda bench, name: bench.operator.say("SET", keys(name)[1], bench.base + 99, "PX", LONG),
    "a lower ticket waits": lambda bench, name: bench.request(somebody(bench, 1), name=name),
    "a higher ticket waits": lambda bench, name: bench.request(somebody(bench, 9), name=name),
    "the name is free": lambda bench, name: bench.operator.say("DEL", name),
    "another has it": lambda bench, name: bench.operator.say("SET", name, somebody(bench, 7), "PX", LONG),
    "another program has it": lambda bench, name: bench.operator.say("SET", name, b"value", "PX", LONG),
    "an operator took its expiry": lambda bench, name: bench.operator.say("SET", name, bench.see(name).holder or b""),
    "everything is gone": lambda bench, name: bench.operator.say("DEL", *keys(name)),
}


def test_a_renewal_that_expects_to_find_its_token_does_what_any_request_does(bench: Bench) -> None:
    # Rule C8.
    token = bench.token(5)
    for number, happens in enumerate(SITUATIONS.values()):
        for ttl, horizon in ((LONG, K), (LONG // 2, K), (2 * LONG, 2 * K)):
            told, seen = [], []
            for mode in "wk":
                name = b"%d-%d-%s" % (number, ttl, mode.encode())
                bench.request(token, LONG, name=name)
                happens(bench, name)
                told.append(bench.request(token, ttl, mode, K=horizon, name=name))
                seen.append(bench.see(name))
            one, other = told
            if isinstance(one, Denied) and isinstance(other, Denied):
                assert (one.place, one.holder) == (other.place, other.holder)
            else:
                assert one == other
            assert seen[0].timeless == seen[1].timeless
            for left in ("holder_left", "fence_left", "queue_left", "waiters_left"):
                assert abs(getattr(seen[0], left) - getattr(seen[1], left)) < SLACK, left


def test_who_tracks_the_name_of_a_foreign_holder_hears_when_it_goes(bench: Bench) -> None:
    bench.operator.say("SET", NAME, "foreign", "PX", LONG)
    bench.client.say("CLIENT", "TRACKING", "ON", "OPTIN", "NOLOOP")
    _, reply = bench.client.batch(("CLIENT", "CACHING", "YES"), bench.words(bench.token(1)))
    assert reply[0] == 0 and bench.client.heard() == []
    bench.operator.say("DEL", NAME)
    assert bench.client.heard() == [([NAME],)]


def test_names_do_not_meet(bench: Bench) -> None:
    names = (b"a\0b", b"\xff\xfe", bytes(range(1, 123)), b"{tag}", b"a{tag}b", b"{a}{b}", b"{", b"tag", b"n", b"z", b"{n}x")
    for number, name in enumerate(names):
        assert bench.request(bench.token(number), name=name) == Granted(bench.base + number, 0, 1)
        assert isinstance(bench.request(bench.token(100 + number), name=name), Denied)
    assert bench.operator.say("DBSIZE") == 4 * len(names)


def test_an_error_leaves_no_key_for_ever(bench: Bench) -> None:
    bench.operator.batch(("HSET", keys(NAME)[1], "no", "number"), ("PEXPIRE", keys(NAME)[1], LONG))
    with pytest.raises(hiredis.ReplyError, match="WRONGTYPE"):
        bench.request(bench.token(1))
    bench.mortal()
    assert about(bench.operator.say("PTTL", NAME), LONG)
