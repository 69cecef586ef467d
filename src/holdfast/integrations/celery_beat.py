"""Celery's beat on several hosts: one sends the tasks that are due, and the others stand by.

Knows Celery's schedulers and schedules, and the client for threads.
"""

from __future__ import annotations

import logging
import os
import socket
from datetime import UTC, datetime
from typing import Any

from celery import Celery
from celery.beat import PersistentScheduler, ScheduleEntry, Scheduler
from celery.schedules import crontab, schedule
from celery.utils.imports import load_extension_class_names, symbol_by_name

from .. import Leadership, Once
from ..errors import LockBusy, LockLost, NoQuorum, message_of
from .celery import LOGGER, client_of

__all__ = ["LeaderScheduler", "Leading"]

STANDBY = 1.0  # seconds between the tries of a beat that does not lead
PATIENCE = 1.0  # seconds to wait for another beat that sends the same task
SHORTEST = 600.0  # seconds for which it is known that an entry was sent


class Leading(Scheduler):  # type: ignore[misc]  # (Celery has no types)
    """Adds to a scheduler that only one beat sends the tasks that are due.

    `LeaderScheduler` adds it to the configured one. To change more of a scheduler, write it before
    that: `class Mine(Leading, DatabaseScheduler)`. If the beat that leads dies, another one takes
    over within the client's `ttl` and one second.

    Each due time is also marked on the nodes. So a beat that takes over sends nothing twice, even
    if its own record is old. An entry with an interval is sent at most once in each interval.
    """

    _term: Leadership | None = None

    def tick(self, *args: Any, **kwargs: Any) -> float:
        """Send what is due, if this beat leads.

        Args:
            args: As Celery passes them.
            kwargs: As Celery passes them.

        Returns:
            Seconds until the next call.
        """
        return float(super().tick(*args, **kwargs)) if self._leads() else STANDBY

    def apply_async(self, entry: ScheduleEntry, producer: Any = None, advance: bool = True, **kwargs: Any) -> Any:
        """Send the task of an entry, unless a beat has sent it for this time.

        Args:
            entry: The entry.
            producer: As Celery passes it.
            advance: Whether to note that the entry has run.
            kwargs: As Celery passes them.

        Returns:
            Celery's result. None if another beat has sent the task, or if the nodes cannot tell
            whether one has. Then the entry stays due.
        """
        sent: list[Any] = []

        def send() -> str:
            sent.append(super(Leading, self).apply_async(entry, producer, advance, **kwargs))
            return str(sent[0].id)

        try:
            self._mark(entry).run(send)
        except (LockBusy, NoQuorum) as error:
            if not sent:
                # Nobody knows whether it was sent: another beat that was sending it may have died.
                logging.getLogger(LOGGER).warning("%s stays due: %s", entry.name, message_of(error))
                self.schedule[entry.name], self._heap = entry, None
                return None
        if sent:
            return sent[0]
        logging.getLogger(LOGGER).debug("%s was sent by another beat", entry.name)
        if advance:
            self.reserve(entry)
        return None

    def close(self) -> None:
        """Stop, and let another beat lead at once."""
        self._resign()
        super().close()

    def _leads(self) -> bool:
        if self._term is not None and self._term.held:
            return True
        self._resign()
        myself = f"{socket.gethostname()}:{os.getpid()}"
        try:
            self._term = client_of(self.app).election(f"beat:{self.app.main}", myself, wait=0).campaign()
        except (LockBusy, NoQuorum):
            return False
        logging.getLogger(LOGGER).info("this beat leads, in term %d", self._term.term)
        return True

    def _resign(self) -> None:
        term, self._term = self._term, None
        if term is None:
            return
        try:
            term.resign()
        except LockLost as lost:
            logging.getLogger(LOGGER).warning("this beat leads no longer, and stands by: %s", lost.message)

    def _mark(self, entry: ScheduleEntry) -> Once:
        """What is done once for an entry and the time at which it is due."""
        locks, times, name = client_of(self.app), entry.schedule, f"beat:{self.app.main}:{entry.name}"
        if isinstance(times, crontab):
            # A time that is due is marked by the next one: that is the same for a beat that comes late.
            left, following = next_time(times)
            return locks.once(f"{name}<{following:%Y-%m-%dT%H:%MZ}", keep=left + SHORTEST, wait=PATIENCE)
        # The times of other kinds of schedules are not known. They run at most once in a minute.
        period = times.seconds if isinstance(times, schedule) else 60.0
        return locks.once(name, keep=max(SHORTEST, 2 * period), per=period, wait=PATIENCE)


def LeaderScheduler(app: Celery, *args: Any, **kwargs: Any) -> Leading:
    """Make the configured scheduler, for several beats of which one leads.

    Start it with `celery -A proj beat -S holdfast.integrations.celery_beat:LeaderScheduler`. The
    setting `beat_scheduler` says which scheduler that is: Celery's own by default, or such as
    "django_celery_beat.schedulers:DatabaseScheduler". Give each beat a file of its own
    (`--schedule`).

    Args:
        app: The application.
        args: As Celery passes them.
        kwargs: As Celery passes them.

    Returns:
        The scheduler.
    """
    names = dict(load_extension_class_names("celery.beat_schedulers"))
    named = symbol_by_name(app.conf.beat_scheduler, aliases=names)
    inner = PersistentScheduler if named is LeaderScheduler else named
    made: Leading = type("LeaderScheduler", (Leading, inner), {})(app, *args, **kwargs)
    return made


def next_time(times: crontab) -> tuple[float, datetime]:
    """Return the seconds until a crontab is due next, and that time, in UTC."""
    # Celery 5.4 takes the hours of a crontab in the time zone of this moment, and not in its own.
    now = times.maybe_make_aware(times.now()).astimezone(times.tz)
    start, step, _ = times.remaining_delta(now)
    found: datetime = (start + step).astimezone(UTC)
    return (found - now).total_seconds(), found
