"""A beat whose schedule is in a database, as django-celery-beat has it: of several, one sends what is due."""

from __future__ import annotations

import os

import django
from django.conf import settings

settings.configure(
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": os.environ["SCHEDULE"], "OPTIONS": {"timeout": 30}}},
    INSTALLED_APPS=["django_celery_beat"],
    TIME_ZONE="Europe/Berlin",
    USE_TZ=True,
)
django.setup()

from django_celery_beat.models import IntervalSchedule, PeriodicTask  # noqa: E402 (after the settings)
from django_celery_beat.schedulers import DatabaseScheduler  # noqa: E402, F401 (after the settings; what `beat_scheduler` names)

if __name__ == "__main__":
    from django.core.management import call_command

    call_command("migrate", verbosity=0)
    each, _ = IntervalSchedule.objects.get_or_create(every=1, period=IntervalSchedule.SECONDS)
    PeriodicTask.objects.create(name="tick", task="proj.tick", interval=each)
