"""Read-write locks on real servers: readers that are killed, and the least that a user may do."""

from __future__ import annotations

import re
import time

import pytest
from contract.cluster import Cluster
from live.kit import holding
from live.test_acl import DOCUMENT, RULES

from holdfast import Holdfast, NoQuorum

[MORE] = re.findall(r"\| Read-write locks \| `([^`]*)` \|", DOCUMENT.read_text())


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


def use(nodes: Cluster, *more: str) -> None:
    """All that happens to read-write locks, by a user who may do what the document says, and some more."""
    rule = [it for it in RULES["app"] if it != ">PASSWORD"]
    nodes.everywhere("ACL", "SETUSER", "app", "reset", ">pw", *rule, *more)
    urls = [it.replace("//", "//app:pw@") for it in nodes.urls]
    with Holdfast(*urls, prefix="app:", outage=0.5) as client:
        rw = client.rwlock("allowed")
        with rw.write(wait=5) as lease:
            lease.downgrade()
        with rw.read(wait=5) as one, rw.read(wait=0, reentrant=True) as two:
            assert one.held and two.held
        other = rw.read(wait=5).acquire()
        other.release()


def test_the_least_that_a_user_may_do(three: Cluster) -> None:
    use(three, *MORE.split())
    with pytest.raises(NoQuorum, match=r"permission|can't run"):
        use(three)
