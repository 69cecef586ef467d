"""What tests on real servers share: one face for threads and one for asyncio, and the five nodes that no test harms."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from contract.cluster import Cluster
from contract.faces import FACES, Face

from holdfast.embedded import Nodes


@pytest.fixture(params=FACES)
async def face(request: pytest.FixtureRequest) -> AsyncIterator[Face]:
    """Each of the faces in turn. What the test has opened with it is closed afterwards."""
    face = FACES[request.param]()
    yield face
    await face.finish()


@pytest.fixture
def five(nodes: Nodes) -> Cluster:
    """The nodes of the session. A test that harms nodes starts its own."""
    return Cluster(nodes)
