"""A lease of a gateway's client, without nodes and without a server."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast import ConfigError, LeaseState, LockLost, Misuse, NoQuorum
from holdfast.serve import leasing
from holdfast.serve.identity import EVERYBODY
from holdfast.serve.leases import Hold, Wanted
from holdfast.serve.problems import Problem


def a_hold(**wanted: Any) -> Hold:
    """A lease that is waited for."""
    leases: Any = SimpleNamespace(settled=lambda hold: None, ended=lambda hold, remembered: None)
    return Hold("gabcdef2.4f0c2a9e7d1b48e0", EVERYBODY, Wanted(("a",), ttl_ms=10_000, **wanted), leases)


def a_lease(**facts: Any) -> Any:
    """A lease of the library, which is as it is told to be."""

    def check() -> None:
        raise LockLost("a", "expired", 7)

    async def release(confirm: bool) -> int:
        return 2

    usual = {"fences": {"a": 7}, "slots": (), "waited": 0.0, "contended": False, "votes": 2, "remaining": 5.0}
    return SimpleNamespace(**{**usual, "check": check, "release": release, **facts})


async def turns() -> None:
    """Let the loop do what is due."""
    for _ in range(3):
        await asyncio.sleep(0)


async def test_it_is_waited_for_while_one_of_two_requests_waits_for_it() -> None:
    hold = a_hold(linger_ms=0)
    with hold.listening():
        pass
    with hold.listening():
        with hold.listening():
            pass
        await turns()
        assert hold.state == "waiting"
    await turns()
    assert hold.state == "over"


async def test_its_client_is_told_that_it_is_in_doubt() -> None:
    hold, lease = a_hold(), a_lease()
    hold.state, hold.lease = "held", lease
    for lease.state, doubt in ((LeaseState.HELD, False), (LeaseState.DOUBT, True)):
        assert leasing.held(hold).doubt is doubt
        assert await anext(leasing._events(hold)) == ("doubt" if doubt else "held", {"id": hold.id})


async def test_it_is_lost_as_soon_as_the_clock_says_so() -> None:
    """Also if nobody has been told yet."""
    hold = a_hold()
    hold.state, hold.lease = "held", a_lease(state=LeaseState.LOST)
    with pytest.raises(Problem) as lost:
        await hold.extend(None)
    assert (lost.value.kind, lost.value.facts["reason"], hold.state) == ("lost", "expired", "over")


@pytest.mark.parametrize(
    "error,state,kind",
    [
        (None, LeaseState.HELD, ""),
        (NoQuorum("a", 1.0, {}, 3, "extend"), LeaseState.DOUBT, "in-doubt"),
        (ConfigError("ttl"), LeaseState.HELD, "invalid"),
        (ConfigError("ttl"), LeaseState.LOST, "lost"),
        (LockLost("a", "expired", 7), LeaseState.LOST, "lost"),
        (Misuse("it is not held", reason="not_held"), LeaseState.RELEASED, "released"),
    ],
)
async def test_what_comes_of_an_extension(error: Exception | None, state: LeaseState, kind: str) -> None:
    async def extend(ttl: float) -> None:
        asked.append(ttl)
        lease.state = state
        if error is not None:
            raise error

    asked, said, lease = list[float](), ("", None), a_lease(state=LeaseState.HELD, extend=extend)
    hold = a_hold(linger_ms=0)
    hold.state, hold.lease = "held", lease
    with hold.listening():
        change = hold.change
    try:
        await hold.extend(20_000)
    except Problem as problem:
        said = problem.kind, problem.after
    assert (said, asked, change.done()) == ((kind, 1.0 if kind == "in-doubt" else None), [20.0], kind not in ("invalid", "released"))
    # Its client has shown that it lives.
    await turns()
    assert hold.state == ("over" if kind == "lost" else "held")


async def test_a_word_of_its_client_extends_it_if_a_keepalive_would_be_due() -> None:
    asked = list[float]()

    async def extend(ttl: float) -> None:
        asked.append(ttl)

    hold = a_hold()
    hold.state, hold.lease = "held", a_lease(state=LeaseState.HELD, extend=extend)
    for hold.lease.remaining in (8.34, 8.33):
        hold.touch()
        await turns()
    assert asked == [10.0]
