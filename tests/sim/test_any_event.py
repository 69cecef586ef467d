"""A user is cancelled, or a client is killed or stopped, at every single event of a small world: nobody is kept waiting for long (R-L4).

Exhaustive, not random: a story is told once to count its events, and then once for each of them, with something happening there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from sim.conftest import Build

from holdfast.testing.process import Process

pytestmark = pytest.mark.worlds


TTL = 1.0
TRIP = 0.004  # seconds: there and back, at most
KEEP = 0.02  # seconds for which each user holds the lock
AT_ONCE = 3 * TRIP  # the release's way, the newcomer's, and the push
IN_A_LEASE = TTL * 1.01 + AT_ONCE
EVER = 10**6  # (an event that never comes)

Strike = Callable[[Process[Any], asyncio.Task[Any]], object]
STRIKES: dict[str, tuple[Strike, float]] = {
    "cancelled": (lambda process, task: task.cancel(), AT_ONCE),
    "killed": (lambda process, task: process.crash(), IN_A_LEASE),
    "stopped": (lambda process, task: process.pause(5 * TTL), IN_A_LEASE),
}


class Story:
    """Users one after another want the lock, each at a client of its own; something happens to one of them. Then a newcomer wants it.

    `events`: how many there were until all users were served, or the strike came; `waited`: how long the newcomer did from the strike on,
    though others came first.
    """

    def __init__(self, place: Any, users: int, victim: int, strike: Strike, at: int) -> None:
        self.place, self.world, self.events, self.at = place, place.world, 0, at
        options = {"ttl": TTL, "max_ttl": TTL}
        clients = [place.client(**options) for _ in range(users)]
        newcomer = place.client(**options)
        self.world.run(self.world.now + 0.1)
        tasks = [client.process.run(self._user(client)) for client in clients]
        process, task = clients[victim].process, tasks[victim]
        self.world.looks.append(lambda: self._count(lambda: strike(process, task)))
        self.world.run(self.world.now + 5 * TTL, lambda: self.events > at or all(it.done() for it in tasks))
        self.over = all(it.done() for it in tasks)
        comes = newcomer.process.run(newcomer.lock("x").acquire())
        began = self.world.now
        self.world.run(began + 5 * TTL, comes.done)
        assert comes.done(), "the newcomer waits for ever"
        assert comes.result().held
        self.waited = self.world.now - began

    async def _user(self, client: Any) -> None:
        async with client.lock("x"):
            await self.world.sleep(KEEP)

    def _count(self, strike: Callable[[], object]) -> None:
        self.events += 1
        if self.events == self.at + 1:
            strike()


@pytest.mark.parametrize("how", STRIKES)
@pytest.mark.parametrize("users, victim", [(1, 0), (2, 0), (2, 1)], ids=["alone", "first of two", "second of two"])
def test_at_whatever_event_it_happens_the_name_is_free_soon(town: Build, users: int, victim: int, how: str) -> None:
    strike, soon = STRIKES[how]
    whole = Story(town(), users, victim, strike, EVER)
    assert whole.over
    waits = {at: Story(town(), users, victim, strike, at).waited for at in range(whole.events)}
    assert len(waits) >= 20
    within = soon + (users - 1) * (KEEP + TRIP)
    assert max(waits.values()) < within, {at: waited for at, waited in waits.items() if waited >= within}
    if how != "cancelled":  # it did hurt: whoever holds the lock and is no more keeps it for its lease
        assert max(waits.values()) > 0.9 * TTL
