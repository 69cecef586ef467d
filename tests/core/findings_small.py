"""Small findings outside the claim: each test fails until it is mended. Not collected by itself."""

from __future__ import annotations

import pytest

from holdfast import checks
from holdfast.core.ticket import LAST, Mint
from holdfast.errors import ConfigError


def test_22_a_client_works_again_once_the_clocks_are_set() -> None:
    """A clock beyond 2255 is refused, but stays the mint's last ticket: after the clock was set, every ticket is refused, for ever."""
    mint = Mint(b"a" * 32)
    with pytest.raises(ConfigError):
        mint.ticket(LAST / 1e6 + 1)
    assert mint.ticket(1_700_000_000.0) == 1_700_000_000_000_000


def test_23_a_clock_before_1970_is_refused() -> None:
    """`0 < ticket` is meant to see it, but the ticket is at least the last one + 1, so never below 1: nothing is refused."""
    with pytest.raises(ConfigError):
        Mint(b"a" * 32).ticket(-5.0)


@pytest.mark.parametrize("value", [10**400, -(10**400), 10**5000], ids=["large", "small", "too large to write"])
def test_24_a_number_that_no_float_can_hold_is_a_config_error(value: int) -> None:
    """OverflowError from float(), and for more than 4300 digits a bare ValueError from repr()."""
    with pytest.raises(ConfigError):
        checks.seconds(value, "ttl")
