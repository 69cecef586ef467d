"""What people are told of votes: busy, too few nodes, a key of another type, and what to do about it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from protocol.conversation import FOREIGN, OTHER, Mute, node_set

from holdfast.errors import ConfigError, LockBusy, NoQuorum
from holdfast.protocol import explain as outcome
from holdfast.protocol.answer import LASTING, NO_KEY, SHOWN, Denied
from holdfast.protocol.nodes import Standing
from holdfast.protocol.vote import Vote

OURS = b"a" * 32
JOBS = Mute("jobs")
WRONGTYPE = Exception("WRONGTYPE Operation against a key holding the wrong kind of value")


def denied(holder: bytes | None = OTHER, left: int = 5000) -> Vote:
    """A node that has answered at 1 that somebody else has it."""
    vote = Vote()
    vote.answered(0.5, 9.4)
    vote.denies(Denied(left, 2, holder), 1.0)
    return vote


def failed(error: Exception) -> Vote:
    vote = Vote()
    vote.failed(error)
    return vote


def in_vain(votes: Sequence[Vote], standing: dict[int, Standing] | None = None, now: float = 2.0) -> Exception:
    return outcome.in_vain(JOBS, OURS, votes, node_set(len(votes), standing or {}), 0.5, now)  # type: ignore[arg-type]  # (a stand-in)


# ---------------------------------------------------------------- busy


def test_the_holder_that_most_nodes_name_is_told() -> None:
    error = in_vain([denied(FOREIGN), denied(OTHER), denied(OTHER), denied(None)])
    assert isinstance(error, LockBusy)
    assert (error.holder, error.waited) == (OTHER.decode(), 1.5)


def test_of_two_that_are_named_alike_the_first_is_told() -> None:
    error = in_vain([denied(FOREIGN), denied(OTHER), Vote()])
    assert isinstance(error, LockBusy)
    assert error.holder == FOREIGN.decode()


def test_somebody_is_in_the_way_and_nobody_says_who() -> None:
    ceding, asked = Vote(), Vote()
    ceding.cedes()
    asked.granted_as_usual(7, 8.9, 0.0)
    asked.inquires()
    for vote in (denied(None), ceding, asked):
        error = in_vain([vote, Vote(), Vote()])
        assert isinstance(error, LockBusy)
        assert (error.holder, error.ttl_left) == (None, None)


@pytest.mark.parametrize("left, then", [(5000, 4.0), (500, 0.0), (LASTING, None), (NO_KEY, None)])
def test_how_long_the_holder_has_it(left: int, then: float | None) -> None:
    error = outcome.busy(JOBS, OURS, denied(left=left), 1.5, 2.0)  # type: ignore[arg-type]  # (a stand-in)
    assert error.ttl_left == then


@pytest.mark.parametrize(
    "holder, who",
    [
        (OTHER, f"holdfast client {'b' * 8}"),
        (OTHER.replace(b"b" * 32, OURS), "this client"),
        (b"shared", "readers of the read-write lock of this name"),
        (FOREIGN, "another program, which wrote 'my_random_value'"),
        (b"\xff\n", r"another program, which wrote '\\xff\n'"),
        (None, "another program, which wrote ''"),
    ],
)
def test_who_has_it(holder: bytes | None, who: str) -> None:
    text = str(outcome.busy(JOBS, OURS, denied(holder), 1.5, 2.0))  # type: ignore[arg-type]  # (a stand-in)
    assert who in text
    assert "without an expiry" not in text


@pytest.mark.parametrize(
    "holder, call",
    [
        (b"on", "force_release('jobs', reason, only='on')"),
        (b"", "force_release('jobs', reason)"),
        (b"x" * SHOWN, "force_release('jobs', reason, only=locked_by('jobs'))"),
    ],
)
def test_what_removes_a_value_that_never_expires(holder: bytes, call: str) -> None:
    vote = denied(holder, LASTING)
    text = str(outcome.busy(JOBS, OURS, vote, 1.5, 2.0))  # type: ignore[arg-type]  # (a stand-in)
    assert "without an expiry" in text
    assert call in text
    warning = outcome.warning(JOBS, vote)  # type: ignore[arg-type]  # (a stand-in)
    assert warning.startswith(f"'jobs' is held there by {holder.decode()!r}, a value without an expiry")
    assert call in warning


# ---------------------------------------------------------------- too few nodes


def test_if_too_few_are_of_use_nobody_knows_whether_it_is_busy() -> None:
    error = in_vain([denied(), failed(Exception("OOM")), Vote()], {2: Standing.DOWN})
    assert isinstance(error, NoQuorum)
    assert {node: str(it) for node, it in error.causes.items()} == {"node1": "OOM", "node2": "refused"}
    error = in_vain([denied(), Vote(), Vote()], {1: Standing.GUARDED, 2: Standing.GUARDED})
    assert isinstance(error, NoQuorum)
    assert isinstance(in_vain([denied(), Vote(), Vote()], {2: Standing.CONNECTING}), LockBusy)


def test_if_nobody_is_in_the_way_nobody_has_answered() -> None:
    error = in_vain([Vote(), Vote(), Vote()])
    assert isinstance(error, NoQuorum)
    assert {node: str(it) for node, it in error.causes.items()} == dict.fromkeys(("node0", "node1", "node2"), "no answer yet")


def test_what_was_asked_at_this_very_moment_cannot_have_been_answered() -> None:
    error = in_vain([Vote(), Vote(), Vote()], now=0.5)
    assert isinstance(error, NoQuorum)
    assert error.causes == {}


def test_an_extension_that_was_not_confirmed_says_where() -> None:
    answered, silent = Vote(), Vote()
    answered.answered(3.0, 11.9)
    silent.answered(2.9, 11.8)
    error = outcome.unheard("jobs", [answered, silent, failed(Exception("OOM"))], node_set(3, {}), "extend", 3.0, 4.0)
    assert {node: str(it) for node, it in error.causes.items()} == {"node1": "no answer yet", "node2": "OOM"}
    assert str(error).startswith("could not extend 'jobs': fewer than 2 nodes are usable (waited 1.000 s)")


# ---------------------------------------------------------------- no lock


@pytest.mark.parametrize("nodes, unfit, misfit", [(3, 1, False), (3, 2, True), (4, 2, False), (4, 3, True)])
def test_a_majority_with_a_key_of_another_type_cannot_be_locked(nodes: int, unfit: int, misfit: bool) -> None:
    votes = [failed(WRONGTYPE) if node < unfit else Vote() for node in range(nodes)]
    error = outcome.misfit("jobs", votes, node_set(nodes, {}))
    assert (error is not None) is misfit
    assert isinstance(in_vain(votes), ConfigError) is misfit
    if misfit:
        where = ", ".join(f"node{node}" for node in range(unfit))
        assert f"'jobs' cannot be locked: its key on {where} holds data of another type" in str(error)


def test_nodes_that_never_worked_are_named() -> None:
    nodes = node_set(3, {})
    for node in (0, 1):
        nodes.worked[node] = False
        nodes.note(node, Standing.DOWN, 0.0, ConfigError("no such user"))
    error = outcome.misfit("jobs", [Vote(), Vote(), Vote()], nodes)
    assert "no such user" in str(error)


def test_a_warning_of_one_node() -> None:
    warning = outcome.warning(JOBS, failed(WRONGTYPE))  # type: ignore[arg-type]  # (a stand-in)
    assert warning.startswith("the key of 'jobs' holds data of another type than a lock's (a string)")


def test_a_fence_that_no_clock_allows() -> None:
    error = outcome.too_far_ahead("jobs", 17, 3600.4)
    assert error.message == (
        "its fence of 'jobs' is 17, 3600 s ahead of the clocks, and is not used. "
        "Check the node's clock. If it is right, force_release() repairs the fence."
    )


def test_what_nodes_have_against_a_renewal_is_one_line() -> None:
    votes = [failed(Exception("OOM")), failed(Exception("MISCONF")), Vote()]
    told = outcome.obstacles(votes, node_set(3, {}), 1.0, 2.0)  # type: ignore[arg-type]  # (a stand-in)
    assert told == "node0: OOM; node1: MISCONF; node2: no answer yet"


def test_a_right_that_a_majority_lacks_is_told_at_once() -> None:
    missing = ConfigError("no right")
    missing.fix = "ACL SETUSER app +zscore"
    error = in_vain([failed(missing), failed(missing), Vote()])
    assert isinstance(error, ConfigError) and error.fix == missing.fix
    assert isinstance(in_vain([failed(missing), denied(), denied()]), LockBusy)
