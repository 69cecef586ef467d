"""Examinations of a server that is wrong: text files are tests, too."""

from __future__ import annotations

from pathlib import Path

from conversations import collects
from testing import talk

pytest_collect_file = collects(Path(__file__).parent, talk.ways)
