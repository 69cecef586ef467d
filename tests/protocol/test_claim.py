"""What of a claim is no conversation: what it tells of itself, its company, and searches.

The conversations are in `tests/protocol/claim`, in the order of docs/protocol.md, section 6, and those of a claim in company in
`tests/protocol/joint`. A test's name carries the numbers of the promises (B) and scenarios (S) that it shows at this level; "Rule C5." is
a rule of that page.
"""

from __future__ import annotations

from itertools import product
from math import inf
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from protocol.conversation import TTL, UNTIL, Mute, P, granted, node_set
from protocol.nodes import Lock, walk
from protocol.script import WAYS, Script
from seeds import FROZEN

from holdfast.errors import ConfigError, NoQuorum, NotAcquired
from holdfast.protocol.claim import Claim, State
from holdfast.protocol.command import GRANTED
from holdfast.protocol.nodes import NodeSet, Standing
from holdfast.protocol.quorum import Quorum
from holdfast.protocol.ticket import Tickets
from holdfast.protocol.timing import Timing


def a_claim() -> Claim:
    """A claim on three nodes that has not begun."""
    return Claim(Mute(), Timing(TTL), P, Tickets(b"a" * 32), node_set(3, {}))


def played(*lines: str, yes: object = None) -> Script:
    """A conversation as far as these lines, whatever is said."""
    script = Script(yes)
    for line in lines:
        script.step(line)
    return script


# ---------------------------------------------------------------- nodes that were used early


def test_it_proposes_more_than_a_node_can_have_forgotten() -> None:
    """Rule F12."""
    claim = a_claim()
    claim._node_set.floor = P + 5
    claim.begin(1.0)
    assert [it.fence for _, it in claim.sends] == [P + 6]


def test_a_lease_whose_grants_count_for_longer_is_renewed_at_once() -> None:
    claim = a_claim()
    claim.hurry(1.0)
    assert claim.wake == inf, "it does not even wait"
    held = played("waits", "0.1: 0 1 usual").talk.claim
    held.hurry(1.0)
    assert held.wake == 1.0


# ---------------------------------------------------------------- what it tells of itself


def test_before_anything_is_answered_nothing_is_known() -> None:
    claim = played("waits").talk.claim
    assert (claim.state, claim.fence, claim.until, claim.limit, claim.since, claim.counted) == (State.WAITING, 0, 0.0, inf, 0.0, 0)
    assert (claim.ticket, claim.ttl, claim.patient, claim.contended, claim.doubt, claim.reason) == (P, TTL, True, False, False, "")
    assert claim.token.startswith(b"%016d:" % P)
    assert claim.counting(0.0) == 0
    assert claim.claims == (claim,)


class Unfolding(Claim):
    """Another thread unfolds the votes as soon as somebody has looked at those that are not kept apart."""

    @property  # type: ignore[override]  # (a slot of the class)
    def as_usual(self) -> list[int] | None:
        nodes: list[int] | None = Claim.as_usual.__get__(self)  # type: ignore[attr-defined]  # (a slot)
        Claim.as_usual.__set__(self, None)  # type: ignore[attr-defined]  # (a slot)
        return nodes

    @as_usual.setter
    def as_usual(self, nodes: list[int] | None) -> None:
        Claim.as_usual.__set__(self, nodes)  # type: ignore[attr-defined]  # (a slot)


def counted_meanwhile() -> int:
    claim = Unfolding(Mute(), Timing(TTL), P, Tickets(b"a" * 32), node_set(3, {}))
    claim.begin(0.0)
    claim.as_usual = [0, 1]
    return claim.counting(0.2)


def test_what_counts_can_be_asked_while_another_thread_unfolds_the_votes() -> None:
    assert counted_meanwhile() == 2


class Looked(Claim):
    """Another thread looks at the claim as soon as its state changes."""

    __slots__ = ()

    @property  # type: ignore[override]  # (a slot of the class)
    def state(self) -> State:
        state: State = Claim.state.__get__(self)  # type: ignore[attr-defined]  # (a slot)
        return state

    @state.setter
    def state(self, state: State) -> None:
        Claim.state.__set__(self, state)  # type: ignore[attr-defined]  # (a slot)
        seen.append((state, self.reason))


seen: list[tuple[State, str]] = []


def test_whoever_sees_that_it_is_lost_is_told_why() -> None:
    script = played("held", yes=granted())
    script.talk.claim.__class__ = Looked
    seen.clear()
    script.step("2: close")
    assert seen == [(State.LOST, "closed")]


def test_what_a_node_refused_is_over_when_it_takes_writes_again() -> None:
    # Rule C17.
    claim, readonly = a_claim(), Exception("READONLY")
    claim.begin(0.0)
    assert not claim.relented(0, 0.0), "it has said nothing"
    claim.answered(0, claim.sends[0][1], readonly, 0.1)
    assert claim.votes[0].error is readonly
    claim.sends.clear()
    assert claim.relented(0, 0.2) and claim.votes[0].error is None
    assert [(nodes, it.mode, it.sent) for nodes, it in claim.sends] == [((0,), b"w", 0.2)]
    claim.votes[0].failed(readonly)
    assert not claim.relented(0, 0.3) and claim.votes[0].error is None, "it owes an answer"


def test_a_claim_that_is_declined_asks_nothing() -> None:
    claim, error = a_claim(), ConfigError("no")
    claim.decline(error, 5.0)
    assert (claim.state, claim.refusal, claim.news, claim.began) == (State.OVER, error, True, 5.0)
    assert [nodes for nodes, _ in claim.sends if nodes] == []


def test_what_is_to_be_told_of_it_before_anything_was_unusual() -> None:
    script = played("waits", "0.1: 1 usual")
    error = script.talk.claim.verdict(0.5)
    assert isinstance(error, NoQuorum) and (error.name, error.waited, set(error.causes)) == ("jobs", 0.5, {"node0", "node2"})
    assert script.step("0.6: 0 usual") == ["held P until 8.908"]


# ---------------------------------------------------------------- in company


@pytest.mark.parametrize("yes", WAYS.values(), ids=WAYS)
def test_whether_it_could_be_held(yes: object) -> None:
    script = played("waits", yes=yes)
    claim = script.talk.claim
    claim.company = SimpleNamespace(complete=lambda claim, now: False)
    assert claim.could_hold(0.0) == (0, 0.0)
    script.step("0.1: 0 yes")
    assert claim.could_hold(0.1) == (0, 0.0)
    script.step("0.1: 1 yes")
    assert claim.could_hold(0.1) == (P, pytest.approx(UNTIL))
    assert claim.could_hold(UNTIL) == (0, 0.0)
    assert claim.state is State.WAITING


# ---------------------------------------------------------------- many conversations


@pytest.mark.parametrize("nodes", [1, 2, 3, 4])
def test_B36_S04_a_try_is_decided_as_soon_as_it_can_be(nodes: int) -> None:
    """Rule Q15: fewer than q can still grant, and not "q cannot": with even N half of the nodes is enough to refuse.

    If fewer than q have a connection, they have `node_timeout` to come back (rule C17).
    """
    quorum = nodes // 2 + 1
    for replies in product(["granted", "denied", "failed READONLY", "broken"], repeat=nodes):
        script = played(f"tries nodes={nodes}")
        claim = script.talk.claim
        for node, reply in enumerate(replies):
            script.step(f"0: {node} {reply}")
            said = replies[: node + 1]
            held = said.count("granted") == quorum
            over = nodes - len(said) + said.count("granted") < quorum
            if over and nodes - said.count("broken") < quorum:
                assert claim.state is State.WAITING
                script.step("1: wakes")
            assert claim.state is (State.HELD if held else State.OVER if over else State.WAITING)
            if held or over:
                break
        else:
            raise AssertionError("it is decided in the end")
        assert held or isinstance(claim.refusal, NotAcquired)


@settings(max_examples=200, derandomize=FROZEN, deadline=None)
@given(st.integers(0, 2**32), st.integers(0, 1500), st.integers(1, 5), st.integers(2, 3))
def test_B51_no_two_hold_it_whatever_breaks_and_whoever_waits_gets_it(seed: int, steps: int, nodes: int, clients: int) -> None:
    """S-05, S-06, S-08, S-28, S-29: P-S1 and P-S2 all the time, that every counted node holds the token, and P-L2 in the end."""
    walk(seed, nodes, clients, steps)


@settings(max_examples=50, derandomize=FROZEN, deadline=None)
@given(st.integers(0, 2**32), st.integers(0, 600), st.integers(1, 5), st.integers(2, 4))
def test_without_faults_whoever_waits_gets_it(seed: int, steps: int, nodes: int, clients: int) -> None:
    """P-L1."""
    walk(seed, nodes, clients, steps, faults=False)


@pytest.mark.parametrize("node, lost", [(0, True), (1, False)])
def test_a_majority_of_either_list_that_was_lost_is_a_gap(node: int, lost: bool) -> None:
    """Of one node to three: who knows the former list only may have held it on node 0 alone."""
    # Rule SH5.
    nodes = NodeSet(["n0", "n1", "n2"], 1.0, 9.0, 16_000, Quorum([0, 1, 2], [0]))
    for it in range(3):
        nodes.note(it, Standing.UP, 0.0)
    claim = Claim(Lock("x"), Timing(9.0, None, True), 1_700_000_000_000_000, Tickets(b"0" * 32), nodes)
    claim.begin(0.0)
    for it in (1, 2):
        claim.answered(it, claim.sends[0][1], claim.usual, 0.1)
    assert claim.state is State.WAITING
    claim.answered(0, claim.sends[0][1], claim.usual, 0.1)
    assert claim.state is State.HELD
    claim.pushed(node, GRANTED, claim.fence + 1, 1.0)
    assert (claim.state is State.LOST, claim.reason) == (lost, "gap" if lost else "")
