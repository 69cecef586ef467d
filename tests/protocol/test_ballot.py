"""What is asked of the nodes for one token, where no conversation of a claim shows it."""

from __future__ import annotations

import pytest
from protocol.conversation import TTL, Mute, P, node_set

from holdfast.protocol.answer import Granted
from holdfast.protocol.ballot import Ballot
from holdfast.protocol.command import READER, RELEASE, WAIT, WRITER, Command
from holdfast.protocol.nodes import Standing
from holdfast.protocol.ticket import Tickets
from holdfast.protocol.vote import Vote


class Poll(Ballot):
    """A ballot that hears no answers: the tests change its votes."""

    __slots__ = ()

    def answered(self, node: int, command: Command, reply: object, now: float) -> bool:
        raise AssertionError("nobody answers here")

    def said(self) -> list[tuple[tuple[int, ...], bytes, bytes, int, float]]:
        """What was said since the last look: to whom, how, about which token, proposing what, for how long."""
        said, self.sends = self.sends, []
        return [(tuple(nodes), it.mode, it.token, it.fence, it.ttl) for nodes, it in said]


def poll(nodes: int = 3, *, kind: bytes = b"", standing: dict[int, Standing] | None = None) -> Poll:
    """One whose votes are kept apart."""
    made = Poll(Mute(kind=kind), TTL, P, Tickets(b"a" * 32), node_set(nodes, standing or {}), True)  # type: ignore[arg-type]  # (a stand-in)
    made._unfold()
    return made


def grant(vote: Vote, fence: int = P) -> None:
    vote.answered(1.0, 9.9)
    vote.grants(Granted(fence, False, True), True, 1.5)


# ---------------------------------------------------------------- what it proposes


@pytest.mark.parametrize("floor, handed_over, proposed", [(P + 3, 0, P + 4), (P - 3, 0, P), (P + 3, P, P)])
def test_it_proposes_more_than_the_floor_unless_the_lease_was_handed_over(floor: int, handed_over: int, proposed: int) -> None:
    it = poll()
    it._node_set.floor = floor
    it.recipe.proposes = handed_over  # type: ignore[misc]  # (a stand-in)
    it._rise()
    it._ask((0,), WAIT, 1.0)
    assert [fence for _, _, _, fence, _ in it.said()] == [proposed]


# ---------------------------------------------------------------- asking


@pytest.mark.parametrize("now, clock", [(0.0, P), (2.5, P + 2_500_000)])
def test_a_request_tells_the_time_by_the_tickets_clock(now: float, clock: int) -> None:
    it = poll()
    command = it._request(WAIT, TTL, now, watch=True)
    assert (command.clock, command.watch, command.owner, command.sent) == (clock, True, it, now)


def test_the_largest_fence_is_proposed_once_to_those_that_have_less() -> None:
    """Rule F9."""
    it = poll(5, standing={4: Standing.DOWN})
    grant(it.votes[0], P + 5)
    grant(it.votes[1], P)
    it._write_back(2.0)
    assert it.said() == [], "two of five do not decide"
    grant(it.votes[4], P + 1)
    it._write_back(2.0)
    assert it.said() == [((1,), WAIT, it.token, P + 5, TTL)]
    assert (it._propose, it._largest) == (P + 5, P + 5)
    it._write_back(2.0)
    assert it.said() == []


# ---------------------------------------------------------------- another token


def test_a_new_start_queues_before_the_old_token_leaves() -> None:
    """Rule Q11."""
    it = poll()
    it._ask((0, 1), WAIT, 0.5)
    grant(it.votes[0])
    it.counted = 1
    it.said()
    old = it.token
    assert it._start_over(2.0)
    assert it.token[:49] == old[:49]
    assert it.token != old
    assert it.said() == [((0, 1, 2), WAIT, it.token, P, TTL), ((0, 1), RELEASE, old, 0, 0.0)]
    assert (it.counted, [vote.granted for vote in it.votes]) == (0, [False] * 3)


def test_a_writer_turns_reader_with_a_fence_above_every_writers() -> None:
    """Rule D2."""
    it = poll(kind=WRITER)
    grant(it.votes[0])
    it.fence = P
    it._share()
    assert it.token.endswith(READER)
    assert (it._propose, it._largest, it.votes[0].fence, it.votes[1].fence) == (P + 1, P + 1, P + 1, 0)
