"""Permits in the hands of processes that die."""

from __future__ import annotations

import signal
import threading
import time

from contract.cluster import Cluster
from contract.programs import program
from nemesis.processes import until

from holdfast import Holdfast, Lease

TTL = 1.0


def test_b14_a_crashed_holder_s_permits_come_back_under_traffic(three: Cluster) -> None:
    """Two of three permits are held by a process that is killed, while others take the third in turn, all the time."""
    over = threading.Event()
    inside, lock, slots = set[int](), threading.Lock(), set[int]()

    def works(lease: Lease) -> None:
        with lock:
            assert not inside & {*lease.slots}
            inside.update(lease.slots)
            slots.update(lease.slots)
        time.sleep(0.002)
        with lock:
            inside.difference_update(lease.slots)

    with Holdfast(*three.urls, ttl=TTL, max_ttl=2) as client:
        client.ready()

        def traffic() -> None:
            while not over.is_set():
                with client.semaphore("gpus", 3) as lease:
                    works(lease)

        with program(
            """
            locks = Holdfast(ttl=1, max_ttl=2)
            lease = locks.semaphore("gpus", 3, count=2).acquire()
            say(*lease.slots)
            time.sleep(600)
            """,
            three,
        ) as holder:
            held = {int(it) for it in holder.hear().split()}
            users = [threading.Thread(target=traffic) for _ in range(4)]
            for it in users:
                it.start()
            try:
                time.sleep(1.5 * TTL)
                assert slots == {0, 1, 2} - held, "it is renewed, and nobody else gets what it holds"
                holder.signal(signal.SIGKILL)
                killed = time.monotonic()
                with client.semaphore("gpus", 3, count=3, wait=30) as lease:
                    assert set(lease.slots) == {0, 1, 2}
                assert time.monotonic() - killed > TTL / 3, "not before its lease is over"
                until(lambda: slots >= held, told="what it held is used again")
            finally:
                over.set()
                for it in users:
                    it.join()
