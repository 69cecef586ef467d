"""The server: its clock.

Which servers may be used, and from when on, is told by conversations: `tests/wire/server/*.txt`.
"""

from __future__ import annotations

import pytest
from wire.servers import Server, a_connection, up


def test_a_clock_is_measured_again() -> None:
    connection = a_connection()
    connection.server.told_time([b"5", b"0"], 1.0, 2.0)
    assert connection.server.ahead is None, "nothing is known of it"
    up(connection)
    before = connection.server.ahead
    assert before is not None
    at = connection.server.measured
    connection.server.told_time(ConnectionError("no"), at + 1.0, at + 2.0)
    assert (connection.server.ahead, connection.server.measured) == (before, at)
    told = before + at + 10.5
    connection.server.told_time([b"%d" % told, b"%06d" % (told % 1 * 1e6)], at + 10.0, at + 11.0)
    assert (connection.server.ahead, connection.server.measured) == (before, at + 11.0), "the first measure was more exact"
    connection.server.told_time([b"%d" % (told + 60), b"%06d" % (told % 1 * 1e6)], at + 10.0, at + 11.0)
    assert connection.server.ahead == pytest.approx(before + 60.0, abs=1e-3) and connection.server.blur == 0.5


@pytest.mark.parametrize("first, second, side", [(1.0, 0.25, 1), (0.25, 1.0, 1), (1.0, 1.0, -1)])
def test_a_clock_was_set_only_if_both_measures_together_cannot_be_wrong_by_that(first: float, second: float, side: int) -> None:
    connection = a_connection(prompt=2.0)
    connection.dial(0.0)
    connection.connected(0.0)
    connection.received(Server().greets(), first)
    ahead = connection.server.ahead
    assert ahead is not None
    for off, counts in (((first + second) / 2 - 0.01, False), ((first + second) / 2 + 0.01, True)):
        told = ahead + 10.0 + second / 2 + side * off
        connection.server.told_time([b"%d" % told, b"%06d" % (told % 1 * 1e6)], 10.0, 10.0 + second)
        assert (connection.server.ahead != ahead) is counts
