"""What tests on real servers share: one face for threads and one for asyncio, and nodes that no test harms."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator

import pytest
from contract.cluster import Cluster
from contract.faces import FACES, Face
from live.kit import connected
from live.tls_kit import Papers

from holdfast import Holdfast
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


@pytest.fixture(scope="module")
def three() -> Iterator[Cluster]:
    """Three nodes of the module's own."""
    with Cluster(Nodes(3)) as cluster:
        yield cluster


@pytest.fixture
def client(three: Cluster) -> Iterator[Holdfast]:
    """A client for threads that speaks with these three."""
    with connected(three) as client:
        yield client


@pytest.fixture(scope="session")
def papers(tmp_path_factory: pytest.TempPathFactory) -> Papers:
    """Certificates."""
    return Papers(tmp_path_factory.mktemp("papers"))


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A lock's name that no other test uses."""
    return request.module.__name__.rpartition("test_")[2] + "." + re.sub(r"[^\w-]+", ".", request.node.name, flags=re.ASCII)
