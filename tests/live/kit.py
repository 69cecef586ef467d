"""What tests of clients for threads on real servers share."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
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


def until(condition: Callable[[], object], within: float = 15.0) -> float:
    """Wait until the condition holds; for how long that was."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() < began + within
        time.sleep(0.005)
    return time.monotonic() - began


def io_thread_of(client: Holdfast) -> IOThread:
    return client._driver.io_thread
