"""What nodes remember of what is done once, and of counts, when all of them die."""

from __future__ import annotations

from holdfast import Holdfast
from holdfast.embedded import Nodes


def outcomes(nodes: Nodes) -> tuple[bool, bool]:
    """Do a result and a count outlive the restart of all nodes at once? No guard: this asks what nodes remember."""
    with Holdfast(*nodes.urls, restart_guard=None) as client:
        client.once("kept", keep=600).run(lambda: "the result")
        counted = client.rate("counted", 3, 600)
        assert all(counted.take() for _ in range(3))
        # What a majority has answered may still be on its way to the rest: `kill` would drop it there.
        assert client.once("kept", keep=600).result()
    for node in range(len(nodes)):
        nodes.kill(node)
    for node in range(len(nodes)):
        nodes.restart(node)
    with Holdfast(*nodes.urls, restart_guard=None) as client:
        client.ready(wait=30)
        return bool(client.once("kept", keep=600).result()), not client.rate("counted", 3, 600).take()


def test_nodes_that_save_everything_remember_results_and_counts_though_all_of_them_die() -> None:
    with Nodes(3, arguments=("--appendonly", "yes", "--appendfsync", "always")) as nodes:
        assert outcomes(nodes) == (True, True)


def test_nodes_that_save_nothing_forget_them() -> None:
    with Nodes(3) as nodes:
        assert outcomes(nodes) == (False, False)
