"""What all tests share."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator

import pytest

from holdfast.embedded import Nodes

# HOLDFAST_LOOP=uvloop has everything of asyncio run on uvloop: pytest-asyncio's tests, and what calls `asyncio.run` itself.
if (loop := os.environ.get("HOLDFAST_LOOP", "asyncio")) == "uvloop":
    import uvloop

    asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
elif loop != "asyncio":
    raise pytest.UsageError(f"HOLDFAST_LOOP is asyncio or uvloop, not {loop}")


@pytest.fixture(scope="session")
def nodes() -> Iterator[Nodes]:
    """Five real nodes for all tests that do them no harm. Who kills, restarts or freezes a node starts its own `Nodes`."""
    with Nodes(5) as nodes:
        yield nodes
