"""Repair: readers and `repair()` write back what a node has forgotten, and clients warn of nodes that forget; over every driver."""

from __future__ import annotations

from typing import Any

from contract.cluster import Cluster
from contract.faces import Face

YEAR = 365 * 86400.0


def keys(nodes: Cluster, node: int) -> set[str]:
    """What a node keeps, but for locks' fences and the client's notes."""
    found = nodes.ask(node, "SCAN", 0, "COUNT", 10_000)[1]
    return {it for it in found if not it.startswith("{holdfast}") and not it.endswith(":fence") and ":repaired:" not in it}


def uses(face: Face, client: Any) -> list[Any]:
    """One of each primitive that keeps something."""
    return [
        (client.once("order:7", keep=YEAR).run, face.function(lambda: "shipped")),
        (client.fill("price", YEAR, lambda: "a value").get,),
        (client.rate("quota", 5, YEAR, key="ben").take,),
        (client.rate("quota", 5, YEAR, algorithm="fixed window").take,),
        (client.latch("latch", 2).arrive, "a"),
        (client.latch("open", 1).arrive, "a"),
        (client.barrier("barrier", 1).wait, "a"),
    ]


async def all_used(face: Face, nodes: Cluster, client: Any) -> None:
    """Use all of them, and wait until every node keeps the same."""
    for call in uses(face, client):
        await face.call(*call)
    await face.until(lambda: keys(nodes, 0) == keys(nodes, 1) == keys(nodes, 2))


async def test_all_registers_of_a_node_are_written_back(face: Face, three: Cluster) -> None:
    client = await face.connected(three)
    await all_used(face, three, client)
    before = keys(three, 0)
    three.ask(1, "FLUSHALL")
    assert not any(it.repaired for it in client.nodes())
    repaired = await face.call(client.repair, 0)
    assert keys(three, 1) >= {it for it in before if ":arrived" not in it or "latch" in it}
    assert (repaired.found, repaired.mended, repaired.lacking) == (7, 7, 0)
    assert (repaired.nodes, repaired.left_out) == (three.urls, ())
    assert [it.repaired for it in client.nodes()] == [True] * 3
    again = await face.call(client.repair, 0)
    assert (again.found, again.mended, again.lacking) == (7, 0, 0)


async def test_what_was_written_back_is_what_others_have(face: Face, three: Cluster) -> None:
    client = await face.connected(three)
    await all_used(face, three, client)
    three.ask(2, "FLUSHALL")
    await face.call(client.repair, 0)
    for key, one in (("{order:7[once]}:result", "shipped"), ("{price[fill]}:cache", "a value")):
        assert three.ask(2, "GET", key) == three.ask(0, "GET", key)
        assert one in three.ask(2, "GET", key)
        # The original first: its time runs while the copy is asked.
        original = three.ask(0, "PTTL", key)
        assert YEAR * 1000 - 100_000 < three.ask(2, "PTTL", key) <= original
    for key in ("{quota}:rate:5/31536000/5:ben", "{quota}:window:5/31536000"):
        mine, others = (three.ask(node, "GET", key).split() for node in (2, 0))
        assert abs(int(mine[0]) - int(others[0])) < 5e6
    for node in (0, 1):
        three.ask(node, "FLUSHALL")  # of arrivals one node is enough
    await face.call(client.repair, 0)
    assert await face.call(client.latch("open", 1).is_open)
    assert await face.call(client.latch("latch", 2).arrived) == 1
    assert await face.call(client.barrier("barrier", 1).wait, "a") == 1


async def test_a_reader_writes_back_what_it_hears_a_node_lacks(face: Face, three: Cluster) -> None:
    client = await face.connected(three)
    calls = uses(face, client)[:5]
    for call in calls:
        await face.call(*call)
    await face.until(lambda: keys(three, 0) == keys(three, 1) == keys(three, 2))
    before = keys(three, 1)
    three.ask(1, "FLUSHALL")
    latch = client.latch("latch", 2)
    until = face.now() + 60
    while keys(three, 1) < before:
        assert face.now() < until, f"still lacking: {before - keys(three, 1)}"
        for call in calls[:4]:
            await face.call(*call)
        await face.call(latch.arrived)
        await face.sleep(0.05)


async def test_a_reader_of_an_open_latch_has_it_written_back(face: Face, three: Cluster) -> None:
    """A node that forgot it gets it back, while others ask whether it is open."""
    client = await face.connected(three)
    latch = client.latch("open", 1)
    await face.call(latch.arrive, "a")
    await face.until(lambda: keys(three, 0) == keys(three, 1) == keys(three, 2))
    before = keys(three, 1)
    three.ask(1, "FLUSHALL")
    until = face.now() + 60
    while not keys(three, 1) >= {it for it in before if ":arrived" not in it}:
        assert face.now() < until
        await face.call(latch.is_open)
        await face.sleep(0.05)


async def test_names_of_another_prefix_are_left_alone(face: Face, three: Cluster) -> None:
    mine, theirs = await face.connected(three, prefix="app:"), await face.connected(three, prefix="other:")
    for client in (mine, theirs):
        await face.call(*uses(face, client)[0])
    await face.until(lambda: keys(three, 0) == keys(three, 1) == keys(three, 2))
    three.ask(1, "FLUSHALL")
    repaired = await face.call(mine.repair, 0)
    assert (repaired.found, repaired.mended) == (1, 1)
    assert keys(three, 1) == {"{app:order:7[once]}:result"}


async def test_another_client_is_told_which_nodes_were_repaired(face: Face, three: Cluster) -> None:
    await face.call((await face.connected(three)).repair, 0)
    other = await face.connected(three)
    assert [it.repaired for it in await face.ready(other)] == [it.repaired for it in other.nodes()] == [True] * 3
    await three.restart(2)
    third = face.client(three, restart_guard=None)
    assert [it.repaired for it in await face.ready(third)] == [True, True, False]
