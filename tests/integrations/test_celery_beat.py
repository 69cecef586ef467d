"""What a beat marks, and what it sends: in this process, without a broker."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from celery import Celery
from celery.beat import Scheduler
from celery.schedules import crontab

from holdfast import Holdfast
from holdfast.embedded import Nodes
from holdfast.integrations.celery import setup
from holdfast.integrations.celery_beat import Leading, next_time


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


class Beat:
    """A beat in this process, with one entry, that notes what it sends."""

    def __init__(self, nodes: Nodes) -> None:
        self.sent: list[str] = []
        self.locks = Holdfast(*nodes.urls, ttl=4, node_timeout=0.2)
        app = Celery("proj", broker="memory://", set_as_current=False)
        app.conf.beat_schedule = {"nightly": {"task": "t", "schedule": 60.0}}
        setup(app, self.locks)
        sending = type("Sending", (Leading, Scheduler), {"send_task": lambda _, task, *__, **___: self.sent.append(task) or Sent()})
        self.scheduler = sending(app=app)

    def lead(self, patience: float = 20.0) -> None:
        until = time.monotonic() + patience
        while not self.scheduler._leads():
            assert time.monotonic() < until
            time.sleep(0.05)

    def due(self) -> None:
        """As if a minute had passed since its last run."""
        for entry in self.scheduler.schedule.values():
            entry.last_run_at = entry.default_now() - timedelta(seconds=61)
        self.scheduler._heap = None

    def tick(self, patience: float = 20.0) -> None:
        """Tick until the task is sent."""
        until = time.monotonic() + patience
        while not self.sent:
            assert time.monotonic() < until
            self.scheduler.tick()
            time.sleep(0.05)

    def close(self) -> None:
        self.scheduler.close()
        self.locks.close()


class Sent:
    id = "the message's id"


@pytest.fixture
def three() -> Iterator[Nodes]:
    with Nodes(3) as three:
        yield three


@pytest.fixture
def beat(three: Nodes) -> Iterator[Beat]:
    beat = Beat(three)
    beat.lead()
    yield beat
    beat.close()


def test_a_task_stays_due_while_no_majority_answers(three: Nodes, beat: Beat, caplog: pytest.LogCaptureFixture) -> None:
    beat.due()
    three.freeze(0)
    three.freeze(1)
    beat.scheduler.tick()
    assert "nightly stays due: " in caplog.text
    assert beat.sent == []
    three.thaw(0)
    three.thaw(1)
    beat.tick()
    assert beat.sent == ["t"]


def test_a_task_stays_due_if_another_beat_died_while_it_sent_it(beat: Beat, caplog: pytest.LogCaptureFixture) -> None:
    (entry,) = beat.scheduler.schedule.values()
    sending, dies = threading.Event(), threading.Event()

    def send() -> None:
        sending.set()
        dies.wait(20)
        raise ConnectionError

    def other() -> None:
        with pytest.raises(ConnectionError):
            beat.scheduler._mark(entry).run(send)

    dying = threading.Thread(target=other)
    dying.start()
    assert sending.wait(20)
    beat.due()
    beat.scheduler.tick()
    assert "nightly stays due: " in caplog.text
    assert beat.sent == []
    dies.set()
    dying.join()
    beat.tick()
    assert beat.sent == ["t"]
