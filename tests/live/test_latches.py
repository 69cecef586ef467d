"""Latches and barriers between processes, while they and nodes are killed."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Iterator

import pytest
from contract.cluster import Cluster
from contract.programs import program

from holdfast import Holdfast
from holdfast.embedded import Nodes

pytestmark = pytest.mark.stories

# Says the number of those who have arrived, and then that it is open.
WORKER = """
locks = Holdfast(*URLS, ttl=5, max_ttl=10)
latch = locks.latch("loaded", 4)
say(latch.arrive(sys.argv[1]))
latch.wait()
say("open")
"""

# Says each generation that it passes, until it is told to end.
PARTY = """
locks = Holdfast(*URLS, ttl=1, max_ttl=1)
barrier = locks.barrier("step", 3)
while True:
    generation = barrier.wait(sys.argv[1])
    say(generation)
    time.sleep(0.01)
"""


@pytest.fixture
def three() -> Iterator[Cluster]:
    with Cluster(Nodes(3)) as cluster:
        yield cluster


def test_a_worker_that_is_killed_has_arrived_and_is_the_same_when_it_begins_anew(three: Cluster) -> None:
    with contextlib.ExitStack() as stack:
        workers = []
        for who, told in (("a", "1"), ("b", "2")):
            workers.append(stack.enter_context(program(WORKER, three, who)))
            assert workers[-1].hear() == told
        workers[0].signal(signal.SIGKILL)
        assert workers.pop(0).end() < 0
        workers.append(stack.enter_context(program(WORKER, three, "a")))
        assert workers[-1].hear() == "2"
        three.nodes.kill(0)
        workers.append(stack.enter_context(program(WORKER, three, "c")))
        assert workers[-1].hear() == "3"
        with Holdfast(*three.urls, max_ttl=10) as here:
            assert not here.latch("loaded", 4).is_open()
            assert here.latch("loaded", 4).arrive("d") == 4
            here.latch("loaded", 4, wait=0).wait()
        for it in workers:
            it.expect("open")


def test_nobody_is_left_behind_while_parties_and_nodes_are_killed(three: Cluster) -> None:
    """What each party says goes up by one; one that was killed comes back where the others are."""
    over, passed = threading.Event(), {it: [-1] for it in "abc"}
    lock, torn = threading.Lock(), list[str]()

    def follows(who: str, generations: list[int]) -> None:
        with contextlib.ExitStack() as stack:
            while not over.is_set():
                party = stack.enter_context(program(PARTY, three, who))
                living[who] = party
                fresh = True
                while line := party.hear():
                    with lock:
                        generation = int(line)
                        if not (generation == generations[-1] + 1 or (fresh and generation == generations[-1] + 2)):
                            torn.append(f"{who} says {generation} after {generations[-1]}")
                        generations.append(generation)
                        fresh = False

    living: dict[str, object] = {}
    threads = [threading.Thread(target=follows, args=it) for it in passed.items()]
    for it in threads:
        it.start()

    def goes_on() -> None:
        """All of them pass some more."""
        joint, deadline = max(it[-1] for it in passed.values()) + 5, time.monotonic() + 60
        while min(it[-1] for it in passed.values()) < joint:
            assert time.monotonic() < deadline, passed
            time.sleep(0.01)

    try:
        goes_on()
        for number, who in enumerate("abca"):
            three.nodes.kill(number % 3)
            living[who].signal(signal.SIGKILL)  # type: ignore[attr-defined]  # (a process)
            goes_on()
            three.nodes.restart(number % 3)
            time.sleep(3.5)  # (its guard)
            goes_on()
    finally:
        over.set()
        for who in "abc":
            living[who].signal(signal.SIGKILL)  # type: ignore[attr-defined]  # (a process)
        for it in threads:
            it.join()
    assert torn == []
    ends = [it[-1] for it in passed.values()]
    assert max(ends) - min(ends) <= 1
