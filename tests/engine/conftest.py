"""Conversations of an engine with its nodes: text files are tests, too."""

from __future__ import annotations

from pathlib import Path

import conversations
import pytest
from engine import talk


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> conversations.File | None:
    """Collect the conversations of a file."""
    if file_path.suffix != ".txt":
        return None
    return conversations.File.from_parent(parent, path=file_path, ways=talk.ways)
