"""The conversations as text: they stand as they would be written again, and what cannot be is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from conversations import rewritten
from protocol import script


@pytest.mark.parametrize("file", sorted(Path(script.__file__).parent.glob("*/*.txt")), ids=lambda it: f"{it.parent.name}/{it.stem}")
def test_the_conversations_are_as_they_would_be_rewritten(file: Path) -> None:
    assert rewritten(file.read_text(), script.ways) == file.read_text()
