"""What all tests share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from holdfast.embedded import Nodes


@pytest.fixture(scope="session")
def nodes() -> Iterator[Nodes]:
    """Five real nodes for all tests that do them no harm. Who kills, restarts or freezes a node starts its own `Nodes`."""
    with Nodes(5) as nodes:
        yield nodes
