"""Findings in recipes/exclusive.py: each of these fails today. Both make commands whose lengths lie: the connection is out of step."""

from __future__ import annotations

import hiredis
import pytest
from recipes.test_exclusive import TOKEN, K

from holdfast.errors import ConfigError
from holdfast.recipes.exclusive import Exclusive, undo


def words(data: bytes) -> list[bytes]:
    """What a server reads."""
    parser = hiredis.Reader()
    parser.feed(data)
    read = parser.gets()
    assert parser.gets() is False
    return read  # type: ignore[no-any-return]


@pytest.mark.parametrize("fence", [10**16, 10**18, 2**63 - 1])
def test_a_fence_of_more_digits(fence: int) -> None:
    """A node whose clock stands behind the year 2286, or whose record was changed by hand, answers such an F. It is the largest, so it is
    written back to the other nodes, which then read rubbish: one wrong node takes down all lanes of whoever asks for that name."""
    data = Exclusive("a", ttl=10, horizon=K).request(TOKEN, 10, b"w", fence)
    assert int(words(data)[10]) == fence


@pytest.mark.parametrize("token", [b"", b"short", TOKEN + b"x", b"x\r\n$5\r\n16000\r\n*1\r\n$8\r\nFLUSHALL\r\n"])
def test_a_token_of_another_length(token: bytes) -> None:
    """`undo` packs what somebody published to the inbox: anything without a space. The last one is executed."""
    try:
        data = undo(b"a", token, K)
    except (ConfigError, ValueError):
        return
    assert words(data)[7] == token
