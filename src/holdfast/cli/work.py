"""What is held while a command runs: a lock, a permit, a run that happens once, or an office.

Knows the client's primitives. Must not know processes: the body that is called under the lease
waits for the command.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from typing import TYPE_CHECKING, Any

from .job import Body, Ending, Failed, Lost

if TYPE_CHECKING:
    from argparse import Namespace

    from .. import Holdfast, Lease, Lock


def described(locks: Holdfast, options: Namespace, ttl: float, on_lost: Lost | None = None) -> Lock:
    """Describe the lock that `run` and `hold` are asked for.

    Args:
        locks: The client.
        options: The command line: `name`, `also`, `wait`, `shared`, `exclusive`, `slots`, `count`,
            `fail_open`, `note`, `at_least`.
        ttl: The length of the lease, in seconds.
        on_lost: What is called when it is lost.
    """
    wait = 0.0 if options.nonblock else options.wait
    asked: dict[str, Any] = {"ttl": ttl, "wait": wait, "fail_open": options.fail_open, "on_lost": on_lost}
    if options.shared:
        return locks.rwlock(options.name).read(**asked)
    asked["note"] = options.note
    if options.slots is not None:
        return locks.semaphore(options.name, options.slots, count=options.count, **asked)
    if options.exclusive:
        return locks.rwlock(options.name).write(**asked)
    return locks.lock(options.name, *options.also, at_least=options.at_least, **asked)


def locked(
    options: Namespace, ttl: float, locks: Holdfast, cancel: threading.Event, lost: Lost, body: Body
) -> dict[str, Any]:
    """Hold a lock, or permits of a semaphore."""
    return _held(described(locks, options, ttl, lost).acquire(cancel), body)


def elected(
    options: Namespace, ttl: float, locks: Holdfast, cancel: threading.Event, lost: Lost, body: Body
) -> dict[str, Any]:
    """Lead."""
    election = locks.election(options.name, options.value, ttl=ttl, wait=options.wait, on_lost=lost)
    return _held(election.campaign(cancel), body)


def _held(lease: Lease, body: Body) -> dict[str, Any]:
    try:
        body(lease)
    finally:
        # Confirmed by a majority: the next command on any machine finds the lock free.
        lease.release(confirm=True)
    return {}


def done_once(
    options: Namespace, ttl: float, locks: Holdfast, cancel: threading.Event, lost: Lost, body: Body
) -> dict[str, Any]:
    """Be the one that runs it, and keep that it was done."""
    from .. import current

    ran = False

    def run() -> dict[str, Any]:
        nonlocal ran
        ran, began = True, time.time()
        ending: Ending = body(current())
        if ending.status != 0 or ending.reason:
            raise Failed(ending)
        took = round(time.time() - began, 3)
        return {"host": socket.gethostname(), "pid": os.getppid(), "at": began, "seconds": took}

    once = locks.once(
        options.name,
        keep=options.keep,
        per=options.per,
        zone=options.zone,
        ttl=ttl,
        wait=0.0 if options.nonblock else options.wait,
        cancel=cancel,
        on_lost=lost,
        note=options.note,
    )
    found = once.run(run)
    return {} if ran else {"text": already(options.name, found), "otherwise": 0}


def already(key: str, found: object) -> str:
    """Say who has done it."""
    if not isinstance(found, dict):
        return f"{key!r} was done already"
    return f"{key!r} was done already, by {found.get('host')} pid {found.get('pid')} in {found.get('seconds')} s"
