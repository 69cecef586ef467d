"""The script that looks at a semaphore's permits, on simulated and on real servers."""

from __future__ import annotations

from typing import Any

from scripts.bench import Bench, about, spoken

from holdfast.operations.inspection import commands as inspection
from holdfast.protocol.semaphore import Slots
from holdfast.scripts import PERMITS

POOL = Slots("pool", 12, 1, 10.0, prefix="app:", horizon=16_000)


def look(bench: Bench, permits: int = 12) -> Any:
    """What the node answers."""
    bench.load(PERMITS)
    before = bench.operator.say("SCAN", 0, "COUNT", 1000)
    answer = bench.client.say(*spoken(inspection.permits(POOL.key, permits)))
    assert sorted(bench.operator.say("SCAN", 0, "COUNT", 1000)[1]) == sorted(before[1]), "it changes nothing"
    return answer


def test_what_nobody_holds_is_left_out(bench: Bench) -> None:
    assert look(bench) == []


def test_each_slot_is_told_with_its_holder_and_for_how_long(bench: Bench) -> None:
    for slot in (0, 7, 11):
        bench.operator.say("SET", POOL[slot].name, b"holder %d" % slot, "PX", 30_000)
    answer = look(bench)
    assert (answer[::3], answer[1::3]) == ([0, 7, 11], [b"holder 0", b"holder 7", b"holder 11"])
    assert all(about(left, 30_000) for left in answer[2::3])
    assert look(bench, 8)[::3] == [0, 7], "no more than were asked for"


def test_a_stranger_s_value_is_cut_and_may_stay_for_ever(bench: Bench) -> None:
    bench.operator.say("SET", POOL[2].name, b"x" * 1000)
    assert look(bench) == [2, b"x" * 256, -1]
