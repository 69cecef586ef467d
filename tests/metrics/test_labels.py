"""Few values for a label, whatever the names of locks are."""

from __future__ import annotations

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.metrics import collapsed, first_part
from holdfast.metrics.labels import Limited


@pytest.mark.parametrize(
    "name, pattern",
    [
        ("order:4711:refund", "order:*:refund"),
        ("nightly report", "nightly report"),
        ("user-6b4c1a3e-5d1f-4f7e-9d0a-0123456789ab", "user-*"),
        ("blob/deadbeef01", "blob/*"),
        ("facade", "facade"),
        ("defaced-beef", "defaced-beef"),
        ("v2", "v*"),
        ("2026-11-23", "*-*-*"),
    ],
)
def test_what_varies_becomes_an_asterisk(name: str, pattern: str) -> None:
    assert collapsed(name) == pattern


@given(st.integers(min_value=0), st.uuids(), st.integers(min_value=0x10000000, max_value=2**64))
def test_names_that_differ_by_a_number_are_one_value(number: int, uuid: object, hexed: int) -> None:
    assert collapsed(f"job:{number}") == "job:*"
    assert collapsed(f"job:{uuid}") == "job:*"
    if any(it.isdigit() for it in f"{hexed:x}"):
        assert collapsed(f"job:{hexed:x}") == "job:*"


def test_the_first_part() -> None:
    assert first_part()("order:4711:refund") == "order"
    assert first_part("/")("a:b/c") == "a:b"
    assert first_part()("report") == "report"
    with pytest.raises(ValueError, match="separator is empty"):
        first_part("")


def test_too_many_values_are_one_value_and_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    limited = Limited(str.upper, 2)
    with caplog.at_level(logging.WARNING):
        told = [limited(name) for name in ("a", "b", "c", "a", "d", "b")]
    assert told == ["A", "B", "other", "A", "other", "B"]
    [record] = caplog.records
    assert record.message == (
        "names= has returned more than 2 different values: 'C' and all further ones are counted as 'other'. "
        "Let names= return fewer values, for example holdfast.metrics.collapsed, or raise most="
    )
