"""The same short task of few names, one at a time for each name: with holdfast, and with what others have for it.

`python bursts.py CONTENDER MESSAGES NAMES SECONDS` sends the messages. What is refused is sent again, until it is taken.
"""

from __future__ import annotations

import os
import sys
import time

from celery import Celery
from celery_once import AlreadyQueued, QueueOnce
from celery_singleton import DuplicateTaskError, Singleton
from record import note
from redis import Redis
from rq import Queue, RateLimit

from holdfast.integrations.celery import setup, single

app = Celery("bursts", broker=os.environ["BROKER"], backend=os.environ["BROKER"])
app.conf.update(broker_connection_retry_on_startup=True, task_acks_late=True, worker_prefetch_multiplier=1)
app.conf.ONCE = {"backend": "celery_once.backends.Redis", "settings": {"url": app.conf.broker_url, "default_timeout": 3600}}
setup(app)


def burst(name, number, seconds):
    note("begin", name, number)
    time.sleep(seconds)
    note("done", name, number)


# As their documentation says for one task at a time.
OTHERS = {
    "celery-once": {"base": QueueOnce, "once": {"keys": ["name"]}},
    "celery-singleton": {"base": Singleton, "unique_on": ["name"], "raise_on_duplicate": True},
}
tasks = {it: app.task(name=it, ignore_result=True, **options)(burst) for it, options in OTHERS.items()}
tasks["holdfast"] = app.task(name="holdfast", ignore_result=True)(single("burst:{name}")(burst))


def send(contender, name, number, seconds):
    if contender == "rq":
        queue = Queue(connection=Redis.from_url(os.environ["BROKER"]))
        queue.enqueue("bursts.burst", name, number, seconds, rate_limit=RateLimit(key=name, concurrency=1))
        return True
    try:
        tasks[contender].delay(name, number, seconds)
    except (AlreadyQueued, DuplicateTaskError):
        return False
    return True


if __name__ == "__main__":
    contender, messages, names, seconds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
    send(contender, "warm", 0, 0)
    time.sleep(2)
    note("began")
    left, tries = list(range(messages)), 0
    while left:
        tries += len(left)
        left = [it for it in left if not send(contender, str(it % names), it, seconds)]
    note("sent", tries)
