"""What of several claims is no conversation: what they tell of themselves together, and searches.

The conversations are in `tests/protocol/joint`: held when all are, lost when one is, and in nobody's way until then. The searches have
joint requests over names that overlap, among simulated nodes, without faults and with them.
"""

from __future__ import annotations

from types import SimpleNamespace

from hypothesis import given, settings
from hypothesis import strategies as st
from protocol.conversation import P, granted
from protocol.nodes import take_turns, walk
from protocol.script import Joint
from seeds import FROZEN

from holdfast.errors import ConfigError, LockBusy, NoQuorum
from holdfast.protocol.claim import State
from holdfast.protocol.joint import JointRequest
from holdfast.protocol.nodes import Standing
from holdfast.protocol.ticket import TOKEN


def opened(line: str) -> Joint:
    """A conversation that has begun."""
    script = Joint(granted())
    script.step(line)
    return script


# ---------------------------------------------------------------- what they tell of themselves


def test_every_name_is_asked_for_at_once_under_one_ticket() -> None:
    # Rule N1.
    joint = opened("waits names=a,b,c").talk.joint
    tokens = {it.token for it in joint.claims}
    assert len(tokens) == 3 and all(TOKEN.fullmatch(it) and it.startswith(b"%016d:" % P) for it in tokens)
    assert (joint.state, joint.began, joint.since, joint.until, joint.reason) == (State.WAITING, 0.0, 0.0, 0.0, "")
    assert (joint.refusal, joint.setback) == (None, None)
    assert (joint.contended, joint.doubt, joint.done, joint.freed, joint.counting(0.0), joint.settled) == (False, False, False, 0, 0, True)
    assert (joint.want, {it.want for it in joint.claims}) == (P, {P})


def test_one_name_alone_is_a_whole_with_a_limit_and_a_verdict() -> None:
    script = opened("held names=a max_hold=5")
    joint = script.talk.joint
    assert (joint.state, joint.since, joint.began, joint.limit, joint.until) == (State.HELD, 0.1, 0.0, 5.1, 5.1)
    assert isinstance(joint.verdict(0.3), NoQuorum)


def test_it_is_renewed_when_every_name_is_and_as_well_as_the_worst() -> None:
    joint = opened("held names=a,b").talk.joint
    one, other = joint.claims
    one.left, other.left = 3.0, 2.0
    assert [joint.renewed(it) for it in (one, one, other)] == [None, None, 2.0]
    one.left = 1.0
    assert [joint.renewed(it) for it in (other, one)] == [None, 1.0]


def test_what_is_over_already_comes_to_nothing_once() -> None:
    joint = opened("waits names=a,b").talk.joint
    a, b = joint.claims
    b.release(0.1)
    a.refuse(LockBusy("a", 0.2, None, None), 0.2)
    assert (a.state, b.state, b.refusal, joint.refusal) == (State.OVER, State.OVER, None, a.refusal)


def test_the_reason_of_one_claim_is_that_of_all() -> None:
    reason = JointRequest.why.fget  # type: ignore[attr-defined]  # (a property, on the class)
    assert reason(SimpleNamespace(claims=[SimpleNamespace(why=""), SimpleNamespace(why="node 2: full")])) == "node 2: full"


# ---------------------------------------------------------------- nodes that are away when others are asked for


def test_what_is_in_vain_for_the_first_of_the_others_is_so_for_all() -> None:
    script = opened("waits names=a,b,c needed=1")
    for node in (1, 2):
        script.talk.node_set.worked[node] = False
        script.talk.node_set.note(node, Standing.DOWN, 0.1, ConfigError("it is a replica"))
    said = script.step("0.2: a 0 denied")
    assert [it for it in said if " to" in it] == ["a: release to 0 1 2", "b: request to 0", "b: release to 0", "c: release to"]
    joint = script.talk.joint
    assert isinstance(joint.refusal, ConfigError) and joint.state is State.OVER


# ---------------------------------------------------------------- searches


@settings(max_examples=300, derandomize=FROZEN, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 5), st.integers(2, 5), st.integers(2, 4))
def test_without_faults_everybody_is_served_in_turn_before_any_time_passes(seed: int, nodes: int, clients: int, names: int) -> None:
    """P-S1, P-L1 and P-L3 of several names: no two have one, nobody waits but for a holder or an earlier one, nothing is left."""
    take_turns(seed, nodes, clients, "abcd"[:names])


def test_equal_tickets_of_two_engines_are_no_deadlock() -> None:
    """Tokens decide between them, and alike for every name."""
    worlds = [take_turns(seed, 3, 2, "ab") for seed in range(100)]
    pairs = [(one, other) for one, other in (world.clients for world in worlds) if one.names == other.names == {"a", "b"}]
    assert sum(one.claims[0].ticket == other.claims[0].ticket for one, other in pairs) > 5, "there were such"


@settings(max_examples=150, derandomize=FROZEN, deadline=None)
@given(st.integers(0, 2**32), st.integers(0, 1500), st.integers(1, 5), st.integers(2, 4), st.booleans())
def test_all_or_nothing_whatever_breaks_and_whoever_waits_gets_it(seed: int, steps: int, nodes: int, clients: int, faults: bool) -> None:
    walk(seed, nodes, clients, steps, faults, "abc")


@settings(max_examples=150, derandomize=FROZEN, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 5), st.integers(2, 6), st.integers(1, 5))
def test_without_faults_no_slot_idles_while_somebody_waits(seed: int, nodes: int, clients: int, slots: int) -> None:
    take_turns(seed, nodes, clients, "abcde"[:slots], some=True)


@settings(max_examples=120, derandomize=FROZEN, deadline=None)
@given(st.integers(0, 2**32), st.integers(0, 1500), st.integers(1, 5), st.integers(2, 4), st.integers(1, 4), st.booleans())
def test_a_slot_has_one_holder_whatever_breaks(seed: int, steps: int, nodes: int, clients: int, slots: int, faults: bool) -> None:
    # Rule P2.
    walk(seed, nodes, clients, steps, faults, "abcd"[:slots], some=True)
