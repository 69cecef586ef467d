"""Findings in engine/settings.py: each of these fails today."""

from __future__ import annotations

import pytest
from engine.test_settings import complaint


def test_fresh_is_no_text() -> None:
    assert "fresh" in complaint(fresh="4a6d" * 10)  # accepted as {"4", "a", "6", "d"}: the guard that was to be waived is not


@pytest.mark.parametrize("fresh", [5, None, [["a"]], [5]])
def test_fresh_is_texts(fresh: object) -> None:
    assert "fresh" in complaint(fresh=fresh)  # TypeError, or accepted
