"""Schedules with slots: equal lengths of time, or hours, days, weeks and months of a
calendar.

Knows calendars and time zones. Must not know what time it is, or what is done in a slot.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Literal

from .. import checks
from ..checks import Seconds
from ..errors import ConfigError

Calendar = Literal["hour", "day", "week", "month"]
SHORTEST = 0.001  # seconds
LONGEST = 1e8  # seconds
SECOND = 1_000_000  # microseconds
HOUR = 3600.0  # seconds

# How long a slot of a calendar can last, in seconds. The two hours are for clocks that are set
# back: no zone sets them back by more.
CALENDAR = {"hour": HOUR, "day": 26 * HOUR, "week": (7 * 24 + 2) * HOUR, "month": (31 * 24 + 2) * HOUR}
_WORDS = "'hour', 'day', 'week' or 'month'"
SLACK = 10.0  # seconds: the most that a default has
EPOCH = datetime.fromtimestamp(0, UTC)


@dataclass(frozen=True, slots=True)
class Schedule:
    """How time is divided into slots.

    Attributes:
        per: The length of a slot in seconds, or "hour", "day", "week" or "month".
        zone: The name of the zone whose calendar counts; None for slots of equal length.
        slack: By how many seconds a slot begins early for callers that do not name a time.
        longest: How long a slot can last, in seconds.
    """

    per: float | str
    zone: str | None
    slack: float
    longest: float
    _clock: tzinfo

    def of(self, micros: int, early: bool = False) -> str:
        """The slot that a moment lies in, as text that no other slot has.

        Args:
            micros: Microseconds since 1970, UTC.
            early: Count a moment within `slack` before the next slot as part of that slot.

        Raises:
            ConfigError: The calendar has no such day.
        """
        if early:
            micros += round(self.slack * SECOND)
        if not isinstance(self.per, str):
            return f"{checks.number(self.per)}s {micros // round(self.per * SECOND)}"
        try:
            moment = (EPOCH + timedelta(microseconds=micros)).astimezone(self._clock)
        except (OverflowError, ValueError):
            raise ConfigError(
                f"{micros // SECOND} seconds since 1970 is outside the years 1 to 9999, "
                "and only these have days, weeks and months"
            ) from None
        if self.per == "hour":
            # With the offset from UTC, which tells the two hours apart that clocks show twice.
            return f"hour {moment.isoformat(timespec='hours')} {self.zone}"
        day = moment.date()
        if self.per == "month":
            return f"month {day.isoformat()[:7]} {self.zone}"
        if self.per == "week":
            day -= timedelta(days=day.weekday())
        return f"{self.per} {day} {self.zone}"


def schedule(per: Seconds | str | None, zone: str | None, slack: Seconds | None) -> Schedule | None:
    """Check how a schedule divides time.

    Args:
        per: Seconds, a timedelta, "hour", "day", "week" or "month"; None if nothing is scheduled.
        zone: The name of a time zone, for calendars only (default: "UTC").
        slack: Seconds (default: a tenth of a slot, and at most 10 s).

    Returns:
        The schedule, or None if `per` is None.

    Raises:
        ConfigError: An argument is wrong, or belongs to another one that is missing.
    """
    if per is None:
        for value, what in ((zone, "zone"), (slack, "slack")):
            if value is not None:
                raise ConfigError(f"{what}= belongs to a schedule: without `per=` there are no slots")
        return None
    if not isinstance(per, str):
        if zone is not None:
            raise ConfigError(
                f"zone= belongs to a calendar: it needs per={_WORDS}. Slots of a number of seconds have no zone"
            )
        length = checks.seconds(per, "per", least=SHORTEST, most=LONGEST)
        length = round(length * SECOND) / SECOND
        return Schedule(length, None, _slack(slack, length), length, UTC)
    if per not in CALENDAR:
        raise ConfigError(f"per is a number of seconds, a timedelta, {_WORDS}, not {checks.shown(per)}")
    name = "UTC" if zone is None else zone
    return Schedule(per, name, _slack(slack, CALENDAR[per]), CALENDAR[per], _clock(name))


def _slack(slack: Seconds | None, length: float) -> float:
    # More than half a slot would put late callers into the slot after theirs.
    return min(length / 10, SLACK) if slack is None else checks.seconds(slack, "slack", most=length / 2)


def _clock(zone: object) -> tzinfo:
    if zone == "UTC":
        return UTC
    if not isinstance(zone, str):
        raise ConfigError(f"zone is the name of a time zone, such as 'Europe/Berlin', not {checks.shown(zone)}")
    # Most programs never need a calendar.
    from zoneinfo import ZoneInfo

    try:
        return ZoneInfo(zone)
    except (LookupError, ValueError, OSError) as error:
        raise ConfigError(
            f"this machine knows no time zone {checks.shown(zone)}: write a name such as 'Europe/Berlin'. "
            "A machine that knows no zones at all needs the package tzdata"
        ) from error
