"""What an operator's scripts do to fence records that no clock allows, on every kind of server.

What else they do is in tests/contract/test_inspection.py.
"""

from __future__ import annotations

from contextlib import closing
from typing import Any

from scripts.bench import INBOXES, LONG, NAME, Bench, Granted, K, about, keys, simulated
from scripts.dialects import REDIS_7_2
from scripts.rw_bench import rw_keys

from holdfast.scripts import FORCE_RELEASE, RW_FORCE_RELEASE

FENCE, RFENCE = rw_keys(NAME)[1], rw_keys(NAME)[5]
BAD = (b"%d" % (2**53 - 3), b"9999999999999999", b"1e300", b"nan", b"no number")


def force(bench: Bench, only: bytes = b"") -> Any:
    return bench.operator.say("EVAL", FORCE_RELEASE.source, 4, *keys(NAME), K, only)


def rw_force(bench: Bench, only: bytes = b"") -> Any:
    return bench.operator.say("EVAL", RW_FORCE_RELEASE.source, 6, *rw_keys(NAME), only, K)


def repaired(bench: Bench, key: bytes = FENCE) -> bool:
    """Is the record as late as any that is counted can be, and no later?"""
    value, left = bench.operator.batch(("GET", key), ("PTTL", key))
    ahead = int(value) - bench.now() * 1000
    return (K - 5_000) * 1000 < ahead <= K * 1000 and about(left, 2 * K)


def test_a_record_that_no_clock_allows_is_repaired(bench: Bench) -> None:
    # Rule F7.
    for bad in BAD:
        bench.operator.say("SET", FENCE, bad, "PX", LONG)
        assert force(bench) is None, "nobody held it"
        assert repaired(bench), bad


def test_a_record_that_is_round_is_written_in_digits() -> None:
    # Of 1.8e15, Lua writes no more than that on some servers.
    with closing(simulated(REDIS_7_2, now=1_800_000_000.0 - K / 1000)) as bench:
        test_a_record_that_no_clock_allows_is_repaired(bench)


def test_whoever_waits_is_granted_what_is_above_every_fence_that_was_counted(bench: Bench) -> None:
    bench.connect(INBOXES[0])
    holder, waiter = bench.token(-(10**9)), bench.token(-(10**9) + 1)  # (tickets of now)
    bench.request(holder)
    bench.request(waiter, ttl=4 * K)
    bench.operator.say("SET", FENCE, BAD[0], "PX", LONG)
    assert force(bench) == holder
    assert about(bench.see().holder_left, 2 * K), "no longer than any lease may"
    granted = bench.request(waiter)
    assert isinstance(granted, Granted)
    assert 0 <= granted.fence - (bench.now() + K - 5_000) * 1000 <= 5_001 * 1000
    assert bench.see().holder == waiter


def test_a_record_that_a_clock_allows_is_left_alone(bench: Bench) -> None:
    # Rule F7.
    for record in (bench.now() * 1000, (bench.now() + K) * 1000):
        bench.operator.say("SET", FENCE, record, "PX", LONG)
        assert force(bench) is None and rw_force(bench) is None
        assert int(bench.operator.say("GET", FENCE)) == record
    bench.operator.say("DEL", FENCE)
    assert force(bench) is None and rw_force(bench) is None
    assert bench.operator.say("EXISTS", FENCE, RFENCE) == 0, "nor is one made where none was"


def test_nothing_is_done_where_it_is_not_the_one_who_was_meant(bench: Bench) -> None:
    for act in (force, rw_force):
        bench.operator.say("SET", FENCE, BAD[0], "PX", LONG)
        assert act(bench, b"another") is None
        assert bench.operator.say("GET", FENCE) == BAD[0]


def test_both_records_of_a_read_write_lock_are_repaired(bench: Bench) -> None:
    for bad in BAD:
        for key in (FENCE, RFENCE):
            bench.operator.say("SET", key, bad, "PX", LONG)
        assert rw_force(bench) is None
        assert repaired(bench) and repaired(bench, RFENCE), bad
