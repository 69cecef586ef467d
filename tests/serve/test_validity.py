from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.serve.leases import valid_ms
from holdfast.serve.models import LEASE_ID


@given(st.floats(0, 1e6))
def test_nobody_believes_longer_than_the_lease_lasts_also_by_a_faster_clock(remaining: float) -> None:
    assert valid_ms(remaining) / 1000 <= remaining * 0.99


@pytest.mark.parametrize("remaining,valid", [(10.0, 9898), (1.0, 988), (0.002, 0), (0.0, 0)])
def test_what_is_left(remaining: float, valid: int) -> None:
    assert valid_ms(remaining) == valid


def test_ids() -> None:
    assert all(re.fullmatch(LEASE_ID, it) for it in ("gabcdef2.4f0c2a9e7d1b48e0", "4f0c2a9e7d1b48e0"))
    assert not any(re.fullmatch(LEASE_ID, it) for it in ("short", "x" * 65, "gabc.4f0c2a9e7d1b48e0", "4f0c2a9e7d1b48e0/..", ""))
