"""What is held while a command runs: a lock, a permit, a run that happens once, or an office.

Knows the client's primitives. Must not know processes: the body that is called under the lease
waits for the command.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .job import Body, Ending, Failed, Work

if TYPE_CHECKING:
    from argparse import Namespace

    from .. import Holdfast, Lease, Lock
    from ..typing import Options


def described(locks: Holdfast, options: Namespace, ttl: float, on_lost: Callable[[Any], None] | None = None) -> Lock:
    """Describe the lock that `run` and `hold` are asked for.

    Args:
        locks: The client.
        options: The command line: `name`, `also`, `wait`, `shared`, `exclusive`, `slots`, `count`,
            `fail_open`, `note`, `at_least`.
        ttl: The length of the lease, in seconds.
        on_lost: What is called when it is lost.
    """
    wait = 0.0 if options.nonblock else options.wait
    if options.slots is not None:
        return locks.semaphore(
            options.name,
            options.slots,
            count=options.count,
            ttl=ttl,
            wait=wait,
            fail_open=options.fail_open,
            on_lost=on_lost,
            note=options.note,
        )
    asked: Options = {"ttl": ttl, "wait": wait, "fail_open": options.fail_open, "on_lost": on_lost}
    if options.shared:
        return locks.rwlock(options.name).read(**asked)
    asked["note"] = options.note
    if options.exclusive:
        return locks.rwlock(options.name).write(**asked)
    asked["at_least"] = options.at_least
    return locks.lock(options.name, *options.also, **asked)


def locked(options: Namespace, ttl: float) -> Work:
    """Hold a lock, or permits of a semaphore."""

    def work(locks: Holdfast, cancel: threading.Event, lost: Callable[[Any], None], body: Body) -> dict[str, Any]:
        return _held(described(locks, options, ttl, lost).acquire(cancel), body)

    return work


def elected(name: str, value: str, ttl: float, wait: float | None) -> Work:
    """Lead."""

    def work(locks: Holdfast, cancel: threading.Event, lost: Callable[[Any], None], body: Body) -> dict[str, Any]:
        return _held(locks.election(name, value, ttl=ttl, wait=wait, on_lost=lost).campaign(cancel), body)

    return work


def _held(lease: Lease, body: Body) -> dict[str, Any]:
    try:
        body(lease)
    finally:
        # Confirmed by a majority: the next command on any machine finds the lock free.
        lease.release(confirm=True)
    return {}


def done_once(options: Namespace, keep: float, ttl: float) -> Work:
    """Be the one that runs it, and keep that it was done.

    Args:
        options: The command line: `name`, `per`, `zone`, `nonblock`, `wait`, `note`.
        keep: For how many seconds it counts as done.
        ttl: The length of the lease, in seconds.
    """

    def work(locks: Holdfast, cancel: threading.Event, lost: Callable[[Any], None], body: Body) -> dict[str, Any]:
        from .. import current

        ran = False

        def run() -> dict[str, Any]:
            nonlocal ran
            ran, began = True, time.time()
            ending: Ending = body(current())
            if ending.status != 0 or ending.reason:
                raise Failed(ending)
            return {
                "host": socket.gethostname(),
                "pid": os.getppid(),
                "at": began,
                "seconds": round(time.time() - began, 3),
            }

        once = locks.once(
            options.name,
            keep=keep,
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

    return work


def already(key: str, found: object) -> str:
    """Say who has done it."""
    if not isinstance(found, dict):
        return f"{key!r} was done already"
    return f"{key!r} was done already, by {found.get('host')} pid {found.get('pid')} in {found.get('seconds')} s"
