"""Nodes and connections in virtual time: what arrives, when, in which order, and what breaks."""

from __future__ import annotations

from swarm.nodes import ReplaceableNode

from holdfast.testing.network import WALL, Node, SimulatedConnection
from holdfast.testing.world import DriftingClock, World
from holdfast.wire.resp import pack


class Peer:
    """Who is at the other end, and keeps what it was told."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.told: list[tuple[float, str]] = []
        self.data = b""

    def connected(self, link: SimulatedConnection) -> None:
        self.told.append((self.world.now, "connected"))

    def heard(self, link: SimulatedConnection, data: bytes) -> None:
        self.data += data

    def lost(self, link: SimulatedConnection, cause: Exception) -> None:
        self.told.append((self.world.now, type(cause).__name__))

    @property
    def words(self) -> list[str]:
        return [word for _, word in self.told]


def connection(seed: int = 0) -> tuple[World, ReplaceableNode, Peer, SimulatedConnection]:
    world = World(seed)
    node = ReplaceableNode(world, 0, DriftingClock(world, WALL))
    peer = Peer(world)
    link = SimulatedConnection(world, peer, node)
    world.run(0.1)
    assert peer.words == ["connected"]
    return world, node, peer, link


def set_key(key: bytes, value: bytes = b"v") -> bytes:
    return pack(b"SET", key, value, b"PX", b"60000")


def keys(node: Node) -> set[bytes]:
    return set(node.keys())


def test_bytes_arrive_in_order_each_way_however_long_they_take() -> None:
    world, node, peer, link = connection()
    world.slow = 0.5
    for number in range(50):
        link.send(set_key(b"k", b"%d" % number))
        link.send(pack(b"GET", b"k"))
    world.run(20.0)
    assert peer.data == b"".join(b"+OK\r\n$%d\r\n%d\r\n" % (len(str(number)), number) for number in range(50))
    assert node.holder(b"k") == b"49"


def test_a_promotion_forgets_what_was_not_received_and_the_process_is_old() -> None:
    world, node, peer, link = connection()
    link.send(set_key(b"k"))
    world.run(0.2)
    before = node.server
    node.promote()
    world.run(0.5)
    assert peer.words == ["connected", "ConnectionResetError"]
    assert node.keys() == []
    assert node.server.uptime() == before.uptime() and node.server.run_id != before.run_id
    assert (len(before.reigns), len(node.server.reigns)) == (1, 2)


def test_an_old_primary_goes_on_with_its_connections_until_it_stops() -> None:
    world, node, peer, link = connection()
    link.send(set_key(b"k"))
    world.run(0.2)
    before = node.server
    node.promote(outlives=1.0)
    link.send(set_key(b"late"))
    world.run(0.9)
    assert peer.words[0] == "connected" and "ConnectionResetError" not in peer.words
    assert set(before.data[0].values) == {b"k", b"late"}
    assert node.keys() == [] and node.old is before
    assert {key for key, _ in node.had} == {b"k", b"late"}, "laws take the two for one node"
    assert {node.leads_to() for _ in range(50)} == {before, node.server}
    world.run(1.5)
    assert peer.words[-1] == "ConnectionResetError"
    assert node.old is None and node.leads_to() is node.server


def test_a_restart_with_a_snapshot_keeps_everything_but_the_process() -> None:
    world, node, peer, link = connection()
    link.send(set_key(b"k") + pack(b"SCRIPT", b"LOAD", b"return 1"))
    world.run(0.2)
    before = node.server
    node.restart(lost=0.0)
    world.run(0.5)
    assert node.holder(b"k") == b"v"
    assert node.woke == {b"k": b"v"}
    assert node.had == {(b"k", b"v"): 0.2}
    assert (node.server.run_id != before.run_id, node.server.uptime(), node.server.scripts) == (True, 0, set())
    assert peer.words == ["connected", "ConnectionResetError"]
    assert node.server.data[0].deadlines[b"k"] == before.data[0].deadlines[b"k"]


def test_a_node_that_is_rolled_back_is_the_same_run_a_moment_earlier() -> None:
    world, node, peer, link = connection()
    node.keeps, run = True, node.server.run_id
    for number in range(20):
        link.send(set_key(b"k", b"%d" % number))
        world.run(world.now + 0.1)
    node.roll_back(0.45)
    node.take(link, set_key(b"late"))
    assert node.holder(b"late") == b"v", "what arrives late is executed on what there is now"
    world.run(world.now + 0.1)
    assert (node.holder(b"k"), node.server.run_id, peer.words) == (b"15", run, ["connected", "ConnectionResetError"])


def test_a_server_that_starts_while_its_clock_is_set_tells_a_longer_uptime() -> None:
    world, node, _, _ = connection()
    node.restart(behind=60.0)
    assert (node.server.uptime(), node.born) == (60, world.now)


def test_a_node_that_closes_a_connection_says_so_after_its_last_answer() -> None:
    world, node, peer, link = connection()
    link.send(set_key(b"a"))
    world.run(link.arrives)
    link.send(set_key(b"b"))
    link.finish()
    world.run(world.now + 0.1)
    assert (peer.data, peer.words, keys(node)) == (b"+OK\r\n", ["connected", "ConnectionError"], {b"a"})


def test_what_a_broken_connection_had_sent_is_not_executed_by_the_process_that_follows() -> None:
    for seed in range(10):
        world, node, _, link = connection(seed)
        link.send(set_key(b"a"))
        link.cut(late=1.0)
        node.restart(lost=0.0)
        world.run(5.0)
        assert node.keys() == []
        assert "commands executed after their connection broke" not in world.seen


def test_a_node_that_lags_takes_longer_both_ways() -> None:
    world, node, peer, link = connection()
    node.lag = 0.5
    link.send(set_key(b"a"))
    world.run(0.6)
    assert node.keys() == []
    world.run(0.7)
    assert (keys(node), peer.data) == ({b"a"}, b"")
    world.run(1.2)
    assert peer.data == b"+OK\r\n"


def test_a_node_is_healed_whatever_is_wrong_with_it() -> None:
    world, node, _, _ = connection()
    node.stop()
    node.heal()
    assert node.running
    node.freeze(1e6)
    node.vanish(1e6)
    node.lag, node.server.refuse[b"SET"] = 0.5, b"OOM no"
    node.heal()
    peer = Peer(world)
    link = SimulatedConnection(world, peer, node)
    world.run(world.now + 0.1)
    link.send(set_key(b"a"))
    world.run(world.now + 0.1)
    assert (peer.words, peer.data, keys(node)) == (["connected"], b"+OK\r\n", {b"a"})


def test_a_stopped_process_that_is_killed_leaves_no_stopped_one() -> None:
    world, node, _, _ = connection()
    node.freeze(5.0)
    node.restart()
    link = SimulatedConnection(world, Peer(world), node)
    world.run(world.now + 0.1)
    link.send(set_key(b"a"))
    world.run(world.now + 0.1)
    assert keys(node) == {b"a"}


def test_flights_are_kept_with_their_times_and_those_that_never_land() -> None:
    world, _, peer, link = connection()
    link.send(set_key(b"a"))
    world.run(0.2)
    link.send(set_key(b"b"))
    link.cut()
    world.run(1.0)
    first, answer, second = world.flights
    assert (first.sender, answer.sender, first.data, answer.data) == (peer, link.node, set_key(b"a"), b"+OK\r\n")
    assert first.leaves < (first.lands or 0.0) <= answer.leaves < (answer.lands or 0.0)
    assert (second.data, second.lands) == (set_key(b"b"), None)


def test_a_node_that_does_not_run_refuses() -> None:
    world, node, _, _ = connection()
    node.stop()
    peer = Peer(world)
    SimulatedConnection(world, peer, node)
    world.run(1.0)
    assert peer.words == ["ConnectionRefusedError"]
    node.start()
    SimulatedConnection(world, peer, node)
    world.run(2.0)
    assert peer.words[-1] == "connected"


def test_a_frozen_node_takes_connections_and_executes_everything_when_it_runs_again() -> None:
    world, node, peer, link = connection()
    node.freeze(5.0)
    link.send(set_key(b"a"))
    link.send(set_key(b"b"))
    other = Peer(world)
    SimulatedConnection(world, other, node).send(set_key(b"nobody is there yet"))
    world.run(4.0)
    assert other.words == ["connected"]
    assert (node.keys(), peer.data) == ([], b"")
    world.run(6.0)
    assert keys(node) >= {b"a", b"b"}
    assert peer.data == b"+OK\r\n+OK\r\n"


def test_what_waits_for_a_frozen_node_dies_with_it() -> None:
    world, node, _, link = connection()
    node.freeze(2.0)
    link.send(set_key(b"a"))
    world.run(1.0)
    node.restart()
    world.run(3.0)
    assert node.keys() == []


def test_a_node_that_cannot_be_reached_says_nothing_and_nobody_is_told() -> None:
    world, node, peer, link = connection()
    node.vanish(5.0)
    link.send(set_key(b"a"))
    other = Peer(world)
    SimulatedConnection(world, other, node)
    world.run(10.0)
    assert (peer.words, other.words, node.keys()) == (["connected"], [], [])
    SimulatedConnection(world, other, node)
    world.run(11.0)
    assert other.words == ["connected"]


def test_half_open_connections() -> None:
    world, node, peer, link = connection()
    link.mute = True
    link.send(set_key(b"a"))
    world.run(1.0)
    assert (node.keys(), peer.data) == ([b"a"], b"")
    link.deaf = True
    link.send(set_key(b"b"))
    world.run(2.0)
    assert node.keys() == [b"a"]
    link.cut()
    world.run(3.0)
    assert peer.words == ["connected"]


def test_a_stalled_connection_is_late() -> None:
    world, node, peer, link = connection()
    link.stall(1.0)
    link.send(set_key(b"a"))
    world.run(1.0)
    assert node.keys() == []
    world.run(1.2)
    assert node.keys() == [b"a"]
    link.stall(1.0, answers_only=True)
    link.send(set_key(b"b"))
    world.run(1.3)
    assert keys(node) == {b"a", b"b"}
    assert peer.data == b"+OK\r\n"


def test_what_is_under_way_when_a_connection_is_cut_is_lost() -> None:
    world, node, peer, link = connection()
    link.send(set_key(b"a"))
    link.cut()
    link.cut()
    link.send(set_key(b"b"))
    world.run(5.0)
    assert node.keys() == []
    assert peer.words == ["connected", "ConnectionResetError"]
    assert not node.links


def test_or_it_is_executed_late_as_far_as_it_came() -> None:
    came = []
    for seed in range(40):
        world, node, peer, link = connection(seed)
        link.send(set_key(b"a") + set_key(b"b"))
        link.cut(late=3.0)
        world.run(3.0)
        assert node.keys() == []
        world.run(5.0)
        assert peer.data == b""
        came.append(frozenset(node.keys()))
        assert world.seen["commands executed after their connection broke"] == 1
    assert set(came) == {frozenset(), frozenset({b"a"}), frozenset({b"a", b"b"})}


def test_answers_that_were_under_way_when_it_was_cut_may_come_or_not() -> None:
    came = set()
    for seed in range(20):
        world, _, peer, link = connection(seed)
        link.send(set_key(b"a"))
        world.run(world.now + 0.002)
        link.cut()
        world.run(1.0)
        came.add(peer.data)
    assert came == {b"", b"+OK\r\n"}


def test_hanging_up_what_was_said_still_arrives_and_nothing_is_heard() -> None:
    world, node, peer, link = connection()
    link.send(set_key(b"a"))
    link.hang_up()
    link.hang_up()
    link.send(set_key(b"b"))
    world.run(1.0)
    assert node.keys() == [b"a"]
    assert (peer.words, peer.data) == (["connected"], b"")
    assert not node.links
    assert world.seen == {"commands executed after their connection broke": 1}


def test_hanging_up_while_dialling() -> None:
    world, node, _, _ = connection()
    peer = Peer(world)
    link = SimulatedConnection(world, peer, node)
    link.hang_up()
    link.cut()
    world.run(1.0)
    assert peer.words == []
