"""The script by which a lock is given back at a later time, on simulated servers and on real ones; and what each of its lines is for."""

from __future__ import annotations

import pytest
from scripts.bench import LONG, NAME, SHORT, Bench, Granted, K, about, keys

from holdfast.protocol.exclusive import Exclusive
from holdfast.scripts import RETIRE

REST = 60_000  # ms: longer than any lease
FENCE = keys(NAME)[1]


class Node:
    """A node, and a holder."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        bench.load(RETIRE)
        self.recipe = Exclusive(NAME.decode(), ttl=LONG / 1000, horizon=K).lasting()
        self.token = bench.token(1)
        assert isinstance(bench.request(self.token), Granted)

    def retire(self, token: bytes, rest: float = REST / 1000) -> int:
        answer: int = self.bench.told(self.recipe.release(token, rest=rest))
        return answer


@pytest.fixture
def node(bench: Bench) -> Node:
    return Node(bench)


def test_it_is_taken_for_what_is_left_and_no_longer(node: Node) -> None:
    assert node.retire(node.token, LONG / 2000) == 1
    assert about(node.bench.see().holder_left, LONG // 2), "also if its lease was longer"
    assert node.retire(node.token, SHORT / 1000) == 1
    node.bench.lapse()
    other = node.bench.token(2)
    granted = node.bench.request(other)
    assert isinstance(granted, Granted) and granted.fence > int(node.token[:16])


def test_it_is_taken_for_longer_than_its_lease(node: Node) -> None:
    fence_left = node.bench.operator.say("PTTL", FENCE)
    assert node.retire(node.token) == 1
    holder, left, later = node.bench.operator.batch(("GET", NAME), ("PTTL", NAME), ("PTTL", FENCE))
    assert holder == node.token and about(left, REST)
    assert later <= fence_left, "its record is for those who renew"


def test_the_least_rest_is_a_millisecond(node: Node) -> None:
    assert node.retire(node.token, 1e-9) == 1


def test_another_s_lock_stays_as_it_is(node: Node) -> None:
    other = node.bench.token(2)
    node.bench.request(other)
    assert node.bench.see().queue
    assert node.retire(other) == 0
    seen = node.bench.see()
    assert (seen.holder, seen.queue) == (node.token, {}), "it waits no longer"
    assert about(seen.holder_left, LONG)
