"""Processes that leave a lease and end, or end beside a node that does not answer: what the nodes have of it afterwards."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from contract.cluster import Cluster
from contract.programs import program, run
from nemesis.processes import until

from holdfast import Holdfast
from holdfast.clock import clock
from holdfast.embedded import Nodes

TTL = 4.0  # seconds: a busy machine takes as much as two to start a process and end it
BUSY = 1.0  # seconds by which a busy machine may be late
SOON = 5.0
GEVENT = "from gevent import monkey; monkey.patch_all()\n"

# Each says its token and until when it holds the lock, and leaves it.
TAKES = """
locks = Holdfast(ttl=4)
lease = locks.lock("job").acquire()
say(lease.token, lease.until)
"""
BLOCK = """
    locks = Holdfast(ttl=4)
    with locks.lock("job") as lease:
        say(lease.token, lease.until)
        lease.leave()
"""
LEAVES = {
    "and the interpreter exits": TAKES + "lease.leave()",
    "and is gone at once": TAKES + "lease.leave(); os._exit(0)",
    "under gevent": BLOCK + "    locks.close()",
}


@pytest.fixture(scope="module")
def five() -> Iterator[Cluster]:
    with Cluster(Nodes(5)) as cluster:
        yield cluster


def left(source: str, nodes: Cluster, first: str = "") -> None:
    """The lock of a process that has ended is taken when its lease has run out, and not before."""
    status, out, errors = run(source, nodes, first=first)
    assert (status, errors) == (0, "")
    token, ends = out.split()
    assert clock() < float(ends) - TTL / 4, "this machine is too busy to tell"
    assert nodes.holders("job").count(token) >= 3
    with Holdfast(*nodes.urls) as locks, locks.lock("job", wait=20) as lease:
        taken = clock()
        assert float(ends) <= taken <= float(ends) + BUSY
        assert lease.contended


@pytest.mark.parametrize("how", LEAVES)
def test_a_process_leaves_a_lease_and_ends(five: Cluster, how: str) -> None:
    left(LEAVES[how], five, GEVENT if how == "under gevent" else "")


def test_what_was_left_is_not_listed_before_the_io_thread_has_heard_of_it(
    five: Cluster,
) -> None:
    with Holdfast(*five.urls) as locks:
        lease = locks.lock("listed", ttl=1).acquire()
        assert [it.name for it in locks.leases()] == ["listed"]
        locks._driver.io_thread.ask(lambda now: time.sleep(0.3))
        lease.leave()
        assert locks.leases() == ()


# ------------------------------------------------ the end, beside a node that has just frozen

OPTIONS = "ttl=60, max_ttl=100, node_timeout=8"
IN_TIME = 3.0  # seconds for the end of a whole process; beside a node that is waited for, it would take 8
EXITS = """
locks = Holdfast(%s)
locks.ready()
lease = locks.lock("end").acquire()
time.sleep(0.3)
say(lease.votes)
sys.stdin.readline()
"""
ENDS = {"at the interpreter's exit": EXITS, "gevent": EXITS + "locks.close(); os._exit(0)"}


@pytest.mark.parametrize("how", ENDS)
def test_a_process_ends_soon_beside_a_frozen_node_which_hears_of_it(five: Cluster, how: str) -> None:
    with program(ENDS[how] % OPTIONS, five, first=GEVENT if how == "gevent" else "") as running:
        # Nothing is owed when the node freezes.
        running.expect("5")
        five.nodes.freeze(4)
        try:
            began = time.monotonic()
            running.tell()
            assert running.end() == 0
            assert time.monotonic() - began < IN_TIME
            assert [five.ask(node, "GET", "end") for node in range(4)].count(None) >= 3
        finally:
            five.nodes.thaw(4)
    # Its bytes were on the way, and outlive the process.
    until(lambda: five.holders("end") == [None] * 5, SOON)
