"""What is asked of the nodes for one token, and how what they said is counted."""

from __future__ import annotations

from math import inf

import pytest
from protocol.conversation import HORIZON, TTL, Mute, P, node_set

from holdfast.protocol.answer import Denied, Granted
from holdfast.protocol.ballot import Ballot
from holdfast.protocol.command import CEDE, READER, RELEASE, TRY, WAIT, WRITER, Command
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


def poll(nodes: int = 3, *, patient: bool = True, kind: bytes = b"", standing: dict[int, Standing] | None = None) -> Poll:
    """One whose votes are kept apart."""
    made = Poll(Mute(kind=kind), TTL, P, Tickets(b"a" * 32), node_set(nodes, standing or {}), patient)  # type: ignore[arg-type]  # (a stand-in)
    made._unfold()
    return made


def grant(vote: Vote, fence: int = P, *, lower: bool = False, since: float = 1.5) -> None:
    vote.answered(1.0, 9.9)
    vote.grants(Granted(fence, lower, True), True, since)


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


def test_whom_it_asks_may_know_the_token_and_owes_an_answer() -> None:
    it = poll()
    assert it._ask((2,), WAIT, 0.5)
    assert it._ask((0, 2), TRY, 0.5, ttl=3.0)
    assert it._may_know == [0, 2]
    assert [vote.owed for vote in it.votes] == [1, 0, 2]
    assert it.said() == [((2,), WAIT, it.token, P, TTL), ((0, 2), TRY, it.token, P, 3.0)]
    assert it._ask((), WAIT, 0.5)
    assert it.said() == []


@pytest.mark.parametrize("now, clock", [(0.0, P), (2.5, P + 2_500_000)])
def test_a_request_tells_the_time_by_the_tickets_clock(now: float, clock: int) -> None:
    it = poll()
    command = it._request(WAIT, TTL, now, watch=True)
    assert (command.clock, command.watch, command.owner, command.sent) == (clock, True, it, now)


@pytest.mark.parametrize("heard", [True, False])
def test_a_release_is_heard_of_by_whoever_waits_for_it(heard: bool) -> None:
    it = poll()
    assert it._undo((0, 1), 0.5, heard)
    ((nodes, command),) = it.sends
    assert (nodes, command.mode, command.owner) == ((0, 1), RELEASE, it if heard else None)


def test_it_makes_way_where_it_counts_and_a_lower_ticket_waits() -> None:
    """Rule Q8."""
    it = poll(4, standing={3: Standing.DOWN})
    grant(it.votes[0])
    grant(it.votes[1], lower=True)
    grant(it.votes[3], lower=True)
    it.votes[2].inquires()
    it._cede(2.0)
    assert it.said() == [((1,), CEDE, it.token, P, TTL)]
    assert [vote.ceding for vote in it.votes] == [False, True, False, False]


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


def test_a_try_writes_back_as_a_try() -> None:
    it = poll(patient=False)
    grant(it.votes[0], P + 5)
    grant(it.votes[1], P)
    it._write_back(2.0)
    assert it.said() == [((1,), TRY, it.token, P + 5, TTL)]


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


def test_a_token_that_nobody_knows_need_not_leave() -> None:
    it = poll()
    it._start_over(2.0)
    assert [mode for _, mode, *_ in it.said()] == [WAIT]


def test_a_writer_turns_reader_with_a_fence_above_every_writers() -> None:
    """Rule D2."""
    it = poll(kind=WRITER)
    grant(it.votes[0])
    it.fence = P
    it._share()
    assert it.token.endswith(READER)
    assert (it._propose, it._largest, it.votes[0].fence, it.votes[1].fence) == (P + 1, P + 1, P + 1, 0)


# ---------------------------------------------------------------- counting


def test_what_was_only_counted_is_kept_apart() -> None:
    it = Poll(Mute(), TTL, P, Tickets(b"a" * 32), node_set(3, {}), True)  # type: ignore[arg-type]  # (a stand-in)
    assert it.as_usual == []
    it._base = 8.9
    it._may_know = (0, 1)
    it.as_usual.append(1)
    assert (it.counting(8.8), it.counting(8.9)) == (1, 0)
    it._unfold()
    assert it.as_usual is None
    assert [(vote.granted, vote.owed) for vote in it.votes] == [(False, 1), (True, 0), (False, 0)]
    assert it.counted == 1
    assert (it.counting(8.8), it.counting(8.9)) == (1, 0)


def test_a_fence_may_be_ahead_by_one_and_a_half_horizons() -> None:
    """Rule F5."""
    it = poll()
    it.began = 1.0
    assert it.latest(3.5) == P + 2_500_000 + HORIZON * 1500


@pytest.mark.parametrize(
    "standing, hopeless",
    [(Standing.UP, False), (Standing.CONNECTING, False), (Standing.GUARDED, True), (Standing.DOWN, True)],
)
def test_when_a_try_is_hopeless(standing: Standing, hopeless: bool) -> None:
    """Rule Q15."""
    it = poll(standing={2: standing})
    assert not it._hopeless() or hopeless
    it.votes[0].answered(1.0, 9.9)
    it.votes[0].denies(Denied(5000, 1, None), 1.5)
    assert it._hopeless() is hopeless
    it.votes[0].grants(Granted(P, False, True), True, 1.5)
    assert not it._hopeless()


@pytest.mark.parametrize(
    "standing, away",
    [(Standing.UP, False), (Standing.CONNECTING, False), (Standing.GUARDED, False), (Standing.DOWN, True)],
)
def test_when_too_few_nodes_are_of_use(standing: Standing, away: bool) -> None:
    """Rule C17: a guarded node will be."""
    it = poll(standing={2: standing})
    assert not it._away()
    it.votes[0].failed(Exception("OOM"))
    assert it._away() is away


def test_when_the_first_of_the_holders_keys_runs_out() -> None:
    it = poll()
    assert it._next_expiry() == inf
    it.votes[0].expects_expiry(999, 2.0)
    it.votes[1].expects_expiry(499, 2.0)
    assert it._next_expiry() == 2.5
