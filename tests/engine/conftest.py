"""Conversations of an engine with its nodes: text files are tests, too."""

from __future__ import annotations

from pathlib import Path

from conversations import collects
from engine import talk

pytest_collect_file = collects(Path(__file__).parent, talk.ways)
