"""Dramatiq with real workers, a real broker and real kills: `./task guests dramatiq`."""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from integrations.stage import PROGRAMS, Stage, fairness, overlaps
from integrations.tasks import other

from holdfast import ConfigError, Holdfast, LockBusy
from holdfast.aio import Holdfast as AsyncHoldfast
from holdfast.embedded import Nodes

pytestmark = pytest.mark.timeout(300)

MESSAGES = 150 if os.environ.get("HOLDFAST_GUESTS") == "quick" else 500


@pytest.fixture
def stage(stage_with_broker: Stage) -> Stage:
    return stage_with_broker


@pytest.fixture
def actors(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The actors as this process sees them: to send messages."""
    for name, value in stage.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.syspath_prepend(PROGRAMS)
    sys.modules.pop("actors", None)
    import actors

    yield actors
    actors.locks.close()
    actors.broker.close()
    sys.modules.pop("actors", None)


def worker(stage: Stage, processes: int = 1, threads: int = 8) -> None:
    """Start a worker, and wait until it works."""
    before = stage.logs().count("Worker process is ready for action.")
    stage.start("dramatiq", "actors", "-p", str(processes), "-t", str(threads))
    stage.until(lambda: stage.logs().count("Worker process is ready for action.") >= before + processes, "the worker works")


def test_actors_run_one_at_a_time_although_workers_are_killed(stage: Stage, actors: Any) -> None:
    """No message is lost, and none uses up a retry: the actor has none."""
    for _ in range(3):
        worker(stage)
    for number in range(MESSAGES):
        actors.import_user.send(number % 5, number)

    def done() -> set[str]:
        return {it.words[1] for it in stage.entries("done")}

    for share in (3, 2):
        stage.until(lambda share=share: len(done()) >= MESSAGES // share, "some are done", 100)
        stage.kill(stage.processes[share - 2].pid)
        worker(stage)
    stage.until(lambda: len(done()) == MESSAGES, "all are done", 150)
    assert overlaps(stage.entries(), stage.killed) == []
    assert "Retries exceeded" not in stage.logs()


def test_a_worker_that_is_stopped_ends_its_actor_and_leaves_no_lock_behind(stage: Stage, actors: Any) -> None:
    worker(stage)
    message = actors.long.send(1, 2)
    stage.until(lambda: stage.entries("begin"), "the actor begins")
    stage.processes[0].terminate()
    assert stage.processes[0].wait(timeout=60) == 0
    assert message.get_result(block=True, timeout=20_000) == 1
    with other(stage) as locks:
        assert not locks.is_locked("long")


def test_a_busy_message_comes_back_with_its_result(stage: Stage, actors: Any) -> None:
    worker(stage)
    messages = [actors.long.send(number, 0.5) for number in range(3)]
    assert [it.get_result(block=True, timeout=30_000) for it in messages] == [0, 1, 2]
    assert Counter(it.words[1] for it in stage.entries("begin")) == {"0": 1, "1": 1, "2": 1}


@pytest.mark.parametrize("messages, names, seconds", [(30, 1, 0.1), (300, 10, 0.05), (10, 1, 1.5)], ids=["short", "many", "long"])
def test_a_burst_is_done_about_as_soon_as_it_can_be(stage: Stage, actors: Any, messages: int, names: int, seconds: float) -> None:
    """Messages that find the lock busy come back one after the other, when their turn is near."""
    worker(stage, threads=4)
    actors.burst.send("warm", 0, seconds)
    stage.until(lambda: stage.entries("finished", "warm"), "the worker works")
    began = time.monotonic()
    for number in range(messages):
        actors.burst.send(str(number % names), number, seconds)
    ideal = max(messages * seconds / names, messages * seconds / 4)
    stage.until(lambda: len(stage.entries("finished")) == messages + 1, "all are done", 4 * ideal + 20)
    took = time.monotonic() - began
    delivered = Counter(" ".join(it.words) for it in stage.entries("delivered"))
    most = max(delivered.values())
    fair = fairness(stage.entries("finished")[1:], began)
    print(f"{messages} messages of {seconds} s on {names} names: {took:.1f} s of {ideal:.1f} s; {most} deliveries; fairness {fair:.3f}")
    assert took < 2 * ideal + 2, "a busy machine has some time more"
    assert most <= 3
    assert fair > 0.95, "over the names"


def test_a_duplicate_is_not_sent_from_the_sending_to_the_end(stage: Stage, actors: Any) -> None:
    """Also while a message waits for its retry. One that failed, or is too old, is under way no longer."""
    first = actors.unique.send("a", 2)
    old = actors.unique.send_with_options(args=("old", 0), max_age=1)
    assert actors.unique.send("a", 2).message_id == first.message_id, "it is in the queue"
    retried, failing = actors.unique.send("b", 0, fails=1), actors.unique.send("c", 0, fails=9)
    worker(stage)
    stage.until(lambda: stage.entries("begin", "a") and stage.entries("begin", "b"), "they run")
    again = [actors.unique.send(name, 2) for name in "ab"]
    assert again[0].get_result(block=True, timeout=20_000) == "a"
    stage.until(lambda: len(stage.entries("begin", "b")) == 2, "it is retried", 20)
    assert again[1].message_id == retried.message_id
    assert len(stage.entries("begin", "a")) == 1
    stage.until(lambda: len(stage.entries("begin", "c")) == 2, "it has no retries left", 20)
    for name, before in (("a", first), ("b", retried), ("c", failing), ("old", old)):
        free = lambda name=name, before=before: actors.unique.send(name, 0).message_id != before.message_id  # noqa: E731
        stage.until(free, f"{name} is free", 5)


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


def test_a_busy_message_is_skipped_or_fails_if_you_say_so(stage: Stage, actors: Any) -> None:
    worker(stage)
    for actor in (actors.skipping, actors.raising):
        name = actor.actor_name
        first = actor.send(3)
        stage.until(lambda name=name: stage.entries("begin", name), "the first message has the lock")
        second = actor.send(0)
        if name == "skipping":
            assert second.get_result(block=True, timeout=10_000) is None
            assert first.get_result(block=True, timeout=10_000) == "done"
        else:
            stage.until(lambda: "LockBusy" in stage.logs(), "the second message fails", 10)
        assert len(stage.entries("begin", name)) == 1


def test_losing_the_lock_fails_the_message_and_interrupts_it_if_you_say_so(stage: Stage, actors: Any) -> None:
    worker(stage)
    actors.lost.send()
    stage.until(lambda: "LockLost" in stage.logs(), "the message fails with LockLost", 15)
    actors.aborted.send()
    stage.until(lambda: stage.entries("interrupted"), "the actor is interrupted", 15)
    begun, ended = stage.entries("begun")[0].at, stage.entries("interrupted")[0].at
    assert 0.2 < ended - begun < 3
    stage.until(lambda: stage.logs().count("LockLost") >= 2, "the message fails with LockLost", 5)


def test_permits_of_a_killed_worker_return(stage: Stage, actors: Any) -> None:
    """Dramatiq's own limiter would count them until its key expires."""
    worker(stage)
    for _ in range(2):
        actors.limited.send(30)
    stage.until(lambda: len(stage.entries("acquired")) == 2, "both permits are taken")
    actors.limited.send(0)
    stage.until(lambda: stage.entries("refused"), "the third is refused", 20)
    killed = time.monotonic()
    stage.kill(stage.processes[0].pid)
    with actors.locks.semaphore("few", 2, count=2, wait=20):
        pass
    assert time.monotonic() - killed < 6 + 1.5, "one ttl"


def test_an_actor_that_is_called_like_a_function_has_no_message(stage: Stage, actors: Any) -> None:
    actors.import_user(7, 1)
    assert len(stage.entries("done")) == 1
    with Holdfast(ttl=2, max_ttl=4) as other, other.lock("user:7", wait=5), pytest.raises(LockBusy):
        actors.import_user(7, 2)


@pytest.mark.parametrize("busy", ["later", "skip"])
def test_an_actor_that_another_actor_calls_leaves_that_actor_s_message_alone(nodes: Nodes, busy: str) -> None:
    """The inner call has no message. It raises LockBusy, and the outer message is neither sent again nor skipped."""
    import dramatiq
    from dramatiq.brokers.stub import StubBroker

    from holdfast.integrations.dramatiq import Locks

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
    import dramatiq
    from dramatiq.brokers.stub import StubBroker

    from holdfast.integrations.dramatiq import Locks

    broker = StubBroker()
    broker.add_middleware(Locks(Holdfast("redis://nowhere")))
    with pytest.raises(ConfigError, match=told):
        dramatiq.actor(lambda url: None, actor_name="wrong", broker=broker, **options)


def test_an_actor_that_would_run_without_its_lock_is_refused() -> None:
    """Above `@dramatiq.actor`, which has the function below; and a function that is decorated when it is an actor already."""
    import dramatiq
    from dramatiq.brokers.stub import StubBroker

    from holdfast.integrations.dramatiq import Locks

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
    from holdfast.integrations.dramatiq import Locks

    made: Any = Locks
    with pytest.raises(ConfigError, match="needs a client for threads"):
        made(AsyncHoldfast("redis://nowhere"))
