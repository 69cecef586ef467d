"""The memory in which a process notes what its guardian has to release, and how the guardian reads it."""

from __future__ import annotations

import os

import pytest

from holdfast.drivers.guardian import program
from holdfast.drivers.guardian.keeper import Keeper
from holdfast.drivers.guardian.records import GRAIN, LATE, MOST, Records

pytestmark = pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="Linux has memory that is a file")


def recorded(records: Records) -> list[bytes]:
    return program._recorded(records.file).get(7, [])


def test_what_is_dropped_counts_for_some_records_more() -> None:
    records = Records("test")
    places = [records.write(7, b"%d" % it) for it in range(LATE + 3)]
    records.drop(places[0])
    assert recorded(records) == [b"%d" % it for it in range(LATE + 3)], "its release may not have left yet"
    for it in places[1 : LATE + 1]:
        records.drop(it)
    assert recorded(records) == [b"%d" % it for it in range(1, LATE + 3)], "the oldest has left long ago"
    assert records.write(7, b"again") == places[0], "its place is used again"
    records.clear(places[-1])
    assert recorded(records) == [b"again", *[b"%d" % it for it in range(1, LATE + 2)]]


def test_a_record_that_was_being_written_does_not_count() -> None:
    records = Records("test")
    places = [records.write(7, it * 300) for it in (b"a", b"b", b"c")]
    records._map[places[1]] = 0  # (the first byte is written last)
    records._map[places[1] + 4 : places[1] + 8] = b"\xff" * 4
    assert recorded(records) == [b"a" * 300, b"c" * 300]


def test_there_is_room_for_so_much() -> None:
    records = Records("test", GRAIN * 4)
    assert records.write(7, b"x" * GRAIN * MOST) == 0, "longer than a record can be"
    first = records.write(7, b"x")
    assert records.write(7, b"y" * GRAIN)
    assert records.write(7, b"z") == 0
    records._growing.acquire()  # (a handler of a signal interrupts the one that writes)
    records.drop(first)
    assert records.write(7, b"z") == first
    assert recorded(records) == [b"z", b"y" * GRAIN]


def test_a_process_with_too_many_locks_is_told_so_once(caplog: pytest.LogCaptureFixture) -> None:
    keeper = Keeper("test")
    keeper.full()
    keeper.full()
    assert [it.message.startswith("this process has more locks than its guardian has room for") for it in caplog.records] == [True]
