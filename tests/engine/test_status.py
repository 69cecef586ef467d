"""What a client says of a node before it knows anything, and of the nodes of each shard."""

from __future__ import annotations

from holdfast.engine.status import SAFE, NodeStatus, majorities


def test_of_a_node_that_has_not_answered_nothing_is_claimed() -> None:
    status = NodeStatus("redis://a", "connecting", None, "", "", None)
    assert (status.stragglers, status.repaired, status.guard_left, status.uptime, status.rtt) == (None,) * 5
    assert (status.since, status.answered, status.owing, status.warnings) == (0.0, 0, 0, ())
    assert status.guarantee == SAFE  # as far as is known


def test_a_majority_is_counted_for_each_shard() -> None:
    def node(shard: str, state: str) -> NodeStatus:
        return NodeStatus("redis://a", state, None, "", "", None, shard)

    one, two = majorities([node("a", "up"), node("b", "up"), node("a", "refusing"), node("a", "up"), node("b", "down")])
    assert (one.shard, one.spare, one.up, one.needed, one.why) == ("a", 0, 2, 2, "")
    assert (two.shard, two.spare, two.up, two.needed) == ("b", -1, 1, 2)
    assert two.why == "1 of 2 nodes are up, and 2 are needed (1 down)"
    assert min([one, two]) is two and majorities([]) == []
