"""What a node answers to a request, in each form that the scripts give it, and what is no answer."""

from __future__ import annotations

import pytest

from holdfast.protocol.answer import LASTING, NO_KEY, SHOWN, Denied, Granted, is_below, read

P = 1_700_000_000_000_000


@pytest.mark.parametrize(
    "reply, answer",
    [
        (P, Granted(P, False, False)),
        (b"%016d" % P, Granted(P, False, True)),
        (b"7", Granted(7, False, True)),
        (b"%d" % (2**53 - 1), Granted(2**53 - 1, False, True)),
        ([P, 0, 0], Granted(P, False, False)),
        ([P, 1, 0], Granted(P, True, False)),
        ([P, 0, 1], Granted(P, False, True)),
        ([P, 1, 1, None], Granted(P, True, True)),
        ([1, 2, 2], Granted(1, False, False)),
        ([0, 5000, 2, b"value"], Denied(5000, 2, b"value")),
        ([0, LASTING, 1, None], Denied(-1, 1, None)),
        ([0, NO_KEY, 0], Denied(-2, 0, None)),
        ([0, NO_KEY, 0, None, P], Denied(-2, 0, None, P)),
    ],
)
def test_an_answer(reply: object, answer: object) -> None:
    found = read(reply)
    assert (type(found), found) == (type(answer), answer)


@pytest.mark.parametrize("reply", [Exception("READONLY"), b"12 ", b"%d" % 2**53, [P, 0, 1, 5], (P, 0, 1)])
def test_what_is_no_answer(reply: object) -> None:
    """Most of it is in a conversation: `claim/outages.txt`."""
    assert read(reply) is None


def test_of_a_long_value_only_the_beginning_is_kept() -> None:
    assert read([0, 5000, 2, b"x" * SHOWN + b"y"]) == Denied(5000, 2, b"x" * SHOWN)
    assert SHOWN == 64


@pytest.mark.parametrize(
    "reply, below",
    [(1, True), (P - 1, True), (P, False), (0, False), (b"%016d" % (P - 1), True), ([1, 0, 1], True),
     ([P, 0, 1], False), ([0, 5000, 2, None], False), (Exception("OOM"), False)],
)  # fmt: skip
def test_a_grant_below_the_proposed_fence(reply: object, below: bool) -> None:
    assert is_below(reply, P) is below
