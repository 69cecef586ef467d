"""What holds in every test of connections, and conversations with one node: text files are tests, too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from conversations import collects
from wire import talk

from holdfast.wire.connection import Connection

pytest_collect_file = collects(Path(__file__).parent, talk.ways)


@pytest.fixture(autouse=True)
def whoever_listens_knows_when_there_is_something_to_send(monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver that goes by `spoke` leaves nothing unsent."""
    take = Connection.take

    def taken(connection: Connection[Any]) -> bytes:
        assert connection.listener.spoke or not connection.out
        connection.listener.spoke = False
        return take(connection)

    monkeypatch.setattr(Connection, "take", taken)
