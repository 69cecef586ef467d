"""Dramatiq actors that hold locks, over a real broker."""

from __future__ import annotations

import os
import time
from pathlib import Path

import dramatiq
from dramatiq.brokers.redis import RedisBroker
from dramatiq.results import Results
from dramatiq.results.backends import RedisBackend
from record import note

from holdfast import Holdfast
from holdfast.integrations.dramatiq import Concurrent, Locks

# A message of an actor without retries is used up if its lock cannot be had because the nodes are silent. On a
# machine that is busy they are, for longer than the 0.2 s that a short max_ttl leaves them.
locks = Holdfast(ttl=6, max_ttl=8, node_timeout=2)
# It looks often for what killed workers have left behind: by default, in one of a thousand commands.
broker = RedisBroker(url=os.environ["BROKER"], heartbeat_timeout=4000, maintenance_chance=300_000)
broker.add_middleware(Results(backend=RedisBackend(url=os.environ["BROKER"])))
broker.add_middleware(Locks(locks))
dramatiq.set_broker(broker)
few = Concurrent(locks, "few", limit=2)


@dramatiq.actor(lock="user:{user}", lock_delay=0.2, max_retries=0)
def import_user(user, number):
    note("enter", user)
    time.sleep(0.01)
    note("leave", user)
    note("imported", number)


@dramatiq.actor(lock="burst:{name}", max_retries=0)
def burst(name, number, seconds):
    time.sleep(seconds)
    note("done", name, number)


class Deliveries(dramatiq.Middleware):
    def before_process_message(self, broker, message):
        if message.actor_name == "burst":
            note("delivered", *message.args[:2])


broker.add_middleware(Deliveries())


@dramatiq.actor(lock="limited", lock_delay=0.5, max_retries=0, store_results=True)
def limited(seconds):
    note("begin", "limited")
    time.sleep(seconds)
    return "limited"


@dramatiq.actor(lock="skipped", lock_busy="skip", max_retries=0, store_results=True)
def skipping(seconds):
    note("begin", "skipping")
    time.sleep(seconds)
    return "skipping"


@dramatiq.actor(lock="raised", lock_busy="raise", max_retries=0, store_results=True)
def raising(seconds):
    note("begin", "raising")
    time.sleep(seconds)
    return "raising"


@dramatiq.actor(lock="aborted", lock_abort=True, lock_options={"max_hold": 0.5}, max_retries=0)
def aborted():
    note("begun")
    try:
        for _ in range(1000):
            time.sleep(0.02)
    finally:
        note("interrupted")


@dramatiq.actor(max_retries=0)
def permitted(seconds):
    with few.acquire(raise_on_failure=False) as acquired:
        note("acquired" if acquired else "refused")
        if acquired:
            time.sleep(seconds)


@dramatiq.actor(unique=True, lock="both")
def both():
    note("begin", "both")
    time.sleep(60)


@dramatiq.actor(unique="feed:{name}", max_retries=1, min_backoff=1000, max_backoff=1000, store_results=True)
def unique(name, seconds, fails=0):
    note("begin", name)
    time.sleep(seconds)
    if Path(os.environ["RECORD"]).read_text().count(f"begin {name}") <= fails:
        raise ValueError(name)
    return name
