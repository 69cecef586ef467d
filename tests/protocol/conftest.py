"""Text files of conversations are tests, too."""

from __future__ import annotations

from pathlib import Path

from conversations import collects
from protocol import script

pytest_collect_file = collects(Path(__file__).parent, script.ways)
