"""A lease of a gateway's client, without nodes and without a server."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from holdfast import LeaseState
from holdfast.serve import leasing
from holdfast.serve.identity import EVERYBODY
from holdfast.serve.leases import Hold, Wanted


def a_hold(**wanted: Any) -> Hold:
    """A lease that is waited for."""
    leases: Any = SimpleNamespace(settled=lambda hold: None, ended=lambda hold, remembered: None)
    return Hold("gabcdef2.4f0c2a9e7d1b48e0", EVERYBODY, Wanted(("a",), ttl_ms=10_000, **wanted), leases)


async def turns() -> None:
    """Let the loop do what is due."""
    for _ in range(3):
        await asyncio.sleep(0)


async def test_it_is_waited_for_while_one_of_two_requests_waits_for_it() -> None:
    hold = a_hold(linger_ms=0)
    with hold.listening():
        with hold.listening():
            pass
        await turns()
        assert hold.state == "waiting"
    await turns()
    assert hold.state == "over"


async def test_its_client_is_told_that_it_is_in_doubt() -> None:
    lease: Any = SimpleNamespace(fences={"a": 7}, slots=(), waited=0.0, contended=False, votes=2, remaining=5.0)
    hold = a_hold()
    hold.state, hold.lease = "held", lease
    for lease.state, doubt in ((LeaseState.HELD, False), (LeaseState.DOUBT, True)):
        assert leasing.held(hold).doubt is doubt
        assert await anext(leasing._events(hold)) == ("doubt" if doubt else "held", {"id": hold.id})
