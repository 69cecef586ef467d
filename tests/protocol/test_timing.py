"""What a caller demands of a lease."""

from __future__ import annotations

from math import inf

import pytest

from holdfast.protocol.timing import Timing


def test_unless_told_otherwise_it_waits_for_ever_and_renews_without_a_limit() -> None:
    assert Timing(10.0) == Timing(ttl=10.0, wait=None, renew=True, max_hold=inf, news_needed=0)


def test_a_timing_cannot_be_changed() -> None:
    timing = Timing(10.0)
    with pytest.raises(AttributeError):
        timing.ttl = 5.0  # type: ignore[misc]  # (the mistake)
    assert timing._replace(wait=1.0) == Timing(10.0, 1.0)
    assert timing == Timing(10.0)
