"""Nodes that a function finds: the drivers ask again where they are, and leave those that are elsewhere. The same for both drivers."""

from __future__ import annotations

from collections.abc import Iterator
from unittest import mock

import pytest
from drivers.bench import FIRST_PORT, TTL, Bench, closing
from drivers.on_asyncio import AsyncioBench
from drivers.on_threads import ThreadsBench

from holdfast.protocol.claim import State

BENCHES: dict[str, type[ThreadsBench] | type[AsyncioBench]] = {"threads": ThreadsBench, "aio": AsyncioBench}
# Seconds for which an answer is good here, half of the longest ttl; and after which it is asked again.
GOOD, AGAIN = 15.0, 5.0


class Sign:
    """Says where nodes are. `moved`: nodes that are elsewhere; `down`: nobody can tell."""

    def __init__(self) -> None:
        self.asked = 0
        self.moved: set[int] = set()
        self.down = False

    def __call__(self, node: str) -> tuple[str, int]:
        self.asked += 1
        if self.down:
            raise ConnectionError
        port = int(node.rpartition(":")[2])
        return f"127.0.0.{1 + (port - FIRST_PORT in self.moved)}", port


@pytest.fixture
def sign() -> Sign:
    return Sign()


@pytest.fixture(params=BENCHES)
def bench(request: pytest.FixtureRequest, sign: Sign) -> Iterator[Bench]:
    """Each driver, with nodes that the sign finds."""
    with mock.patch.object(Bench, "resolve", staticmethod(sign)), closing(BENCHES[request.param]()) as bench:
        yield bench


def test_they_are_asked_for_again_and_again(bench: Bench, sign: Sign) -> None:
    """Also while nobody wants anything: else a client could not know that a node's server was the same all along."""
    assert sign.asked == 3, "once before each connection"
    assert [it.asks for it in bench.engine.connections] == [""] * 3, "nobody is waited for"
    bench.passes(4 * GOOD)
    assert sign.asked == pytest.approx(3 + 3 * 4 * GOOD / AGAIN, abs=6)
    assert bench.ends == []
    bench.acquired()


def test_a_node_that_is_elsewhere_is_left_at_once(bench: Bench, sign: Sign) -> None:
    call = bench.acquired()
    sign.moved.add(2)
    bench.passes(AGAIN + 0.1)
    assert bench.ends == [(2, "reset")] and call.lease.fell == 0


def test_where_nobody_can_tell_it_leases_go_on_for_as_long_as_the_answer_is_good(bench: Bench, sign: Sign) -> None:
    call = bench.acquired()
    sign.down = True
    bench.passes(GOOD - AGAIN - 0.1)
    assert bench.ends == []
    bench.passes(AGAIN + 0.2)
    assert sorted(bench.ends) == [(number, "reset") for number in range(3)]
    bench.passes(TTL)
    assert call.lease.fell == 1
    (claim,) = [it for it in bench.engine.live.values() if it.state is State.HELD] or [None]
    assert claim is None
