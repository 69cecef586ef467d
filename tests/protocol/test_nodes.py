"""What claims see of the nodes: who can be spoken to, why not, and since when too few are of use."""

from __future__ import annotations

from math import inf

from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import ConfigError, NoQuorum, message_of
from holdfast.protocol.nodes import NodeSet, Standing, too_few
from holdfast.protocol.quorum import Quorum

unhurried = settings(deadline=None)  # others may have the machine


def nodes(count: int) -> NodeSet:
    return NodeSet([f"node{i}" for i in range(count)], patience=1.0, outage=9.0, horizon=16_000)


def test_at_first_there_is_hope_and_nothing_else() -> None:
    node_set = nodes(5)
    assert node_set.labels == ["node0", "node1", "node2", "node3", "node4"]
    assert (node_set.size, node_set.quorum.least, node_set.patience, node_set.outage) == (5, 3, 1.0, 9.0)
    assert node_set.standing == [Standing.CONNECTING] * 5
    assert node_set.free == [0.0] * 5
    assert node_set.up == ()
    assert node_set.dark == inf
    assert [node_set.cause(node, 0.0) for node in range(5)] == [None] * 5


def test_for_how_long_a_long_ttl_counts() -> None:
    node_set = nodes(3)
    assert node_set.lasting(20.0, 1.0) == 20.0
    node_set.permitted = 1.0
    assert [node_set.lasting(20.0, at) for at in (0.9, 1.0)] == [20.0, 10.0]


def test_since_when_a_node_stands_like_this() -> None:
    node_set = nodes(3)
    assert node_set.since == [inf] * 3
    node_set.tried(0, 1.0)
    node_set.tried(0, 2.0)
    assert node_set.since == [1.0, inf, inf]
    node_set.note(0, Standing.CONNECTING, 3.0)
    node_set.note(1, Standing.CONNECTING, 3.0)
    assert node_set.since == [1.0, 3.0, inf], "nothing has changed for the first one"
    node_set.note(0, Standing.UP, 4.0)
    node_set.note(0, Standing.UP, 5.0)
    node_set.tried(0, 6.0)
    assert node_set.since == [4.0, 3.0, inf]


def test_why_a_node_is_down_is_told_until_it_is_back() -> None:
    node_set = nodes(3)
    refused = ConnectionRefusedError("refused")
    node_set.note(1, Standing.DOWN, 1.0, refused)
    assert node_set.cause(1, 5.0) is refused
    assert node_set.cause(0, 5.0) is None
    node_set.note(1, Standing.UP, 2.0)
    assert node_set.cause(1, 5.0) is None
    assert node_set.free[1] == 0.0


def test_a_guarded_node_tells_how_long_it_still_takes() -> None:
    node_set = nodes(3)
    node_set.note(1, Standing.GUARDED, 1.0, free=31.0)
    cause = node_set.cause(1, 22.75)
    assert isinstance(cause, ConnectionError)
    assert str(cause).startswith("guarded, 8.2 s left")
    assert str(node_set.cause(1, 32.0)).startswith("guarded, 0.0 s left"), "its connection has not looked yet"


def test_a_guarded_node_tells_when_it_started() -> None:
    node_set = nodes(3)
    node_set.note(0, Standing.UP, 0.0)
    node_set.note(1, Standing.GUARDED, 1.0, free=31.0, started=-2.0)
    told = "guarded, 29.0 s left: it started 4 s ago and may have forgotten locks"
    assert str(node_set.cause(1, 2.0)) == told
    node_set.note(1, Standing.GUARDED, 1.0, free=31.0)
    assert "it started recently" in str(node_set.cause(1, 2.0))


def test_a_majority_that_never_worked_is_a_misconfiguration_and_one_that_did_is_an_outage() -> None:
    wrong = ConfigError("it refuses the password")
    node_set = nodes(3)
    node_set.note(0, Standing.DOWN, 1.0, wrong)
    assert node_set.misconfiguration is None, "two nodes may still do"
    node_set.note(1, Standing.DOWN, 1.0, ConnectionRefusedError("refused"))
    assert node_set.misconfiguration is None, "who refuses connections may be back soon"
    node_set.note(1, Standing.DOWN, 2.0, wrong)
    told = "these nodes cannot be used:\n  node0: it refuses the password\n  node1: it refuses the password"
    assert isinstance(node_set.misconfiguration, ConfigError)
    assert message_of(node_set.misconfiguration) == told
    node_set.note(1, Standing.UP, 3.0)
    node_set.note(1, Standing.DOWN, 4.0, wrong)
    assert node_set.misconfiguration is None, "it worked before: its password is being changed, or it became a replica"


@unhurried
@given(st.integers(1, 5), st.lists(st.tuples(st.integers(0, 4), st.sampled_from(Standing), st.integers(0, 3))))
def test_darkness_is_having_fewer_than_a_quorum_that_are_not_down(count: int, notes: list[tuple[int, Standing, int]]) -> None:
    """Against a twin that looks at everything each time."""
    node_set, standing, now, dark = nodes(count), [Standing.CONNECTING] * count, 0.0, inf
    for node, how, later in notes:
        now += later
        if node < count:
            node_set.note(node, how, now)
            standing[node] = how
            if count - standing.count(Standing.DOWN) > count / 2:
                dark = inf
            else:
                dark = min(dark, now)
        assert node_set.standing == standing
        assert list(node_set.up) == [i for i, it in enumerate(standing) if it is Standing.UP]
        assert node_set.dark == dark


def test_each_state_has_its_own_time_and_a_node_that_refuses_is_still_asked() -> None:
    node_set = NodeSet(["redis://a", "redis://127.0.0.1:1", "unix:///s"], 1.0, 10.0, 16_000)
    assert node_set.states == ["connecting"] * 3
    full = Exception("OOM")
    for at, (standing, cause, state) in enumerate(
        (
            (Standing.GUARDED, None, "guarded"),
            (Standing.UP, None, "up"),
            (Standing.UP, full, "refusing"),
            (Standing.DOWN, ConnectionError("gone"), "down"),
            (Standing.DOWN, ConfigError("no password"), "unfit"),
        )
    ):
        node_set.note(0, standing, float(at), cause)
        node_set.note(0, standing, at + 0.5, cause)
        assert (node_set.states[0], node_set.since[0]) == (state, at)
        assert node_set.up == ((0,) if state in ("up", "refusing") else ())


def test_how_to_end_a_guard_is_said_only_while_no_node_has_been_in_use() -> None:
    node_set = NodeSet(["redis://a", "redis://b", "redis://c"], 1.0, 10.0, 16_000)
    for node in range(3):
        node_set.note(node, Standing.GUARDED, 1.0, free=31.0)
    told = "guarded, 30.0 s left: it started recently and may have forgotten locks"
    assert str(node_set.cause(0, 1.0)) == f"{told} (if no lock was ever held on these nodes: holdfast nodes adopt)"
    node_set.note(1, Standing.UP, 2.0)
    assert str(node_set.cause(0, 1.0)) == told
    node_set.note(1, Standing.GUARDED, 3.0, free=31.0)
    assert [str(node_set.cause(node, 1.0)) for node in range(2)] == [told, told], "it has restarted since"


def test_what_a_majority_forbids_is_no_missing_answer() -> None:
    missing, other = ConfigError("no right"), ConfigError("another mistake")
    missing.fix = "ACL SETUSER app +zscore"
    found = too_few("jobs", 0.5, {"a": missing, "b": missing, "c": TimeoutError("late")}, Quorum(range(3)), "acquire")
    assert isinstance(found, ConfigError) and found.fix == missing.fix and "c" not in found.message.split()
    for causes in ({"a": missing, "b": TimeoutError("late")}, {"a": other, "b": other}):
        assert isinstance(too_few("jobs", 0.5, causes, Quorum(range(3)), "acquire"), NoQuorum)
