"""Dramatiq with real workers, a real broker and real kills: `./task guests dramatiq`."""

from __future__ import annotations

import os
import time
from typing import Any

import dramatiq
import pytest
from dramatiq.brokers.stub import StubBroker
from integrations.stage import Stage, overlaps
from integrations.tasks import Queue
from integrations.tasks import actor_worker as worker

from holdfast import ConfigError, Holdfast, LockBusy
from holdfast.aio import Holdfast as AsyncHoldfast
from holdfast.embedded import Nodes
from holdfast.integrations.dramatiq import Locks

pytestmark = pytest.mark.timeout(300)

MESSAGES = 150 if os.environ.get("HOLDFAST_GUESTS") == "quick" else 500


@pytest.fixture
def stage(stage_with_broker: Stage) -> Stage:
    return stage_with_broker


@pytest.fixture
def actors(queue: Queue) -> Any:
    """The actors as this process sees them: to send messages."""
    return queue.program


def test_actors_run_one_at_a_time_although_workers_are_killed(stage: Stage, actors: Any) -> None:
    """No message is lost, and none uses up a retry: the actor has none."""
    for _ in range(3):
        worker(stage)
    for number in range(MESSAGES):
        actors.import_user.send(number % 5, number)

    def done() -> set[str]:
        return {it.words[1] for it in stage.entries("imported")}

    for share in (3, 2):
        stage.until(lambda share=share: len(done()) >= MESSAGES // share, "some are done", 100)
        stage.kill(stage.processes[share - 2].pid)
        worker(stage)
    stage.until(lambda: len(done()) == MESSAGES, "all are done", 150)
    assert overlaps(stage.entries(), stage.killed) == []
    assert "Retries exceeded" not in stage.logs()


def test_a_busy_message_comes_back_with_its_result(stage: Stage, actors: Any) -> None:
    worker(stage)
    messages = [actors.limited.send(0.5) for _ in range(3)]
    assert [it.get_result(block=True, timeout=30_000) for it in messages] == ["limited"] * 3
    assert len(stage.entries("begin")) == 3


def test_a_message_that_is_too_old_keeps_no_name(stage: Stage, actors: Any) -> None:
    old = actors.unique.send_with_options(args=("old", 0), max_age=1)
    time.sleep(1.1)
    worker(stage)
    stage.until(lambda: actors.unique.send("old", 0).message_id != old.message_id, "its name is free", 5)


def test_a_message_that_comes_back_later_is_not_sent_twice(stage: Stage, actors: Any) -> None:
    """`unique` with a lock that is busy. A worker that is killed keeps nobody from sending for longer than a ttl."""
    with actors.locks.lock("both", wait=5):
        message = actors.both.send()
        worker(stage)
        stage.until(lambda: "comes back in" in stage.logs() or "was skipped" in stage.logs(), "it comes back", 20)
        assert actors.both.send().message_id == message.message_id
    stage.until(lambda: stage.entries("begin", "both"), "it runs", 20)
    stage.kill(stage.processes[0].pid)
    killed = time.monotonic()
    stage.until(lambda: actors.both.send().message_id != message.message_id, "it is free", 10)
    assert time.monotonic() - killed > 1, "the lease of a ttl"


def test_permits_of_a_killed_worker_return(stage: Stage, actors: Any) -> None:
    """Dramatiq's own limiter would count them until its key expires."""
    worker(stage)
    for _ in range(2):
        actors.permitted.send(30)
    stage.until(lambda: len(stage.entries("acquired")) == 2, "both permits are taken")
    actors.permitted.send(0)
    stage.until(lambda: stage.entries("refused"), "the third is refused", 20)
    killed = time.monotonic()
    stage.kill(stage.processes[0].pid)
    with actors.locks.semaphore("few", 2, count=2, wait=20):
        pass
    assert time.monotonic() - killed < 6 + 1.5, "one ttl"


@pytest.mark.parametrize("busy", ["later", "skip"])
def test_an_actor_that_another_actor_calls_leaves_that_actor_s_message_alone(nodes: Nodes, busy: str) -> None:
    """The inner call has no message. It raises LockBusy, and the outer message is neither sent again nor skipped."""
    raised: list[str] = []
    with Holdfast(*nodes.urls, prefix=f"nested-{busy}:") as locks, Holdfast(*nodes.urls, prefix=f"nested-{busy}:") as other:
        broker = StubBroker()
        broker.add_middleware(Locks(locks))

        @dramatiq.actor(broker=broker, lock="account:{number}", lock_busy=busy, lock_delay=0.1)
        def book(number: int) -> None: ...

        @dramatiq.actor(broker=broker, max_retries=0)
        def order(number: int) -> None:
            try:
                book(number)
            except LockBusy:
                raised.append("order")

        @dramatiq.actor(broker=broker, lock="stock:{number}", lock_busy=busy, lock_delay=0.1, max_retries=0)
        def recount(number: int) -> None:
            try:
                recount(number)
            except LockBusy:
                raised.append("recount")

        with other.lock("account:1"):
            worker = dramatiq.Worker(broker, worker_timeout=100)
            worker.start()
            for actor in (order, recount):
                actor.send(1)
                broker.join("default", timeout=30_000)
            worker.stop()
    assert raised == ["order", "recount"]


@pytest.mark.parametrize(
    "options, told",
    [
        ({"lock": "feed:{colour}"}, "'colour'"),
        ({"lock": "feed", "lock_busy": "maybe"}, "lock_busy is 'later', 'skip' or 'raise'"),
        ({"lock": "feed", "lock_delay": -1}, "lock_delay"),
        ({"lock": "feed", "lock_options": {"tll": 3}}, "unknown lock option 'tll'"),
        ({"lock_delay": 3}, "'wrong': lock_delay is for an actor with lock="),
        ({"unique": "feed:{colour}"}, "'colour'"),
        ({"unique": True, "unique_until": "later"}, "unique_until is 'started' or 'finished'"),
        ({"unique_keep": 3}, "'wrong': unique_keep is for an actor with unique="),
    ],
)
def test_mistakes_are_found_where_they_are_written(options: dict[str, Any], told: str) -> None:
    broker = StubBroker()
    broker.add_middleware(Locks(Holdfast("redis://nowhere")))
    with pytest.raises(ConfigError, match=told):
        dramatiq.actor(lambda url: None, actor_name="wrong", broker=broker, **options)


def test_an_actor_that_would_run_without_its_lock_is_refused() -> None:
    """Above `@dramatiq.actor`, which has the function below; and a function that is decorated when it is an actor already."""
    locks, broker = Holdfast("redis://nowhere"), StubBroker()
    broker.add_middleware(Locks(locks))

    def feed() -> None: ...

    with pytest.raises(ConfigError, match="below the one of dramatiq"):
        locks.locked("a")(dramatiq.actor(feed, actor_name="above", broker=broker))
    dramatiq.actor(locks.locked("a")(feed), actor_name="right", broker=broker)
    dramatiq.actor(lambda: None, actor_name="locked", lock="a", broker=broker)
    broker.emit_before("worker_boot", None)

    def late() -> None: ...

    dramatiq.actor(late, broker=broker)
    locks.locked("a")(late)
    with pytest.raises(ConfigError, match="actor 'late' "):
        dramatiq.Worker(broker, worker_threads=1).start()


def test_a_client_for_asyncio_is_refused() -> None:
    made: Any = Locks
    with pytest.raises(ConfigError, match="needs a client for threads"):
        made(AsyncHoldfast("redis://nowhere"))
