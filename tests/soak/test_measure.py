"""Whatever is left behind in a process is found, by its name."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import pytest
from soak.measure import grown, measured

from holdfast.engine.timers import Timers

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="a process is measured by /proc")]


def found(leave: Callable[[], AbstractContextManager[object]]) -> str:
    """What is more while this is there."""
    before = measured()
    with leave():
        return ", ".join(grown(before, measured()))


@contextmanager
def file() -> Iterator[None]:
    number = os.open(os.devnull, os.O_RDONLY)
    yield
    os.close(number)


@contextmanager
def thread() -> Iterator[None]:
    over = threading.Event()
    threading.Thread(target=over.wait).start()
    yield
    over.set()


def test_nothing_left_is_nothing_found() -> None:
    assert found(nullcontext) == ""


def test_memory() -> None:
    assert "memory, MiB: " in found(lambda: nullcontext(os.urandom(64 << 20)))


def test_a_file() -> None:
    assert found(file).startswith("files: ")


def test_a_thread() -> None:
    assert found(thread).startswith("threads: ")


def test_any_objects() -> None:
    assert "all objects: " in found(lambda: nullcontext([[it] for it in range(20_000)]))


class Timed:
    wake, armed = 1.0, float("inf")


def test_an_object_of_holdfasts_and_what_is_in_its_table() -> None:
    timers = [Timers[Timed]()]
    before = measured()
    timers[0].arm(Timed())
    timers.append(Timers())
    wrong = grown(before, measured())
    assert [it.partition(":")[0] for it in wrong] == ["holdfast.engine.timers.Timers", "in holdfast.engine.timers.Timers._heap"]


async def test_a_task_and_a_timer() -> None:
    loop = asyncio.get_running_loop()
    before = measured(loop)
    task = asyncio.create_task(asyncio.sleep(60))
    await asyncio.sleep(0)
    assert [it.partition(":")[0] for it in grown(before, measured(loop))] == ["tasks", "timers"]
    task.cancel()
