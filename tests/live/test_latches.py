"""Latches and barriers between processes, while they and nodes are killed."""

from __future__ import annotations

import contextlib
import signal
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
