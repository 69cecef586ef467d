"""A gateway over real nodes, in the process of the test."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest
from cli.kit import Command
from serve.serving import client_of

from holdfast.aio import Holdfast
from holdfast.embedded import Nodes


@pytest.fixture
async def locks(nodes: Nodes) -> AsyncIterator[Holdfast]:
    async with Holdfast(*nodes.urls) as locks:
        yield locks


@pytest.fixture
async def client(locks: Holdfast) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(locks, allow_force=True) as client:
        yield client


@pytest.fixture
def own_nodes() -> Iterator[Nodes]:
    """Nodes that a test may harm."""
    with Nodes(5) as nodes:
        yield nodes


@pytest.fixture
def holdfast(tmp_path: Path, nodes: Nodes) -> Command:
    """The command, in an environment that names the nodes that no test harms."""
    return Command(tmp_path, nodes.environment)
