"""The script by which a lease gets another owner, on simulated servers and on real ones; and what each of its lines is for."""

from __future__ import annotations

import pytest
from scripts.bench import INBOXES, LONG, NAME, SHORT, Bench, Denied, Granted, K, about, answered, keys

from holdfast.protocol.adoption import Adopted, Handover
from holdfast.protocol.command import TRY
from holdfast.scripts import ADOPT

FENCE = keys(NAME)[1]


class Node:
    """A node that has a lease of a giver."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        bench.load(ADOPT)
        self.giver, self.adopter = bench.token(1), bench.token(2, INBOXES[1])
        granted = bench.request(self.giver, LONG // 2)
        assert isinstance(granted, Granted)
        self.fence = granted.fence
        self.recipe = Adopted(Handover(NAME.decode(), self.giver, self.fence), ttl=LONG / 1000, horizon=K)

    def adopt(self, token: bytes = b"", ttl: float = LONG / 1000) -> Granted | Denied:
        return answered(self.bench.told(self.recipe.request(token or self.adopter, ttl, TRY, self.fence)))

    def take_back(self, token: bytes = b"") -> Granted | Denied:
        return answered(self.bench.told(self.recipe.release(token or self.adopter, held=False)))


@pytest.fixture
def node(bench: Bench) -> Node:
    return Node(bench)


def test_the_token_of_the_adopter_takes_the_place_and_the_fence_stays(node: Node) -> None:
    assert node.adopt() == (node.fence, 0, 0)
    seen = node.bench.see()
    assert (seen.holder, seen.fence) == (node.adopter, b"%d" % node.fence)
    assert about(seen.holder_left, LONG)
    assert node.adopt() == (node.fence, 0, 0), "said again, as after an answer that was lost"
    assert node.bench.request(node.adopter, mode="k", P=node.fence) == (node.fence, 0, 0)


def test_a_lease_is_not_made_shorter(node: Node) -> None:
    assert node.adopt(ttl=SHORT / 1000) == (node.fence, 0, 0)
    assert about(node.bench.see().holder_left, LONG // 2)


def test_the_record_outlives_the_lease(node: Node) -> None:
    node.bench.operator.say("PEXPIRE", FENCE, LONG // 2)
    node.adopt()
    seen = node.bench.see()
    assert seen.fence_left >= seen.holder_left


def test_a_record_that_was_lost_begins_again_at_the_fence(node: Node) -> None:
    node.bench.operator.say("DEL", FENCE)
    assert node.adopt() == (node.fence, 0, 0)
    seen = node.bench.see()
    assert seen.fence == b"%d" % node.fence and seen.fence_left >= seen.holder_left


def test_one_adopts_and_another_is_denied(node: Node) -> None:
    node.adopt()
    other = node.bench.token(3)
    denied = node.adopt(other)
    assert isinstance(denied, Denied) and (denied.holder, denied.place) == (node.adopter, -1)
    assert node.bench.see().holder == node.adopter and not node.bench.see().queue


def test_what_has_run_out_is_not_adopted(node: Node) -> None:
    node.bench.operator.say("DEL", NAME)
    assert isinstance(node.adopt(), Denied)
    assert node.bench.see().holder in (b"", None), "nothing is taken that is free"


def test_a_fence_that_has_risen_denies(node: Node) -> None:
    """Rule H3: somebody may have held it since, and a late command of the giver has come back."""
    other = node.bench.token(3)
    node.bench.release(node.giver)
    node.bench.request(other)
    node.bench.release(other)
    node.bench.request(node.giver, mode="k", P=node.fence)
    assert node.bench.see().holder == node.giver
    assert isinstance(node.adopt(), Denied)


def test_what_came_to_nothing_is_taken_back(node: Node) -> None:
    """Rule H4: the ticket can be adopted again, and lasts no longer for that."""
    node.adopt(ttl=LONG / 1000)
    assert node.take_back() == (node.fence, 0, 0)
    seen = node.bench.see()
    assert (seen.holder, seen.fence) == (node.giver, b"%d" % node.fence)
    assert about(seen.holder_left, LONG)
    assert node.take_back() == (node.fence, 0, 0), "said again"
    other = node.bench.token(3)
    assert node.adopt(other) == (node.fence, 0, 0)
    assert isinstance(node.take_back(), Denied), "what another has by now stays"
    assert node.bench.see().holder == other
