"""A survey of a real server that refuses what a survey asks of others."""

from __future__ import annotations

import pytest
from contract.cluster import Cluster
from nemesis.processes import until

from holdfast import Holdfast
from holdfast.embedded import Nodes
from holdfast.errors import LockBusy


def test_a_lock_whose_node_is_the_only_shard_of_a_cluster_is_said_to_be_busy_with_its_owner() -> None:
    """Such a node refuses to be asked for the owner and the note in one question."""
    with Cluster(Nodes(1, arguments=("--cluster-enabled", "yes"))) as cluster:
        assert cluster.ask(0, "CLUSTER", "ADDSLOTS", *range(16384)) == "OK"
        until(lambda: "cluster_state:ok" in cluster.ask(0, "CLUSTER", "INFO"))
        holder, client = [Holdfast(*cluster.urls, owner=it) for it in ("web-3:118", "other")]
        with holder, client, holder.lock("x", note="build 4711"):
            with pytest.raises(LockBusy, match="'x' is held by web-3:118 for up to") as caught:
                client.lock("x", wait=0).acquire()
            assert (caught.value.owner, caught.value.note) == ("web-3:118", None)
            assert client.inspect("x").note == "build 4711"
            (row,) = client.survey("*")
            assert (row.name, row.owner, row.note) == ("x", "web-3:118", "build 4711")
