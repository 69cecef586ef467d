"""Who waits for claims, queries, news, and for bytes to leave: one table for every driver.

Knows what waiters wait for. Must not know what a waiter is (a lock, a future, a simulated one), or
how it is woken: each driver does that, with the waiters that this table returns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar

from ..protocol.claim import State
from ..protocol.query import Query
from .ready import Ready, Want

W = TypeVar("W")
L = TypeVar("L")


class Waiting(Generic[W]):
    """The table. A waiter is returned once, and is in the table no longer from then on.

    Attributes:
        claims: Callers that wait for news of a claim or a joint request.
        queries: Callers that wait for a query to be over.
        news: Callers that wait until something changes that is no claim's and no query's.
        leaving: Callers that wait until what they asked for has been sent.
    """

    def __init__(self) -> None:
        self.claims: dict[Want, list[W]] = {}
        self.queries: dict[Query, list[W]] = {}
        self.news: list[W] = []
        self.leaving: list[W] = []

    def for_claim(self, want: Want, waiter: W) -> None:
        """Have a caller wait for the next news of a claim."""
        waiters = self.claims.get(want)
        if waiters is None:
            self.claims[want] = [waiter]
        else:
            waiters.append(waiter)

    def for_query(self, query: Query, waiter: W) -> None:
        """Have a caller wait until a query is over, which `Engine.ready` has not told yet."""
        self.queries.setdefault(query, []).append(waiter)

    def for_news(self, waiter: W) -> None:
        """Have a caller wait for the next change that is no claim's and no query's."""
        self.news.append(waiter)

    def for_leaving(self, waiter: W) -> None:
        """Have a caller wait until what has been said so far is sent."""
        self.leaving.append(waiter)

    def cancel(self, waiter: W) -> None:
        """Forget a caller that no longer waits for news. Idempotent."""
        if waiter in self.news:
            self.news.remove(waiter)

    def settle(self, ready: Ready) -> list[W]:
        """Take out those whose wait this value ends.

        Returns:
            The waiters to wake: of claims, of queries, then of news, each in the order in which
            they came.
        """
        woken: list[W] = []
        for want in ready.settled:
            woken += self.claims.pop(want, ())
        for query in ready.queries:
            woken += self.queries.pop(query, ())
        if ready.changed:
            woken += self.take_news()
        return woken

    def drop(self, want: Want) -> Sequence[W]:
        """Take out those that wait for a claim which its owner gives up.

        There will be no news for them.
        """
        return self.claims.pop(want, ())

    def replace(self, want: Want, waiter: W) -> Sequence[W]:
        """Have its owner wait for the end of a claim.

        Returns:
            Those that waited for other news of it.
        """
        replaced = self.claims.get(want, ())
        self.claims[want] = [waiter]
        return replaced

    def take_news(self) -> list[W]:
        """Take out those that wait for news, for another reason than news: the client ends."""
        woken = self.news
        self.news = []
        return woken

    def sent(self) -> list[W]:
        """Take out those that wait until everything said so far is sent. It has just been sent."""
        woken = self.leaving
        self.leaving = []
        return woken

    def everyone(self) -> list[W]:
        """Take out everybody: this is the end."""
        woken = [it for table in (self.claims, self.queries) for waiters in table.values() for it in waiters]
        self.claims.clear()
        self.queries.clear()
        return woken + self.take_news() + self.sent()

    def __len__(self) -> int:
        waiting = sum(len(waiters) for table in (self.claims, self.queries) for waiters in table.values())
        return waiting + len(self.news) + len(self.leaving)


def fallen(leases: dict[Want, L], settled: Sequence[Want]) -> list[L]:
    """Take the leases out of a table whose claims are over.

    Args:
        leases: The lease of each claim that somebody has. Those of claims that are over leave it.
        settled: The claims with news.

    Returns:
        The leases among them that were lost, whose owners have to be told.
    """
    lost: list[L] = []
    for want in settled:
        if want.done and (lease := leases.pop(want, None)) is not None and want.state is State.LOST:
            lost.append(lease)
    return lost
