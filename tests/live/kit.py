"""What tests of clients for threads on real servers share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from contract.cluster import Cluster

from holdfast import Holdfast
from holdfast.drivers.threads.io_thread import IOThread


@contextmanager
def connected(nodes: Cluster, **options: Any) -> Iterator[Holdfast]:
    """A client that speaks with every node."""
    with Holdfast(*nodes.urls, **options) as client:
        client.ready()
        yield client


def io_thread_of(client: Holdfast) -> IOThread:
    return client._driver.io_thread
