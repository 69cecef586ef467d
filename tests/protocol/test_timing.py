"""What a caller demands of a lease."""

from __future__ import annotations

from math import inf

from holdfast.protocol.timing import Timing


def test_unless_told_otherwise_it_waits_for_ever_and_renews_without_a_limit() -> None:
    assert Timing(10.0) == Timing(ttl=10.0, wait=None, renew=True, max_hold=inf, news_needed=0)
