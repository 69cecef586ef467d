"""Schedules: which moments lie in one slot, what a slot is called, and what cannot be a schedule."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo, available_timezones

import pytest

from holdfast.errors import ConfigError
from holdfast.face.schedule import CALENDAR, EPOCH, SECOND, Schedule, schedule

BERLIN = "Europe/Berlin"
HOUR = timedelta(hours=1)


def made(per: Any, zone: str | None = None, slack: Any = None) -> Schedule:
    found = schedule(per, zone, slack)
    assert found is not None
    return found


def micros(time: datetime) -> int:
    return (time - EPOCH) // timedelta(microseconds=1)


def at(year: int, month: int, day: int, hour: int = 0, minute: int = 0, zone: str = BERLIN, fold: int = 0) -> int:
    return micros(datetime(year, month, day, hour, minute, tzinfo=ZoneInfo(zone), fold=fold))


def test_nothing_that_is_scheduled_has_no_slots() -> None:
    assert schedule(None, None, None) is None


def test_slots_of_equal_length() -> None:
    hourly = made(timedelta(hours=1))
    assert (hourly.per, hourly.zone, hourly.slack, hourly.longest) == (3600.0, None, 10.0, 3600.0)
    assert [hourly.of(it) for it in (-1, 0, 3600 * SECOND - 1, 3600 * SECOND)] == ["3600s -1", "3600s 0", "3600s 0", "3600s 1"]
    assert made(0.001).of(1999) == "0.001s 1"
    assert len({made(it).of(0) for it in (1, 2, 0.5, 1e8, 99999999.5, 12345678.123456)}) == 6, "schedules share no slots"


def test_a_moment_shortly_before_a_slot_may_count_for_it() -> None:
    minutes = made(60)
    assert minutes.slack == 6.0
    before, after = 54 * SECOND - 1, 54 * SECOND
    assert [minutes.of(it) for it in (before, after)] == ["60s 0", "60s 0"], "a time that is named is exact"
    assert [minutes.of(it, early=True) for it in (before, after)] == ["60s 0", "60s 1"]
    assert made(60, slack=0).of(60 * SECOND - 1, early=True) == "60s 0"
    assert made(60, slack=timedelta(seconds=30)).of(30 * SECOND, early=True) == "60s 1"
    assert made(0.001).of(899, early=True) == "0.001s 0"
    assert made(0.001).of(900, early=True) == "0.001s 1"
    night = made("day", BERLIN)
    assert night.slack == 10.0
    assert night.of(at(2026, 11, 23) - 10 * SECOND, early=True) == f"day 2026-11-23 {BERLIN}"
    assert night.of(at(2026, 11, 23) - 10 * SECOND - 1, early=True) == f"day 2026-11-22 {BERLIN}"


def test_days_weeks_and_months_of_a_zone() -> None:
    moment = at(2026, 11, 1, 0, 30)  # a Sunday; in UTC still the day before
    assert made("day", BERLIN).of(moment) == f"day 2026-11-01 {BERLIN}"
    assert made("week", BERLIN).of(moment) == f"week 2026-10-26 {BERLIN}"
    assert made("month", BERLIN).of(moment) == f"month 2026-11 {BERLIN}"
    slots = [made(it).of(moment) for it in CALENDAR]
    assert slots == ["hour 2026-10-31T23+00:00 UTC", "day 2026-10-31 UTC", "week 2026-10-26 UTC", "month 2026-10 UTC"]
    assert made("week").of(micros(datetime(2026, 11, 2, tzinfo=UTC))) == "week 2026-11-02 UTC", "a week begins on Monday"


@pytest.mark.parametrize("month, day, hours", [(3, 29, 23), (10, 25, 25)])
def test_a_daily_run_is_in_the_slot_of_its_day_when_clocks_change(month: int, day: int, hours: int) -> None:
    """At half past one, which is 0:30 by UTC in winter and 23:30 of the day before in summer."""
    daily, days = made("day", BERLIN), range(day - 2, day + 3)
    runs = [at(2026, month, it, 1, 30) for it in days]
    assert [daily.of(it) for it in runs] == [f"day 2026-{month:02}-{it:02} {BERLIN}" for it in days]
    lengths = [made(86400).of(it) for it in runs]
    assert (len(set(lengths)) < 5) is (hours == 23), "(in spring, equal lengths skip one)"
    begins = at(2026, month, day)
    ends = begins + hours * 3600 * SECOND
    assert daily.of(begins - 1) != daily.of(begins) == daily.of(ends - 1) != daily.of(ends)


def test_an_hour_that_comes_twice_is_in_one_day() -> None:
    for per in CALENDAR:
        twice = {made(per, BERLIN).of(at(2026, 10, 25, 2, 30, fold=it)) for it in (0, 1)}
        assert len(twice) == (2 if per == "hour" else 1), per


def test_hours_are_those_of_a_zone() -> None:
    moment = micros(datetime(2026, 11, 1, 12, 45, tzinfo=UTC))
    assert made("hour").of(moment) == "hour 2026-11-01T12+00:00 UTC"
    hourly = made("hour", "Asia/Kolkata")
    slots = [hourly.of(moment + minutes * 60 * SECOND) for minutes in (-16, -15, 44, 45)]
    assert slots == [f"hour 2026-11-01T{it}+05:30 Asia/Kolkata" for it in (17, 18, 18, 19)]
    assert (hourly.longest, hourly.slack) == (3600.0, 10.0)


@pytest.mark.parametrize("per", CALENDAR)
def test_no_slot_lasts_longer_than_is_said(per: str) -> None:
    """In any zone that clocks of today follow; the day has a name for as long as it lasts, and no longer."""
    for zone in sorted(available_timezones() & {BERLIN, "Antarctica/Troll", "Australia/Lord_Howe", "America/Havana", "Asia/Tokyo"}):
        found = made(per, zone)
        assert found.longest == CALENDAR[per]
        begins: dict[str, int] = {}
        for it in range(24 * 400):
            begins.setdefault(found.of(micros(datetime(2026, 1, 1, tzinfo=UTC) + it * HOUR)), it)
        longest = max(after - before for before, after in pairwise(list(begins.values())[1:]))
        assert longest * 3600 <= found.longest, zone


def test_slots_of_different_schedules_have_different_names() -> None:
    monday = at(2026, 6, 1)
    names = [made(per, zone).of(monday) for per in CALENDAR for zone in (BERLIN, "Europe/Paris")] + [made(86400).of(monday)]
    assert len(set(names)) == 2 * len(CALENDAR) + 1


@pytest.mark.parametrize(
    "arguments, told",
    [
        ((None, "UTC", None), "zone= belongs to a schedule: without `per=`"),
        ((None, None, 1), "slack= belongs to a schedule: without `per=`"),
        ((60, "UTC", None), "zone= belongs to a calendar"),
        (("year", None, None), "'hour', 'day', 'week' or 'month', not 'year'"),
        (("day", "Europe/Bremen", None), "knows no time zone 'Europe/Bremen'.*tzdata"),
        (("day", "", None), "knows no time zone ''"),
        (("day", "../../etc/passwd", None), "knows no time zone"),
        (("day", "Europe", None), "knows no time zone"),
        (("day", "a\0b", None), "knows no time zone"),
        (("day", "\ud800", None), "knows no time zone"),
        (("day", 5, None), "zone is the name of a time zone, such as 'Europe/Berlin', not 5"),
        (("day", UTC, None), "zone is the name of a time zone"),
        ((60, None, 30.5), "slack is from 0 to 30 seconds"),
        ((60, None, -1), "slack is"),
        ((0, None, None), "per is"),
        ((1e9, None, None), "per is"),
    ],
)
def test_what_is_no_schedule(arguments: tuple[Any, Any, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        schedule(*arguments)


def test_a_calendar_has_days_of_the_years_1_to_9999() -> None:
    for seconds in (-(10**11), 10**12):
        with pytest.raises(ConfigError, match="outside the years 1 to 9999"):
            made("day").of(seconds * SECOND)
    assert made("day").of(micros(datetime(1, 1, 1, tzinfo=UTC))) == "day 0001-01-01 UTC"
    with pytest.raises(ConfigError, match="outside the years"):
        made("day", "America/New_York").of(micros(datetime(1, 1, 1, tzinfo=UTC)))


def test_utc_needs_no_data_about_zones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "zoneinfo", None)
    assert made("day").of(0) == made("day", "UTC").of(0) == "day 1970-01-01 UTC"
