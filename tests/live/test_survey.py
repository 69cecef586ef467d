"""A survey of thousands of locks on real servers: what it takes of a node's time, and what others notice of it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from contract.cluster import Cluster, ask, asks

from holdfast import Holdfast
from holdfast.embedded import Nodes
from holdfast.errors import LockBusy

LOCKS = 3000
SHARE = 0.03
ROUNDS, PAIRS = 6, 60  # in turn with a survey and without; pairs of acquire and release in each


def token(number: int) -> str:
    return f"{10**15 + number:016d}:{'a' * 32}:{number:08x}"


@pytest.fixture(scope="module")
def full() -> Iterator[Cluster]:
    """Five nodes with thousands of locks, each on a majority of them, and their fences."""
    with Cluster(Nodes(5)) as cluster:
        for node, url in enumerate(cluster.urls):
            here = [it for it in range(LOCKS) if node not in (it % 5, (it // 5 + it + 1) % 5)]
            words = [("SET", f"many:{it}", token(it), "PX", 3_600_000) for it in here]
            fences = [("SET", f"{{many:{it}}}:fence", 10**15 + it, "PX", 3_600_000) for it in range(LOCKS)]
            assert set(asks(url, [*words, *fences], patience=60)) == {"OK"}
        yield cluster


def busy(url: str) -> float:
    """Seconds that a node has worked for surveys."""
    for line in ask(url, "INFO", "commandstats").splitlines():
        if line.startswith("cmdstat_eval:"):
            return int(line.partition("usec=")[2].partition(",")[0]) / 1e6
    return 0.0


def share(nodes: Cluster, pause: float) -> float:
    """The largest share of a node's time that one survey of everything takes."""
    with Holdfast(*nodes.urls) as client:
        client.ready()
        before, began = [busy(url) for url in nodes.urls], time.monotonic()
        names = [row.name for row in client.survey("many:*", pause=pause)]
        took = time.monotonic() - began
        assert len(names) == len(set(names)) == LOCKS
        return max((busy(url) - it) / took for url, it in zip(nodes.urls, before, strict=True))


def test_a_survey_takes_no_more_of_a_node_s_time_than_it_may(full: Cluster) -> None:
    assert 0 < share(full, SHARE) <= SHARE
    # (A busy machine may be too slow to keep a node busy.)
    assert any(share(full, 0.0) > SHARE for _ in range(5)), "without a rest it takes more: the check can fail"


def pairs(client: Any, round_: int) -> list[float]:
    found = []
    for number in range(PAIRS):
        began = time.monotonic()
        client.lock(f"mine:{round_}:{number}").acquire().release(True)
        found.append(time.monotonic() - began)
    return found


def test_a_lock_whose_node_is_the_only_shard_of_a_cluster_is_said_to_be_busy_with_its_owner() -> None:
    """Such a node refuses to be asked for the owner and the note in one question."""
    with Cluster(Nodes(1, arguments=("--cluster-enabled", "yes"))) as cluster:
        assert cluster.ask(0, "CLUSTER", "ADDSLOTS", *range(16384)) == "OK"
        deadline = time.monotonic() + 10
        while "cluster_state:ok" not in cluster.ask(0, "CLUSTER", "INFO") and time.monotonic() < deadline:
            time.sleep(0.05)
        holder, client = [Holdfast(*cluster.urls, owner=it) for it in ("web-3:118", "other")]
        with holder, client, holder.lock("x", note="build 4711"):
            with pytest.raises(LockBusy, match="'x' is held by web-3:118 for up to") as caught:
                client.lock("x", wait=0).acquire()
            assert (caught.value.owner, caught.value.note) == ("web-3:118", None)
            assert client.inspect("x").note == "build 4711"
            (row,) = client.survey("*")
            assert (row.name, row.owner, row.note) == ("x", "web-3:118", "build 4711")
