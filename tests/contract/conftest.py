"""The contract's fixtures: every test here runs once for each driver."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

import pytest
from contract.cluster import Cluster
from contract.faces import FACES, Face

from holdfast.embedded import Nodes


# `./task test` asks the threads, and `./task test --all` asyncio, too.
@pytest.fixture(params=[pytest.param(it, marks=pytest.mark.servers) if it == "asyncio" else it for it in FACES])
async def face(request: pytest.FixtureRequest) -> AsyncIterator[Face]:
    """A driver, and its face."""
    face = FACES[request.param]()
    yield face
    await face.finish()


@pytest.fixture
def five(nodes: Nodes) -> Cluster:
    """Five nodes that all tests share, and that no test does any harm."""
    return Cluster(nodes)


@pytest.fixture
async def three(face: Face) -> AsyncIterator[Cluster]:
    """Three nodes of the test's own."""
    async with face.nodes(3) as cluster:
        yield cluster


@pytest.fixture
async def own_five(face: Face) -> AsyncIterator[Cluster]:
    """Five nodes of the test's own, which it may stop and restart."""
    async with face.nodes(5) as cluster:
        yield cluster


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A lock's name that no other test uses."""
    return re.sub(r"[^\w-]+", ".", request.node.name, flags=re.ASCII)
