"""Reads a client's state at intervals, on a thread or in a task.

Knows `nodes()` and `stats()` of both faces. Must not know metrics.
"""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections.abc import Callable
from typing import Any

from ..errors import Misuse, is_closed

__all__ = ["follow"]

Sample = Callable[[Any, Any], None]

# Tasks that only the event loop refers to may be collected while they wait.
_tasks: set[asyncio.Task[None]] = set()


def follow(client: Any, sample: Sample, every: float) -> None:
    """Call `sample(client.nodes(), client.stats())` at intervals until the client is gone.

    Args:
        client: A `Holdfast` of either face. Only a weak reference is kept.
        sample: What is called. An error of it is reported by the thread or task, and ends it.
        every: Seconds between two calls.

    Raises:
        RuntimeError: The client is of `holdfast.aio`, and no event loop runs.
    """
    known = weakref.ref(client)
    if asyncio.iscoroutinefunction(type(client).ready):
        task = asyncio.get_running_loop().create_task(_in_task(known, sample, every))
        _tasks.add(task)
        task.add_done_callback(_tasks.discard)
        return
    _start(known, sample, every)
    # Threads do not survive a fork. Servers that fork their workers load the application first.
    os.register_at_fork(after_in_child=lambda: _start(known, sample, every))


def _start(known: weakref.ref[Any], sample: Sample, every: float) -> None:
    if known() is not None:
        threading.Thread(target=_on_thread, args=(known, sample, every), name="holdfast-metrics", daemon=True).start()


def _on_thread(known: weakref.ref[Any], sample: Sample, every: float) -> None:
    pause = threading.Event()
    while _sampled(known, sample):
        pause.wait(every)


async def _in_task(known: weakref.ref[Any], sample: Sample, every: float) -> None:
    # It samples at intervals, and waits for nothing else.
    while _sampled(known, sample):  # noqa: ASYNC110
        await asyncio.sleep(every)


def _sampled(known: weakref.ref[Any], sample: Sample) -> bool:
    """Sample once, unless the client is gone."""
    client = known()
    if client is None:
        return False
    # A closed client may be opened again.
    try:
        sample(client.nodes(), client.stats())
    except Misuse as error:
        if not is_closed(error):
            raise
    return True
