"""What a beat marks: the times of crontabs, without a beat."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from celery import Celery
from celery.schedules import crontab

from holdfast.integrations.celery_beat import due_times


@pytest.mark.parametrize(
    "fields, now, due, following",
    [
        ({}, "2026-11-23T05:25:40", "2026-11-23T05:25", "2026-11-23T05:26"),
        ({}, "2026-11-23T05:25:00", "2026-11-23T05:25", "2026-11-23T05:26"),
        ({"minute": "0", "hour": "3"}, "2026-11-23T02:59:59", "2026-11-22T03:00", "2026-11-23T03:00"),
        ({"minute": "0", "hour": "3"}, "2026-11-23T03:00:01", "2026-11-23T03:00", "2026-11-24T03:00"),
        ({"minute": "*/5"}, "2026-11-23T03:04:59", "2026-11-23T03:00", "2026-11-23T03:05"),
        ({"minute": "0", "hour": "9", "day_of_week": "mon-fri"}, "2026-11-22T12:00", "2026-11-20T09:00", "2026-11-23T09:00"),
        ({"minute": "0", "hour": "0", "day_of_month": "1"}, "2026-11-23T12:00", "2026-11-01T00:00", "2026-12-01T00:00"),
        (
            {"minute": "0", "hour": "0", "day_of_month": "29", "month_of_year": "2"},
            "2026-11-23T12:00",
            "2024-02-29T00:00",
            "2028-02-29T00:00",
        ),
    ],
)
def test_the_latest_time_of_a_crontab(fields: dict[str, Any], now: str, due: str, following: str) -> None:
    app = Celery("times")
    times = crontab(**fields, app=app, nowfun=lambda: datetime.fromisoformat(now).replace(tzinfo=UTC))
    found = due_times(times)
    assert [it.astimezone(UTC).strftime("%Y-%m-%dT%H:%M") for it in found] == [due, following]


def test_a_late_beat_means_the_same_time() -> None:
    """Whenever a beat asks between two times, it marks the first of them: another beat that asks later sends nothing."""
    app, asked = Celery("times"), datetime(2026, 11, 23, 3, tzinfo=UTC)
    marks = set()
    for minutes in range(0, 24 * 60, 7):
        now = asked + timedelta(minutes=minutes)
        marks.add(due_times(crontab(minute="0", hour="3", app=app, nowfun=lambda now=now: now))[0])
    assert len(marks) == 1
