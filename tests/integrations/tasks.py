"""Task queues on a stage: their programs, workers and messages, and a client that shares the names of a stage's programs.

Knows programs/proj.py and programs/actors.py. Must not know what is tested.
"""

from __future__ import annotations

import gc
import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from integrations.stage import PROGRAMS, Stage

from holdfast import Holdfast


@contextmanager
def imported(program: str, stage: Stage) -> Iterator[Any]:
    """A program of the stage in this process, for example to send tasks."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in stage.environment.items():
            patch.setenv(name, value)
        patch.syspath_prepend(PROGRAMS)
        sys.modules.pop(program, None)
        yield importlib.import_module(program)
        sys.modules.pop(program, None)


def worker(stage: Stage, *options: str, **environment: str) -> int:
    """Start a worker of Celery, and wait until it works. Returns its pid."""
    name = f"w{len(stage.processes)}"
    words = ["celery", "-A", "proj", "worker", "-n", name, "--loglevel", "INFO", "--without-gossip", "--without-mingle"]
    before = stage.logs().count(" ready.")
    process = stage.start(*words, *(options or ("--pool", "prefork", "-c", "2")), **environment)
    stage.until(lambda: stage.logs().count(" ready.") > before, f"the worker {name} works")
    return process.pid


def actor_worker(stage: Stage, threads: int = 8) -> None:
    """Start a worker of Dramatiq, and wait until it works."""
    before = stage.logs().count("Worker process is ready for action.")
    stage.start("dramatiq", "actors", "-p", "1", "-t", str(threads))
    stage.until(lambda: stage.logs().count("Worker process is ready for action.") > before, "the worker works")


class Queue:
    """What the queues have in common: a worker for four tasks at a time, messages, and what comes of them."""

    def __init__(self, stage: Stage, program: Any) -> None:
        self.stage, self.program, self.is_celery = stage, program, hasattr(program, "app")

    def close(self) -> None:
        """Let it go. Results speak to the broker when they are discarded, which must be while there is one."""
        gc.collect()
        for it in [self.program.app] if self.is_celery else [self.program.locks, self.program.broker]:
            it.close()

    def work(self) -> None:
        if self.is_celery:
            worker(self.stage, "--pool", "prefork", "-c", "4", VISIBLE_AFTER="3600")
        else:
            actor_worker(self.stage, threads=4)

    def send(self, task: str, *arguments: Any) -> Any:
        its = getattr(self.program, task)
        return its.delay(*arguments) if self.is_celery else its.send(*arguments)

    def identity(self, sent: Any) -> Any:
        return sent.id if self.is_celery else sent.message_id

    def outcome(self, sent: Any) -> Any:
        """Wait for the result of a message, or for its error."""
        if self.is_celery:
            return sent.get(timeout=30, propagate=False)
        try:
            return sent.get_result(block=True, timeout=30_000)
        except Exception as error:
            return error


def other(stage: Stage, prefix: str = "") -> Holdfast:
    """A client that shares the names of the programs, or has a prefix of its own, and is patient on a busy machine."""
    nodes = stage.environment["HOLDFAST_NODES"].split(",")
    return Holdfast(*nodes, prefix=prefix or stage.environment["HOLDFAST_PREFIX"], ttl=2, max_ttl=4, node_timeout=1)
