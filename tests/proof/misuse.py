"""Expects that holdfast refuses what a program does wrong."""

from __future__ import annotations

import pytest

from holdfast.errors import Misuse


def misuse(reason: str, match: str | None = None) -> pytest.RaisesExc[Misuse]:
    """A block that has to raise Misuse for this reason."""
    return pytest.RaisesExc(Misuse, match=match, check=lambda it: it.reason == reason)
