"""pytest fixtures for code that uses holdfast: real nodes, started once, and fresh clients for each test.

Knows pytest and both faces. Must not know your code.

Load it in the conftest.py at the root of your tests:

    pytest_plugins = ["holdfast.testing.plugin"]

(It is no entry point, or every run of pytest in your environment would import holdfast, and before coverage measures anything.)
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from typing import Any

import pytest

from .. import Holdfast
from .. import aio as asynchronous
from ..embedded import Nodes

__all__ = ["Clients", "alocks", "holdfast_client", "holdfast_nodes", "lock_cluster", "locks"]


class Clients:
    """Makes clients of the session's nodes, and closes them when the test ends.

    All clients of one test share a prefix that no other test has. So they compete for the same locks, and what an earlier test has left
    behind does not matter.

    Attributes:
        prefix: The prefix of all names in this test.
    """

    def __init__(self, urls: tuple[str, ...]) -> None:
        self.prefix = f"test-{secrets.token_hex(4)}:"
        self._urls = urls
        self._made: list[Holdfast] = []
        self._made_for_asyncio: list[asynchronous.Holdfast] = []

    def __call__(self, **options: Any) -> Holdfast:
        """Make a client for threads. `options`: the client's own; `prefix` is the test's unless you name another one."""
        client = Holdfast(*self._urls, **{"prefix": self.prefix, **options})
        self._made.append(client)
        return client

    def aio(self, **options: Any) -> asynchronous.Holdfast:
        """Make a client for asyncio, with the same options. It ends with its event loop, if the test does not close it before."""
        client = asynchronous.Holdfast(*self._urls, **{"prefix": self.prefix, **options})
        self._made_for_asyncio.append(client)
        return client

    def close(self) -> None:
        """Close all clients."""
        for client in self._made:
            client.close()
        for waits in self._made_for_asyncio:
            # A loop that is over has ended its client. One that lasts for longer than a test has not, and runs no code now.
            for loop in {loop for drivers in waits._loops for loop in drivers}:
                if not loop.is_closed() and not loop.is_running():
                    loop.run_until_complete(waits.close())


@pytest.fixture(scope="session")
def holdfast_nodes() -> Iterator[Nodes]:
    """Three real nodes for the whole session; with pytest-xdist, for each worker. Do not harm them: `lock_cluster` is for that.

    Override this fixture for other nodes, such as `holdfast.testing.memory()`, which needs no server.
    """
    with Nodes(3) as nodes:
        yield nodes


@pytest.fixture
def holdfast_client(holdfast_nodes: Nodes) -> Iterator[Clients]:
    """A function that makes clients for one test: `holdfast_client(ttl=2)` for threads, `holdfast_client.aio(ttl=2)` for asyncio."""
    clients = Clients(holdfast_nodes.urls)
    try:
        yield clients
    finally:
        clients.close()


@pytest.fixture
def locks(holdfast_client: Clients) -> Holdfast:
    """A client for threads, new for each test."""
    return holdfast_client()


@pytest.fixture
def alocks(holdfast_client: Clients) -> asynchronous.Holdfast:
    """A client for asyncio, new for each test, with the same names as `locks`."""
    return holdfast_client.aio()


@pytest.fixture
def lock_cluster() -> Iterator[Nodes]:
    """Five real nodes for one test, which may kill, restart and freeze them."""
    with Nodes(5) as nodes:
        yield nodes
