"""What happened, for people."""

from __future__ import annotations

import re

import pytest
from swarm.explore import explore

from holdfast.protocol.exclusive import Exclusive
from holdfast.testing.network import Node
from holdfast.testing.timeline import kind_of, timeline
from holdfast.testing.world import BytesInFlight, DriftingClock, World
from holdfast.wire.resp import pack

TOKEN = b"1800000001500343:6970159142ac030c1b901e7842d60baa:0000001f"
LOCK = Exclusive("x", ttl=1.0, horizon=1500)


def told(*details: object) -> str:
    world = World(0)
    world.note("client", "sends to", "node 0", *details)
    (line,) = timeline(world)
    return line.partition("node 0 ")[2]


def test_commands() -> None:
    assert told(LOCK.request(TOKEN, 1.0, b"c", 5)) == "cede x 1500343.6970.1f ttl 1000 P 0000000000000005"
    assert told(LOCK.request(TOKEN, 1.0, b"k", 5)) == "keep x 1500343.6970.1f ttl 1000 P 0000000000000005"
    assert told(LOCK.release(TOKEN) + pack(b"SCRIPT", b"LOAD", b"x" * 1000)) == "release x 1500343.6970.1f | SCRIPT LOAD"
    assert told(pack(b"DEL", b"x")) == "DEL x"


def test_answers_and_pushes() -> None:
    assert told(b"*3\r\n:5\r\n:0\r\n:1\r\n") == "[5, 0, 1]"
    assert told(b"+OK\r\n$100\r\n" + b"x" * 100 + b"\r\n") == "OK | ..."
    message = b"g %b 7 x" % TOKEN
    assert told(b">3\r\n$7\r\nmessage\r\n$1\r\ni\r\n$%d\r\n%b\r\n" % (len(message), message)) == "push g 1500343.6970.1f 7 x"


def test_pieces_of_them() -> None:
    assert told(b"5\r\n:1\r\n") == "5 ; :1 ; "
    assert told(b"*3\r\n:5\r\n") == ""
    assert told(b":0000000a 5 x\r\n") == ":0000000a 5 x ; "


def test_other_things_and_the_last_lines_only() -> None:
    world = World(0)
    world.note("node 1", "is killed")
    world.note("client", "has news of", TOKEN, "HELD", 5, "")
    assert list(timeline(world)) == ["  0.000000  node 1 is killed ", "  0.000000  client has news of 1500343.6970.1f HELD 5"]
    assert list(timeline(world, 1)) == ["  0.000000  client has news of 1500343.6970.1f HELD 5"]


def test_a_part_of_what_happened() -> None:
    world = World(0)
    for world.now in (0.5, 1.0, 1.5, 2.0, 2.5):
        world.note("node 1", "is killed")
    assert [it.split()[0] for it in timeline(world, begins=1.0, ends=2.0)] == ["1.000000", "1.500000", "2.000000"]


@pytest.mark.parametrize(
    "data, of_client, of_node",
    [
        (LOCK.request(TOKEN, 1.0, b"c", 5), "make", "other"),
        *[(LOCK.request(TOKEN, 1.0, mode, 5), "ask", "other") for mode in (b"w", b"k", b"t")],
        (LOCK.release(TOKEN), "give", "other"),
        (b">1\r\n$3\r\ng 1\r\n", "other", "push"),
        (b">1\r\n$3\r\nz 1\r\n", "other", "other"),
        (b"$16\r\n1800000000000001\r\n", "other", "yes"),
        (b"+OK\r\n*3\r\n:1234567\r\n:1\r\n:0\r\n", "other", "yes"),
        (b"*3\r\n:0\r\n:-2\r\n:4\r\n", "other", "no"),
        (b":1\r\n", "other", "other"),
    ],
)
def test_kinds_of_messages(data: bytes, of_client: str, of_node: str) -> None:
    node = Node(world := World(0), 0, DriftingClock(world, 0.0))
    assert [kind_of(BytesInFlight(0.0, sender, None, data)) for sender in ("client", node)] == [of_client, of_node]


def test_readers_and_writers_are_told_like_others() -> None:
    stage = explore(0, kind="shared", quick=True)
    stage.run()
    text = "\n".join(timeline(stage.world))
    assert "EVALSHA" not in text
    for what in ("wait", "try", "release"):
        for kind in "rw":
            assert re.search(rf" sends to node 0 .*\b{what} L \d+\.[0-9a-f]{{4}}\.[0-9a-f]+:{kind}", text), (what, kind)
