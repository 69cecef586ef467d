"""Readers and writers that are killed."""

from __future__ import annotations

import time

from contract.cluster import Cluster
from live.kit import holding

from holdfast import Holdfast


def test_a_reader_that_is_killed_keeps_a_writer_waiting_for_its_lease_at_most(three: Cluster) -> None:
    with Holdfast(*three.urls, ttl=2) as client, holding(three, "rwlock('killed').read()", "ttl=2") as reader:
        mine = client.rwlock("killed").read().acquire()
        reader.process.kill()
        killed = time.monotonic()
        time.sleep(1.0)
        mine.extend()  # readers who go on do not keep the dead alive
        mine.release()
        writer = client.rwlock("killed").write(wait=30).acquire()
        assert writer.fence > mine.fence
        assert time.monotonic() - killed < 12, "one ttl; and the machine may be busy"
        writer.release()


def test_a_writer_that_is_killed_lets_all_readers_in(three: Cluster) -> None:
    with Holdfast(*three.urls, ttl=2) as client, holding(three, "rwlock('written').write()", "ttl=2") as writer:
        assert client.rwlock("written").read().try_acquire() is None
        writer.process.kill()
        leases = [client.rwlock("written").read(wait=30).acquire() for _ in range(3)]
        assert all(it.held for it in leases)
        for it in leases:
            it.release()
