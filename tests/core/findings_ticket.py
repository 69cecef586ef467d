"""A finding: it fails until it is mended. Not collected by itself."""

from __future__ import annotations

from holdfast.core.ticket import Mint
from holdfast.recipes.exclusive import Exclusive


def test_25_the_token_after_four_billion_is_as_long_as_the_others() -> None:
    """PROTOCOL 3: fixed width. After 2**32 tokens (41 hours of 29,000 acquisitions a second) the serial has 9 digits.

    The packed commands say `$58` before 59 bytes, every node hangs up, and the client never works again. A serial that begins anew is
    unique all the same: tickets only grow, and one ticket has few tokens.
    """
    mint = Mint(b"a" * 32)
    mint._serial = 2**32 - 2
    tokens = [mint.token(7) for _ in range(3)]
    assert {len(it) for it in tokens} == {58}
    assert len(set(tokens)) == 3
    data = Exclusive("jobs", ttl=9.0, horizon=16_000).release(tokens[-1])
    assert b"$58\r\n" + tokens[-1] + b"\r\n" in data
