"""A Celery application, whose broker delivers a message again after some seconds, even while its task runs."""

from __future__ import annotations

import os
import time

from celery import Celery, signals
from record import note

from holdfast import Holdfast, current
from holdfast.integrations.celery import Unique, once, setup, single

app = Celery("proj", broker=os.environ["BROKER"], backend=os.environ["BROKER"])
app.conf.update(
    broker_transport_options={
        "visibility_timeout": int(os.environ.get("VISIBLE_AFTER", "5")),
        # Newer brokers' clients look for such messages as often as these say. All look when a worker starts.
        "unacked_restore_interval": 2,
        "unacked_restore_throttle": 1,
    },
    broker_connection_retry_on_startup=True,
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    worker_prefetch_multiplier=1,
    worker_hijack_root_logger=False,
    holdfast_ttl="2",
    holdfast_max_ttl=4,
    timezone="Europe/Berlin",
)
setup(app)
if entries := os.environ.get("BEAT"):
    app.conf.beat_schedule = {"tick": {"task": "proj.tick", "schedule": float(entries)}}
    app.conf.beat_max_loop_interval = 1
app.conf.beat_scheduler = os.environ.get("SCHEDULER", app.conf.beat_scheduler)


@app.task
def bare(seconds):
    return work("bare", seconds)


@app.task
@once(keep=7200, countdown=1)
def mailing(seconds):
    return work("mailing", seconds)


@app.task(bind=True, max_retries=1)
@single("feed:{number}", countdown=0.3)
def feed(self, number):
    note("enter", number)
    time.sleep(0.01)
    note("leave", number)
    return number


@app.task(ignore_result=True)
@single("burst:{name}")
def burst(name, number, seconds):
    time.sleep(seconds)
    note("done", name, number)


@signals.task_prerun.connect
def _delivered(task, args, **_):
    if task.name == "proj.burst":
        note("delivered", *args[:2])


@app.task
@single("limited", countdown=0.3)
def limited(seconds):
    return work("limited", seconds)


@app.task
@single("skipped", busy="skip")
def skipping(seconds):
    return work("skipping", seconds)


@app.task
@single("raised", busy="raise")
def raising(seconds):
    return work("raising", seconds)


@app.task(ignore_result=True)
@single("aborted", abort=True, max_hold=float(os.environ.get("MAX_HOLD", "1")))
def aborted():
    note("begun")
    try:
        time.sleep(20)
    finally:
        note("interrupted", current().fence)


@app.task(bind=True, max_retries=2)
@once(keep=7200, countdown=1)
def daily(self, number):
    return work("daily", 0)


@app.task(bind=True, max_retries=2)
@single("charging")
def charging(self):
    note("charged")
    with Holdfast("redis://127.0.0.1:1").lock("elsewhere", wait=0):
        pass


def without_wraps(body):
    def run(seconds):
        return body(seconds)

    return run


@app.task(name="proj.hidden")
@without_wraps
@once(keep=7200, countdown=1)
def hidden(seconds):
    return work("hidden", seconds)


@app.task(base=Unique, bind=True, unique="feed:{name}", max_retries=1, default_retry_delay=1)
def unique(self, name, seconds, fails=0):
    note("begin", name, self.request.id)
    time.sleep(seconds)
    if self.request.retries < fails:
        raise self.retry(exc=ValueError(name))
    return name


@app.task(base=Unique, unique_until="started", unique_busy="raise")
def starting(seconds):
    return work("starting", seconds)


@app.task(base=Unique, unique_until=4, unique_on_failure="keep")
def timed(fails):
    note("begin", "timed")
    return 1 / (not fails)


@app.task(base=Unique, unique_on_failure="keep", unique_keep=4)
@single("kept")
def kept(fails):
    note("begin", "kept")
    return 1 / (not fails)


@app.task
def tick():
    note("tick")


def work(name, seconds):
    note("begin", name)
    time.sleep(seconds)
    note("end", name)
    return f"{name}:{os.getpid()}"
