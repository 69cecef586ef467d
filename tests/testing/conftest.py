"""Examinations of a server, and a node with its connections: text files are tests, too."""

from __future__ import annotations

from pathlib import Path

import pytest
from conversations import File, collects
from testing import conformance_talk, network_talk

_WAYS = {"conformance": conformance_talk.ways, "network": network_talk.ways}


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> File | None:
    """Collect the conversations of each folder."""
    ways = _WAYS.get(file_path.parent.name)
    return collects(Path(__file__).parent, ways)(file_path, parent) if ways else None
