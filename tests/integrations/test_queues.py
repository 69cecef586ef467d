"""What all task queues do with a lock, with real workers and a real broker: `./task guests celery dramatiq`."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

import pytest
from integrations.stage import fairness
from integrations.tasks import Queue, other

from holdfast import LockBusy

pytestmark = pytest.mark.timeout(300)


@pytest.mark.parametrize("messages, names, seconds", [(30, 1, 0.1), (300, 10, 0.05), (10, 1, 1.5)], ids=["short", "many", "long"])
def test_a_burst_is_done_about_as_soon_as_it_can_be(queue: Queue, messages: int, names: int, seconds: float) -> None:
    """Messages that find the lock busy come back one after the other, when their turn is near."""
    stage = queue.stage
    queue.work()
    queue.send("burst", "warm", 0, seconds)
    stage.until(lambda: stage.entries("done", "warm"), "the worker works")
    began = time.monotonic()
    for number in range(messages):
        queue.send("burst", str(number % names), number, seconds)
    ideal = max(messages * seconds / names, messages * seconds / 4)
    stage.until(lambda: len(stage.entries("done")) == messages + 1, "all are done", 4 * ideal + 20)
    took = time.monotonic() - began
    delivered = Counter(" ".join(it.words) for it in stage.entries("delivered"))
    most = max(delivered.values())
    fair = fairness(stage.entries("done")[1:], began)
    print(f"{messages} messages of {seconds} s on {names} names: {took:.1f} s of {ideal:.1f} s; {most} deliveries; fairness {fair:.3f}")
    assert took < 2 * ideal + 2, "a busy machine has some time more"
    assert most <= 3
    assert fair > 0.95, "over the names"


@pytest.mark.parametrize("task", ["skipping", "raising"])
def test_a_busy_message_is_skipped_or_fails_if_you_say_so(queue: Queue, task: str) -> None:
    queue.work()
    first = queue.send(task, 3)
    queue.stage.until(lambda: queue.stage.entries("begin", task), "the first message has the lock")
    second = queue.outcome(queue.send(task, 0))
    assert second is None if task == "skipping" else "is held by" in str(second)
    assert queue.outcome(first).startswith(task)
    assert len(queue.stage.entries("begin", task)) == 1


def test_a_worker_that_is_stopped_ends_its_task_and_leaves_no_lock_behind(queue: Queue) -> None:
    queue.work()
    sent = queue.send("limited", 2)
    queue.stage.until(lambda: queue.stage.entries("begin", "limited"), "the task begins")
    queue.stage.processes[0].terminate()
    assert queue.stage.processes[0].wait(timeout=60) == 0
    assert queue.outcome(sent).startswith("limited")
    with other(queue.stage) as locks:
        assert not locks.is_locked("limited")


def test_losing_the_lock_interrupts_a_task_and_fails_its_message(queue: Queue) -> None:
    queue.work()
    queue.send("aborted")
    stage = queue.stage
    stage.until(lambda: stage.entries("interrupted"), "the body is interrupted")
    begun, ended = stage.entries("begun")[0].at, stage.entries("interrupted")[0].at
    assert 0.2 < ended - begun < 10, "not at its end, after 20 seconds"
    stage.until(lambda: "LockLost" in stage.logs(), "the message fails with LockLost", 5)


def test_a_duplicate_is_not_sent_from_the_sending_to_the_end(queue: Queue) -> None:
    """Also while a message waits for its retry. One that failed is under way no longer."""
    stage = queue.stage

    def sent(name: str, seconds: float = 0, fails: int = 0) -> Any:
        return queue.identity(queue.send("unique", name, seconds, fails))

    message = queue.send("unique", "a", 2)
    first, retried, failing = queue.identity(message), sent("b", 0, 1), sent("c", 0, 9)
    assert len({first, retried, failing}) == 3
    assert sent("a", 2) == first, "it is in the queue"
    queue.work()
    stage.until(lambda: stage.entries("begin", "a") and stage.entries("begin", "b"), "they run")
    assert [sent(it) for it in "ab"] == [first, retried]
    assert queue.outcome(message) == "a"
    stage.until(lambda: len(stage.entries("begin", "b")) == 2, "it is retried", 20)
    assert len(stage.entries("begin", "a")) == 1
    stage.until(lambda: len(stage.entries("begin", "c")) == 2, "it has no retries left", 20)
    for name, before in (("a", first), ("b", retried), ("c", failing)):
        stage.until(lambda name=name, before=before: sent(name) != before, f"{name} is free", 5)


def test_a_task_that_is_called_like_a_function_has_no_message(queue: Queue) -> None:
    assert queue.program.limited(0).startswith("limited")
    with other(queue.stage) as locks, locks.lock("limited", wait=5), pytest.raises(LockBusy):
        queue.program.limited(0)
