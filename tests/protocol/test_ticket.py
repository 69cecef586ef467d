"""Tickets only grow, tokens are unique, and the byte order of tokens is the order of their tickets."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import ConfigError
from holdfast.protocol.ticket import FENCE, LAST, TOKEN, Tickets, inbox_of, kind_of

unhurried = settings(deadline=None)  # others may have the machine

INBOX = bytes(range(16)).hex().encode()
TIMES = st.floats(1, LAST / 1e6 - 1)


@unhurried
@given(st.lists(TIMES, min_size=2, max_size=20))
def test_tickets_grow_whatever_the_clock_does(times: list[float]) -> None:
    # Rule K3.
    tickets = Tickets(INBOX)
    before = 0
    for time in times:
        ticket = tickets.ticket(time)
        assert ticket == max(before + 1, int(time * 1e6))
        before = ticket


def test_after_a_clock_that_was_wrong_tickets_begin_at_the_right_time() -> None:
    tickets = Tickets(INBOX)
    tickets.ticket(7.0)
    tickets.forget()
    assert [tickets.ticket(time) for time in (5.0, 4.0)] == [5_000_000, 5_000_001]


@pytest.mark.parametrize("time", [-5.0, 0.0, 9e9, 1e12])
def test_a_clock_that_cannot_be_right_is_refused(time: float) -> None:
    """Below 2**53 a node's Lua counts in whole numbers; 16 digits are the token's width."""
    # Rule K3.
    assert LAST < 2**53
    assert len(str(LAST)) == 16
    tickets = Tickets(INBOX)
    with pytest.raises(ConfigError, match=f"{time:.0f} s after 1970: set them"):
        tickets.ticket(time)
    assert tickets.ticket(1_700_000_000.0) == 1_700_000_000_000_000, "and once it is set all is well"


def test_the_last_moment_is_a_ticket() -> None:
    assert Tickets(INBOX).ticket(9e9 - 0.5) == LAST - 500_000
    assert Tickets(INBOX).ticket(1e-6) == 1


@unhurried
@given(st.integers(0, LAST - 1))
def test_a_token_has_a_ticket_an_inbox_and_a_serial_of_fixed_width(ticket: int) -> None:
    """Nodes and others read them from it, by position."""
    tickets = Tickets(INBOX)
    first, second = tickets.token(ticket), tickets.token(ticket)
    assert re.fullmatch(rb"[0-9]{16}:[0-9a-f]{32}:[0-9a-f]{8}", first)
    assert TOKEN.fullmatch(first), "whoever wants to know a token when it sees one"
    assert (int(first[:16]), first[17:49], first[50:], second[50:]) == (ticket, INBOX, b"00000001", b"00000002")


@unhurried
@given(st.lists(st.integers(0, LAST - 1), min_size=2, max_size=2, unique=True))
def test_byte_order_is_ticket_order(two: list[int]) -> None:
    # Rule K2.
    one, other = Tickets(b"f" * 32), Tickets(b"0" * 32)
    low, high = sorted(two)
    assert one.token(low) < other.token(high)
    assert other.token(low) < one.token(high)


@pytest.mark.parametrize("apart", [1, 7, 1000, 12_345, 1_000_000])
def test_tickets_that_are_taken_together_have_places_far_apart(apart: int) -> None:
    tickets, first = Tickets(b"0123abcd" * 4), 1_700_000_000_000_000
    places = [tickets.place(first + apart * number) for number in range(1000)]
    tenths = [sum(tenth <= it * 10 < tenth + 1 for it in places) for tenth in range(10)]
    assert sum(tenths) == 1000
    assert max(tenths) < 120


def test_clients_that_begin_together_have_places_of_their_own() -> None:
    places = [Tickets(b"%08x" % (number * 99_999_989 % 2**32) + b"a" * 24).place(1_700_000_000_000_000) for number in range(100)]
    assert len(set(places)) == 100
    assert max(places) > 0.9 and min(places) < 0.1


def test_B07_no_two_tokens_are_alike() -> None:
    # Rule K2.
    one, other = Tickets(b"a" * 32), Tickets(b"b" * 32)
    tokens = [tickets.token(7) for tickets in (one, other) for _ in range(100)]
    assert len(set(tokens)) == 200


@pytest.mark.parametrize(
    "text", [b"", b"1" * 58, b"somebody", b"1700000000000000:" + b"A" * 32 + b":00000001", b"1700000000000000:" + b"a" * 32 + b":1"]
)
def test_what_others_write_is_no_token(text: bytes) -> None:
    assert not TOKEN.fullmatch(text)


@unhurried
@given(st.integers(0, LAST))
def test_a_fence_is_at_most_sixteen_digits(fence: int) -> None:
    assert FENCE.fullmatch(b"%d" % fence)
    assert FENCE.fullmatch(b"%016d" % fence)
    assert not FENCE.fullmatch(b"-%d" % fence)
    assert not FENCE.fullmatch(b"%017d" % fence)
    assert not FENCE.fullmatch(b"")


def test_the_token_after_four_billion_is_as_long_as_the_others() -> None:
    """A busy client gets there in two days; the serial begins anew, and the tickets are other ones by then."""
    tickets = Tickets(INBOX)
    tickets._serial = 2**32 - 2
    tokens = [tickets.token(7) for _ in range(3)]
    assert [token[50:] for token in tokens] == [b"ffffffff", b"00000000", b"00000001"]


def test_a_token_may_end_in_a_kind() -> None:
    plain = Tickets(b"a" * 32).token(5)
    assert TOKEN.fullmatch(plain) and TOKEN.fullmatch(plain + b":r") and TOKEN.fullmatch(plain + b":w")
    assert not TOKEN.fullmatch(plain + b":x") and not TOKEN.fullmatch(plain + b"r")
    assert [kind_of(plain + it) for it in (b"", b":r", b":w")] == [b"", b":r", b":w"]
    assert [inbox_of(plain + it) for it in (b"", b":r", b":w")] == [b"a" * 32] * 3
