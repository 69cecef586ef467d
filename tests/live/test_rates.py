"""Rates between processes, while they and nodes are killed; and the rate limiter of the tutorials, which never lets go."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from contract.cluster import Cluster, asks

from holdfast import Holdfast
from holdfast.embedded import Nodes


@pytest.fixture
def five() -> Iterator[Cluster]:
    with Cluster(Nodes(5)) as cluster:
        yield cluster


def test_the_tutorials_limiter_never_lets_go_of_a_steady_caller_and_ours_does(five: Cluster) -> None:
    """INCR and EXPIRE at every request, as the sources have it: the window is pushed forward, so it never ends for who keeps calling."""
    limit, calls = 2, 7

    def theirs(name: str, period: int) -> bool:
        count, _ = asks(five.urls[0], [("INCR", name), ("EXPIRE", name, period)])
        return bool(count <= limit)

    def ask(locks: Holdfast, period: int) -> tuple[list[list[bool]], float]:
        """Ask all three limiters again and again, below their limit. Returns their answers, and the longest pause between two calls."""
        ours = [locks.rate(f"api:{period}", limit, period, algorithm=it, key="me") for it in ("gcra", "fixed window")]
        told: list[list[bool]] = []
        before, longest = time.monotonic(), 0.0
        for _ in range(calls):
            longest, before = max(longest, time.monotonic() - before), time.monotonic()
            told.append([theirs(f"ratelimit:{period}", period), *[bool(it.take()) for it in ours]])
            time.sleep(0.6 * period)
        return told, longest

    with Holdfast(*five.urls) as locks:
        # After a pause of a whole period, which a busy machine may bring, the sources' window has ended all the same.
        for period in (1, 2, 4):
            told, longest = ask(locks, period)
            if longest < 0.95 * period:
                break
    assert [gcra and window for _, gcra, window in told] == [True] * calls
    assert [it for it, *_ in told] == [True] * limit + [False] * (calls - limit), "never let in again, though it stays below the limit"
