"""Durations and rates as people type them."""

from __future__ import annotations

import pytest

from holdfast import ConfigError
from holdfast.cli.durations import rate_of, seconds_of, slot_of, told

READ = {
    "90": 90.0, "1.5s": 1.5, ".5": 0.5, "250ms": 0.25, "10m": 600.0, "1h": 3600.0, "2d": 172800.0, "1w": 604800.0, " 30s ": 30.0, "0": 0.0,
}  # fmt: skip


@pytest.mark.parametrize("text", READ)
def test_a_duration_is_read(text: str) -> None:
    assert seconds_of(text) == pytest.approx(READ[text])


@pytest.mark.parametrize("text", ["", "soon", "-1", "1 h", "1y", "1h30m", "1e3", "inf", "nan", "1.", "٣", "10M"])
def test_what_is_no_duration_is_refused_with_examples(text: str) -> None:
    with pytest.raises(ConfigError, match=r"is no duration\. Write 30, 30s, 250ms, 10m, 2h or 1d"):
        seconds_of(text)


def test_a_slot_may_be_of_the_calendar() -> None:
    assert [slot_of(it) for it in ("hour", "day", "week", "month", "5m")] == ["hour", "day", "week", "month", 300.0]
    with pytest.raises(ConfigError):
        slot_of("year")


def test_a_rate_is_read() -> None:
    assert rate_of("10/1m") == (10, 60.0)
    assert rate_of("5/s") == (5, 1.0)
    assert rate_of("3/90") == (3, 90.0)
    for wrong in ("10", "/s", "x/s", "-1/s", "10/", "1.5/s", "10/soon"):
        with pytest.raises(ConfigError):
            rate_of(wrong)


SHOWN = {0: "0 ms", 0.999: "999 ms", 1: "1 s", 1.04: "1 s", 4.2: "4.2 s", 119.9: "119.9 s", 120: "2 min", 7199: "120 min", 7200: "2.0 h"}


@pytest.mark.parametrize("seconds", SHOWN)
def test_seconds_are_told_to_people(seconds: float) -> None:
    assert told(seconds) == SHOWN[seconds]
