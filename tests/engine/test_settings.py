"""Settings: what may be said, what it means if it is not said, and that everything else is a ConfigError that names the option."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as effort
from hypothesis import strategies as st

from holdfast.engine.settings import DEFAULT_GUARD, SHORTEST, SLACK, Settings, lease_of, settings
from holdfast.errors import ConfigError
from holdfast.wire.address import parse

patient = effort(deadline=None)  # a machine that is busy is no failure

NODES = ("redis://a", "redis://b:7000/1", "unix:///run/c.sock")
USUAL: dict[str, Any] = {
    "ttl": 10.0,
    "max_ttl": 30.0,
    "prefix": "",
    "node_timeout": None,
    "restart_guard": DEFAULT_GUARD,
    "outage": None,
    "owner": "host:1",
}


def made(*nodes: Any, **options: Any) -> Settings:
    return settings(nodes or NODES, **(USUAL | options))


def complaint(*nodes: Any, **options: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        made(*nodes, **options)
    return caught.value.message


class Tracer:
    """What `around=` takes: here, its class will do."""

    @staticmethod
    def begin(kind: str, names: tuple[str, ...]) -> None:
        """Nothing hears of the end."""


# ------------------------------------------------ good ones


def test_what_is_not_said() -> None:
    assert made() == Settings(
        addresses=tuple(map(parse, NODES)),
        ttl=10.0,
        max_ttl=30.0,
        node_timeout=1.0,  # max_ttl / 20 is 1.5, and 1 is the most
        guard=32.0,
        outage=10.0,
        owner="host:1",
        prefix="",
        short_guard=12.0,
    )
    assert [made(max_ttl=it).short_guard for it in (10, 10.1, 45.9, 46)] == [None, 12.0, 12.0, None]
    assert made(shard="a", spreads=("1f",)) == made()._replace(shard="a", spreads=("1f",))
    assert made(around=Tracer) == made()._replace(around=Tracer)
    assert "around is an object with a method begin(kind, names), not 5" in complaint(around=5)
    assert made().horizon == 16_000  # K: half of the guard, in ms
    assert made().mark_lasts == 64.0
    assert repr(DEFAULT_GUARD) == "max_ttl + 2"  # (as signatures show it)


def test_what_is_said() -> None:
    options = {
        "ttl": timedelta(seconds=2),
        "max_ttl": timedelta(minutes=1),
        "prefix": "shop:",
        "node_timeout": 0.25,
        "restart_guard": 90,
        "outage": timedelta(seconds=7),
        "owner": "!worker-1@host~",
    }
    assert made("redis://a", **options) == Settings(
        addresses=(parse("redis://a"),),
        ttl=2.0,
        max_ttl=60.0,
        node_timeout=0.25,
        guard=90.0,
        outage=7.0,
        owner="!worker-1@host~",
        prefix="shop:",
    )


def test_two_lists_each_have_a_majority() -> None:
    one, two = made(), made(lists=((0, 1), (1, 2)))
    assert [it.quorum.met({0, 1}) for it in (one, two)] == [True, False]
    assert [it.lists_of(1) for it in (one, two)] == [(0,), (0, 1)]


@pytest.mark.parametrize(
    "max_ttl, ttl, node_timeout, patience",
    [
        (30, 10, None, 1.0),
        (10, 10, None, 0.5),
        (0.5, 0.5, None, 0.05),  # at least that
        (0.05, 0.05, None, 0.05),  # (a claim itself waits for a third of its lease at most)
        (30, 1.5, None, 1.0),
        (30, 30, 10.0, 10.0),
        (30, 10, timedelta(seconds=2), 2.0),
        (30, 10, 0.001, 0.001),
    ],
)
def test_the_time_to_answer(max_ttl: float, ttl: float, node_timeout: object, patience: float) -> None:
    assert made(max_ttl=max_ttl, ttl=ttl, node_timeout=node_timeout).node_timeout == pytest.approx(patience, rel=1e-12)


@pytest.mark.parametrize("max_ttl, least", [(30, 32), (0.05, 2.05), (86400, 86402)])
def test_the_guard_and_the_horizon(max_ttl: float, least: float) -> None:
    # Rule G6.
    ttl = min(max_ttl, 10)
    assert made(max_ttl=max_ttl, ttl=ttl).guard == least == max_ttl + SLACK
    assert made(max_ttl=max_ttl, ttl=ttl).horizon == least * 500
    assert made(max_ttl=max_ttl, ttl=ttl, restart_guard=None).guard is None
    assert made(max_ttl=max_ttl, ttl=ttl, restart_guard=None).horizon == least * 500  # whatever is guarded
    assert made(max_ttl=max_ttl, ttl=ttl, restart_guard=least).guard == least
    assert made(max_ttl=max_ttl, ttl=ttl, restart_guard=least + 10).horizon == least * 500
    assert complaint(max_ttl=max_ttl, ttl=ttl, restart_guard=least - 0.001).startswith("restart_guard is at least max_ttl + 2 = ")


@pytest.mark.parametrize(
    "said, told", [(0.05, 0.05), (1.0019, 1.001), (2.9999, 2.999), (4.35, 4.35), (30, 30.0), (timedelta(0, 2, 345_678), 2.345)]
)
def test_a_lease_is_rounded_down_to_milliseconds(said: object, told: float) -> None:
    assert lease_of(said, 30.0) == told == made(ttl=said).ttl


@patient
@given(
    st.floats(SHORTEST, 86400.0),
    st.floats(0.0, 1.0),
    st.none() | st.floats(0.001, 1e6),
    st.sampled_from([None, DEFAULT_GUARD]) | st.floats(0, 1e6),
    st.none() | st.floats(0, 1e6),
)
def test_what_holds_of_all_settings(max_ttl: float, part: float, node_timeout: float | None, more: Any, outage: float | None) -> None:
    ttl = max(SHORTEST, max_ttl * part)
    guard = max_ttl + SLACK + more if isinstance(more, float) else more
    it = made(max_ttl=max_ttl, ttl=ttl, node_timeout=node_timeout, restart_guard=guard, outage=outage)
    assert ttl - 0.001 < it.ttl <= ttl + 1e-9 and it.max_ttl == max_ttl
    assert 0 < it.node_timeout <= (1.0 if node_timeout is None else node_timeout)
    assert (it.guard is None) == (more is None) and (it.guard is None or it.guard >= max_ttl + SLACK)
    assert it.outage == (it.ttl if outage is None else outage)
    assert max_ttl * 1000 < 2 * it.horizon <= (max_ttl + SLACK) * 1000  # 2 K is more than any lease, and G at most


# ------------------------------------------------ nodes


def test_there_must_be_nodes() -> None:
    with pytest.raises(ConfigError, match="HOLDFAST_NODES"):
        settings((), **USUAL)


def test_no_nodes_are_allowed_where_nobody_has_named_any_and_refused_at_the_first_use() -> None:
    found = settings((), unset=True, **USUAL)
    assert found.addresses == ()
    assert isinstance(found.nodeless, ConfigError)
    assert str(found.nodeless).startswith("no nodes: name them")


@pytest.mark.parametrize(
    "nodes, twice",
    [
        (("redis://a", "redis://a"), "redis://a:6379"),
        (("redis://a", "redis://b", "redis://A:6379/0", "redis://a?db=0"), "redis://a:6379"),
        (("redis://x:pw@a", "redis://y:other@a"), "redis://a:6379"),
        (("redis://a/1", "valkeys://a"), "redis://a:6379/1, valkeys://a:6379"),
        (("unix:///s", "redis://b", "unix:///s", "redis://b"), "redis://b:6379, unix:///s"),
    ],
)
def test_an_address_may_be_named_once(nodes: tuple[str, ...], twice: str) -> None:
    told = "each node is a server of its own, or a majority means nothing. (Databases of one server are one node.)"
    assert complaint(*nodes) == f"{twice} is named twice: {told}"


@pytest.mark.parametrize("node", ["a:6379", "", None, 5, b"redis://a", ["redis://a"]])
def test_each_node_is_an_address(node: object) -> None:
    assert "address" in complaint("redis://a", node)


def test_the_nodes_are_read_first_and_then_the_rest() -> None:
    assert "begins with redis://" in complaint("x", ttl=None, max_ttl=None)
    assert complaint(max_ttl=-1, ttl=-1).startswith("max_ttl")


# ------------------------------------------------ bad ones


BAD: list[tuple[str, object, str]] = [
    ("max_ttl", 0.049, "max_ttl is from 0.05 to 86400 seconds, not 0.049"),
    ("max_ttl", 86400.1, "max_ttl is from 0.05 to 86400 seconds, not 86400.1 (seconds, not milliseconds: did you mean max_ttl=86.4001?)"),
    ("max_ttl", None, "max_ttl is a number of seconds or a timedelta, not None"),
    ("ttl", 0.049, "ttl is 0.05 or more seconds, not 0.049"),
    (
        "ttl",
        30.001,
        (
            "ttl is 30.001 s, and max_ttl 30 s: use a shorter ttl (leases are renewed while they are held), "
            "or set max_ttl=30.001 for all clients of these nodes"
        ),
    ),
    ("node_timeout", 0, "node_timeout is 0.001 or more seconds, not 0"),
    ("restart_guard", 31.9, "restart_guard is at least max_ttl + 2 = 32 seconds (or None: no guard), not 31.9"),
    ("outage", -0.1, "outage is 0 or more seconds, not -0.1"),
    ("prefix", None, "prefix is text, not None"),
    ("prefix", "a{b", "prefix 'a{b' has a brace in it: the server would take it for a hash tag"),
    ("prefix", "p" * 257, "prefix has 257 bytes of UTF-8; at most 256 are allowed"),
    ("prefix", "\ud800", "prefix '\\ud800' has half of a surrogate pair in it, which UTF-8 cannot say"),
    ("owner", None, "owner is text, not None"),
    ("owner", "", "owner '' is to be printable ASCII without spaces: servers show it in CLIENT LIST"),
    ("owner", "a b", "owner 'a b' is to be printable ASCII without spaces: servers show it in CLIENT LIST"),
    ("owner", "caf\u00e9", "owner 'caf\u00e9' is to be printable ASCII without spaces: servers show it in CLIENT LIST"),
    ("owner", "o" * 129, "owner has 129 bytes of UTF-8; at most 128 are allowed"),
]


@pytest.mark.parametrize("option, value, told", BAD)
def test_a_bad_option_says_what_to_write_instead(option: str, value: object, told: str) -> None:
    # Rule C19.
    assert complaint(**{option: value}) == told


@pytest.mark.parametrize(
    "ttl, said", [(10000, "10000 s, which is 2.8 hours"), (1000, "1000 s, which is 16.7 minutes"), (10**6, "1e+06 s, which is 11.6 days")]
)
def test_a_ttl_in_milliseconds_is_not_answered_with_a_longer_max_ttl(ttl: int, said: str) -> None:
    """The documents that this implements count in milliseconds; a lease of 2.8 hours is what obeying "raise max_ttl" would give."""
    assert complaint(ttl=ttl) == f"ttl is {said}, and max_ttl 30 s (seconds, not milliseconds: did you mean ttl={ttl / 1000:g}?)"
    assert "milliseconds" not in complaint(ttl=timedelta(days=1)), "a timedelta has its unit with it"
    assert "milliseconds" not in complaint(ttl=999)
