"""What holds in every test of connections."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.wire.connection import Connection


@pytest.fixture(autouse=True)
def whoever_listens_knows_when_there_is_something_to_send(monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver that goes by `spoke` leaves nothing unsent."""
    take = Connection.take

    def taken(connection: Connection[Any]) -> bytes:
        assert connection.listener.spoke or not connection.out
        connection.listener.spoke = False
        return take(connection)

    monkeypatch.setattr(Connection, "take", taken)
