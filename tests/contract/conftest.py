"""The contract's fixtures: every test here runs once for each driver."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

import pytest
from contract.cluster import Cluster
from contract.faces import FACES, Face
from contract.simulated import Simulated, SimulatedCluster

from holdfast.embedded import Nodes


@pytest.fixture(params=[*FACES, "simulated"])
async def face(request: pytest.FixtureRequest) -> AsyncIterator[Face]:
    """A driver, and its face."""
    face = {**FACES, "simulated": Simulated}[request.param]()
    yield face
    await face.finish()


@pytest.fixture
def five(face: Face, nodes: Nodes) -> Cluster | SimulatedCluster:
    """Five nodes that all tests share, and that no test does any harm."""
    return SimulatedCluster(face.world, 5) if isinstance(face, Simulated) else Cluster(nodes)


@pytest.fixture
async def three(face: Face) -> AsyncIterator[Cluster]:
    """Three nodes of the test's own."""
    async with face.nodes(3) as cluster:
        yield cluster


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A lock's name that no other test uses."""
    return re.sub(r"[^\w-]+", ".", request.node.name, flags=re.ASCII)
