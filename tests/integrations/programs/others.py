"""The same task, refused where it is sent by holdfast and by two other libraries."""

from __future__ import annotations

import time

from celery_once import QueueOnce
from celery_singleton import Singleton
from proj import app
from record import note

from holdfast.integrations.celery import Unique

settings = {"url": app.conf.broker_url, "default_timeout": 3600}
app.conf.ONCE = {"backend": "celery_once.backends.Redis", "settings": settings}


def body(library, seconds):
    note("begin", library)
    time.sleep(seconds)


BASES = {
    "holdfast": {"base": Unique},
    "celery-once": {"base": QueueOnce, "once": {"graceful": True}},
    "celery-singleton": {"base": Singleton},
}
tasks = {name: app.task(name=f"others.{name}", **options)(body) for name, options in BASES.items()}
