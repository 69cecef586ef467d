"""What a caller demands of a lease."""

from __future__ import annotations

from math import inf

import pytest

from holdfast.core.demand import Demand


def test_unless_told_otherwise_it_waits_for_ever_and_renews_without_a_limit() -> None:
    assert Demand(10.0) == Demand(ttl=10.0, wait=None, renew=True, max_hold=inf, news_needed=0)


def test_a_demand_cannot_be_changed() -> None:
    demand = Demand(10.0)
    with pytest.raises(AttributeError):
        demand.ttl = 5.0  # type: ignore[misc]  # (the mistake)
    assert demand._replace(wait=1.0) == Demand(10.0, 1.0)
    assert demand == Demand(10.0)
