"""What a beat marks: the times of crontabs, without a beat."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from celery import Celery
from celery.schedules import crontab

from holdfast.integrations.celery_beat import next_time


def asked(now: datetime, zone: str = "UTC", **fields: Any) -> tuple[float, datetime]:
    return next_time(crontab(**fields, app=Celery("times", set_as_current=False, timezone=zone), nowfun=lambda: now))


@pytest.mark.parametrize(
    "fields, now, following",
    [
        ({}, "2026-11-23T05:25:40", "2026-11-23T05:26"),
        ({}, "2026-11-23T05:25:00", "2026-11-23T05:26"),
        ({"minute": "0", "hour": "3"}, "2026-11-23T02:59:59", "2026-11-23T03:00"),
        ({"minute": "0", "hour": "3"}, "2026-11-23T03:00:01", "2026-11-24T03:00"),
        ({"minute": "*/5"}, "2026-11-23T03:04:59", "2026-11-23T03:05"),
        ({"minute": "0", "hour": "9", "day_of_week": "mon-fri"}, "2026-11-22T12:00:00", "2026-11-23T09:00"),
        ({"minute": "0", "hour": "0", "day_of_month": "1"}, "2026-11-23T12:00:00", "2026-12-01T00:00"),
        ({"minute": "0", "hour": "0", "day_of_month": "29", "month_of_year": "2"}, "2026-11-23T12:00:00", "2028-02-29T00:00"),
    ],
)
def test_the_next_time_of_a_crontab(fields: dict[str, Any], now: str, following: str) -> None:
    moment = datetime.fromisoformat(now).replace(tzinfo=UTC)
    left, found = asked(moment, **fields)
    assert f"{found:%Y-%m-%dT%H:%M}" == following
    assert moment + timedelta(seconds=left) == found


@pytest.mark.parametrize("hours", [23, 24, 25])
def test_a_late_beat_means_the_same_time(hours: int) -> None:
    """Whenever a beat asks between two times, the next one is the same: another beat that asks later sends nothing.

    In Berlin a day has 23 hours when summer time begins, and 25 when it ends.
    """
    day = {23: (2026, 3, 29), 24: (2026, 11, 23), 25: (2026, 10, 25)}[hours]
    began = datetime(*day, 3, tzinfo=ZoneInfo("Europe/Berlin")) - timedelta(days=1)
    found = set()
    for minutes in range(0, hours * 60, 7):
        now = began.astimezone(UTC) + timedelta(minutes=minutes)
        left, following = asked(now, "Europe/Berlin", minute="0", hour="3")
        found.add(following)
        assert now + timedelta(seconds=left) == following
    assert len(found) == 1
    assert found == {began.astimezone(UTC) + timedelta(hours=hours)}
