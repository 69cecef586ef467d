"""What an operator's scripts do to fence records that no clock allows, on every kind of server.

What else they do is in tests/contract/test_inspection.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from scripts.bench import INBOXES, LONG, NAME, Bench, Granted, K, about, keys, simulated
from scripts.faulty import planted
from scripts.rw_bench import rw_keys

from holdfast.scripts import FORCE_RELEASE, RW_FORCE_RELEASE, Script
from holdfast.testing.values import REDIS_7_2, VALKEY_9

FENCE, RFENCE = rw_keys(NAME)[1], rw_keys(NAME)[5]
BAD = (b"%d" % (2**53 - 3), b"9999999999999999", b"1e300", b"nan", b"no number")


def force(bench: Bench, only: bytes = b"", script: Script = FORCE_RELEASE) -> Any:
    return bench.operator.say("EVAL", script.source, 4, *keys(NAME), K, only)


def rw_force(bench: Bench, only: bytes = b"", script: Script = RW_FORCE_RELEASE) -> Any:
    return bench.operator.say("EVAL", script.source, 6, *rw_keys(NAME), only, K)


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


def test_whoever_waits_is_granted_what_is_above_every_fence_that_was_counted(bench: Bench) -> None:
    bench.connect(INBOXES[0])
    holder, waiter = bench.token(-(10**9)), bench.token(-(10**9) + 1)  # (tickets of now)
    bench.request(holder)
    bench.request(waiter)
    bench.operator.say("SET", FENCE, BAD[0], "PX", LONG)
    assert force(bench) == holder
    granted = bench.request(waiter)
    assert isinstance(granted, Granted)
    assert 0 <= granted.fence - (bench.now() + K - 5_000) * 1000 <= 5_001 * 1000
    assert bench.see().holder == waiter


def test_a_record_that_a_clock_allows_is_left_alone(bench: Bench) -> None:
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


TESTS: list[Callable[[Bench], None]] = [it for name, it in list(globals().items()) if name.startswith("test_")]

MUTANTS = {
    "repairs nothing": (FORCE_RELEASE, "if known and not", "if false and not"),
    "repairs what is right": (FORCE_RELEASE, "if known and not ((tonumber(known) or math.huge) <= most)", "if known"),
    "makes a record": (FORCE_RELEASE, "if known and not", "if not known or not"),
    "stumbles over what is no number": (FORCE_RELEASE, "or math.huge", "or 0"),
    "takes what is not a number for a small one": (
        FORCE_RELEASE,
        "not ((tonumber(known) or math.huge) <= most)",
        "(tonumber(known) or math.huge) > most",
    ),
    "repairs for whom it was not meant": (FORCE_RELEASE, "if only ~= '' and holder ~= only then return false end\n", ""),
    "below what was counted": (FORCE_RELEASE, "(now + K) * 1000", "now * 1000"),
    "keeps it too short": (FORCE_RELEASE, "text(most), 'PXAT', text(now + 2 * K)", "text(most), 'PXAT', text(now + K)"),
    "numbers as Lua writes them": (FORCE_RELEASE, "text(most), 'PXAT'", "most, 'PXAT'"),
    "repairs no writer's": (RW_FORCE_RELEASE, "{fence, rfence}", "{rfence}"),
    "repairs no reader's": (RW_FORCE_RELEASE, "{fence, rfence}", "{fence}"),
    "repairs a writer's for whom it was not meant": (RW_FORCE_RELEASE, "only == '' and call('GET', key)", "call('GET', key)"),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_script_with_a_fault_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    script, there, instead = MUTANTS[name]
    damaged = planted(script, there, instead)
    for act in (force, rw_force):
        if script is (act.__defaults__ or ())[1]:
            monkeypatch.setattr(act, "__defaults__", (b"", damaged))
    for dialect, now in ((VALKEY_9, 1_800_000_000.0), (REDIS_7_2, 1_800_000_000.0 - K / 1000)):  # (then a repaired record is 1.8e15)
        for test in TESTS:
            bench = simulated(dialect, now=now)
            try:
                test(bench)
            except Exception:
                return
            finally:
                bench.close()
    pytest.fail(f"no test has noticed: {name}")
